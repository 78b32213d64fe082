"""What meta passes on for the console: known paths, to brokers that have registered, with the token that came along."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from tidemill_console.relay import OWN_HEADER, PASSED, Relay
from tidemill_host.refusals import json_response
from tidemill_host.routing import Route, Variables
from tidemill_host.web import Web

SAID = {OWN_HEADER: "1"}
Ask = Callable[..., Awaitable[tuple[int, Any, dict[str, str]]]]


async def echo(request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
    """What has come, said back."""
    head = {
        name: request.headers.get(name) for name in ("Authorization", "Cookie", "Tidemill-Console", "Origin")
    }
    body = (await request.read()).decode()
    return json_response(
        {
            "path": request.rel_url.raw_path,
            "query": request.rel_url.raw_query_string,
            "head": head,
            "body": body,
        }
    )


async def refusing(_: web.BaseRequest, __: Variables) -> web.StreamResponse:
    return json_response({"error": {"code": "unauthenticated"}}, 401)


async def plain(_: web.BaseRequest, __: Variables) -> web.StreamResponse:
    return web.Response(text="<script>alert(1)</script>", content_type="text/html")


async def leading_away(_: web.BaseRequest, __: Variables) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": "/v1/process"}, content_type="application/json")


async def large(request: web.BaseRequest, _: Variables) -> web.StreamResponse:
    """More than is held at once, half of it broken off when it is asked so."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    for number in range(64):
        await response.write(b" " * 65536)
        if number == 31 and request.rel_url.query_string == "break":
            assert request.transport is not None
            request.transport.abort()
            return response
    await response.write(b"1")
    await response.write_eof()
    return response


BROKER = [
    Route("GET", "/v1/messages/{id}", echo),
    Route("POST", "/v1/subjects/{subject}/groups/{group}/seek", echo),
    Route("GET", "/v1/transactions", refusing),
    Route("GET", "/v1/overview/groups", plain),
    Route("GET", "/v1/overview/subjects", leading_away),
    Route("GET", "/v1/messages", large),
    Route("POST", "/v1/declarations", echo),
]


@asynccontextmanager
async def together(known: dict[tuple[str, str], str] | None = None) -> AsyncIterator[Ask]:
    """A relay before a broker that is called b1-0 of b1."""
    broker = Web({"/v1/process": lambda: {"name": "b1-0"}}, bytes, Counter(), BROKER)
    address = f"127.0.0.1:{await broker.listen('127.0.0.1', 0)}"
    places = {("b1", "b1-0"): address, **(known or {})}
    relay = Relay(lambda group, name: places.get((group, name)))
    meta = Web({}, bytes, Counter(), relay.routes())
    port = await meta.listen("127.0.0.1", 0)
    async with aiohttp.ClientSession() as session:

        async def ask(method: str, path: str, **more: Any) -> tuple[int, Any, dict[str, str]]:
            url = URL(f"http://127.0.0.1:{port}{path}", encoded=True)
            async with session.request(method, url, allow_redirects=False, **more) as answer:
                data = await answer.read()
                return answer.status, json.loads(data), dict(answer.headers)

        try:
            yield ask
        finally:
            await meta.close()
            await relay.close()
            await broker.close()


async def test_question_is_passed_on_as_it_came_with_the_token_alone() -> None:
    async with together() as ask:
        head = {"Authorization": "Bearer t1", "Cookie": "a=b", **SAID}
        status, said, _ = await ask("GET", "/console/at/b1/b1-0/v1/messages/a%2Fb?x=%20y", headers=head)

    assert (status, said["path"], said["query"]) == (200, "/v1/messages/a%2Fb", "x=%20y")
    assert said["head"] == {
        "Authorization": "Bearer t1",
        "Cookie": None,
        "Tidemill-Console": None,
        "Origin": None,
    }


async def test_change_is_passed_on_only_with_the_header_of_the_console() -> None:
    path = "/console/at/b1/b1-0/v1/subjects/s/groups/g/seek"
    async with together() as ask:
        refused, error, _ = await ask("POST", path, data=b'{"to": "latest"}')
        status, said, _ = await ask("POST", path, json={"to": "latest"}, headers=SAID)

    assert (refused, error["error"]["code"]) == (403, "foreign_page")
    assert (status, json.loads(said["body"])) == (200, {"to": "latest"})


async def test_refusal_of_the_broker_is_what_the_page_is_told() -> None:
    async with together() as ask:
        status, said, _ = await ask("GET", "/console/at/b1/b1-0/v1/transactions")

    assert (status, said["error"]["code"]) == (401, "unauthenticated")


@pytest.mark.parametrize(
    "path",
    [
        "/console/at/b1/127.0.0.1:{port}/v1/process",
        "/console/at/127.0.0.1/{port}/v1/process",
        "/console/at/b1/b1-0@127.0.0.1/v1/process",
        "/console/at/b1/b1-1/v1/process",
        "/console/at/b2/b1-0/v1/process",
        "/console/at/b1/none/v1/process",
        "/console/at/b1/here/v1/process",
        "/console/at/b1/b1-0/v1/declarations",
        "/console/at/b1/b1-0/metrics",
        "/console/at/b1/b1-0/v1/process/..%2f..",
        "/console/at/b1/b1-0//v1/process",
        "/console/at/http:%2f%2f127.0.0.1:{port}/x/v1/process",
    ],
)
async def test_nothing_but_registered_brokers_and_known_paths_is_reached(path: str) -> None:
    """No server-side request to an address that a request names."""
    known = {
        ("b1", "none"): "",
        ("b1", "here"): ":7401",
    }  # one that is in the page's own process names no host
    async with together(known) as ask:
        status, said, _ = await ask("GET", path.replace("{port}", "1"), headers=SAID)

    assert (status, said["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize("identity", ["..", ".", "%2e%2e"])
async def test_dots_in_a_path_are_refused(identity: str) -> None:
    async with together() as ask:
        status, said, _ = await ask("GET", f"/console/at/b1/b1-0/v1/messages/{identity}")

    assert (status, said["error"]["code"]) == (400, "malformed_request")


@pytest.mark.parametrize("path", ["/v1/overview/groups", "/v1/subjects/s/timers"])
async def test_what_is_no_answer_of_a_broker_is_not_shown_as_one(path: str) -> None:
    """HTML never comes from the page's own origin, whatever sits at the address of a broker."""
    async with together() as ask:
        status, said, headers = await ask("GET", f"/console/at/b1/b1-0{path}")

    assert headers["Content-Type"].startswith("application/json")
    assert "<script>" not in json.dumps(said)
    assert status in {404, 503}


async def test_redirect_is_not_followed() -> None:
    async with together() as ask:
        status, said, headers = await ask("GET", "/console/at/b1/b1-0/v1/overview/subjects")

    assert "Location" not in headers
    assert (status, said["error"]["code"]) == (503, "unavailable")


async def test_large_answer_comes_whole_and_a_broken_one_is_no_answer() -> None:
    async with together() as ask:
        status, said, _ = await ask("GET", "/console/at/b1/b1-0/v1/messages")
        with pytest.raises(aiohttp.ClientError):
            await ask("GET", "/console/at/b1/b1-0/v1/messages?break")

    assert (status, said) == (200, 1)


async def endless(request: web.BaseRequest, _: Variables) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while True:
        await response.write(b" " * 65536)


async def test_who_reads_nothing_of_what_is_passed_on_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sixty-four of them would be all there is for everybody."""
    monkeypatch.setattr("tidemill_console.relay.PATIENCE_SECONDS", 0.5)
    broker = Web({}, bytes, Counter(), [Route("GET", "/v1/process", endless)])
    address = f"127.0.0.1:{await broker.listen('127.0.0.1', 0)}"
    relay = Relay(lambda *_: address)
    meta = Web({}, bytes, Counter(), relay.routes())
    port = await meta.listen("127.0.0.1", 0)
    deaf = socket.create_connection(("127.0.0.1", port))
    try:
        deaf.sendall(b"GET /console/at/b1/b1-0/v1/process HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(60):
            while not relay._running:  # noqa: ASYNC110 - nobody is told of it
                await asyncio.sleep(0)
            while relay._running:  # noqa: ASYNC110 - nobody is told of it
                await asyncio.sleep(0)
    finally:
        deaf.close()
        await meta.close()
        await relay.close()
        await broker.close()


async def test_large_question_and_a_dead_broker_are_refused_by_name() -> None:
    listener = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    gone = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    listener.close()
    await listener.wait_closed()
    async with together({("b1", "b1-1"): gone}) as ask:
        status, said, _ = await ask("GET", "/console/at/b1/b1-1/v1/process")
        large_status, large_said, _ = await ask(
            "POST", "/console/at/b1/b1-0/v1/subjects/s/groups/g/seek", data=b" " * 100_000, headers=SAID
        )

    assert (status, said["error"]["code"], said["error"]["retryable"]) == (503, "unavailable", True)
    assert (large_status, large_said["error"]["code"]) == (413, "body_too_large")


def test_every_path_that_is_passed_on_is_of_the_public_port() -> None:
    """And described there, so that nothing is done by the console that others could not do."""
    from tidemill_broker.doors.control import page

    described = {
        (method.upper(), shape(path)) for path, item in page(grouped=True)["paths"].items() for method in item
    }

    assert {(method, shape(path)) for method, path in PASSED} <= described


def shape(path: str) -> str:
    return "/".join("{}" if part.startswith("{") else part for part in path.split("/"))
