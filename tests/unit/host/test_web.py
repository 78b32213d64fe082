"""The HTTP port: values as JSON, and every refusal as JSON of one shape, counted."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from tidemill_host.web import Web

GET = b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def with_web(
    talk: Callable[[int], Awaitable[bytes]], refused: Counter[str], connections_max: int = 10
) -> bytes:
    web = Web({"/v1/things": lambda: [{"name": "a"}]}, lambda: b"things 1\n", refused)
    port = await web.listen("127.0.0.1", 0, connections_max)
    try:
        async with asyncio.timeout(10):
            return await talk(port)
    finally:
        await web.close()


async def exchange(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def asked(request: bytes, refused: Counter[str] | None = None) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer to some bytes."""
    counts = Counter[str]() if refused is None else refused
    answer = asyncio.run(with_web(lambda port: exchange(port, request), counts))
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in rest), body


def test_value_is_json_and_metrics_are_text() -> None:
    status, headers, body = asked(GET % b"/v1/things")
    assert (status, json.loads(body)) == (200, [{"name": "a"}])
    assert headers["Content-Type"].startswith("application/json")

    status, headers, body = asked(GET % b"/metrics")
    assert (status, body) == (200, b"things 1\n")
    assert headers["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize(
    "request_bytes, status, code",
    [
        (GET % b"/nowhere", 404, "not_found"),
        ((GET % b"/v1/things").replace(b"GET", b"DELETE"), 405, "http_error"),
        (b"\x08\x00\x00\x00\x01\x00\x00\x00garbage\r\n\r\n", 400, "http_error"),
        (b"GET / HTTP/1.1\r\nbroken header\r\n\r\n", 400, "http_error"),
    ],
)
def test_refusal_has_one_shape_and_is_counted(request_bytes: bytes, status: int, code: str) -> None:
    refused = Counter[str]()
    got, headers, body = asked(request_bytes, refused)
    error = json.loads(body)["error"]

    assert (got, error["code"]) == (status, code)
    assert error["detail"]
    assert error["advice"]
    assert headers["Content-Type"].startswith("application/json")
    assert refused == {code: 1}


def test_connections_beyond_the_limit_are_closed_and_counted() -> None:
    refused = Counter[str]()

    async def talk(port: int) -> bytes:
        first = await asyncio.open_connection("127.0.0.1", port)
        first[1].write(GET.replace(b"Connection: close\r\n", b"") % b"/metrics")
        await first[0].readuntil(b"things 1\n")
        try:
            answer = await exchange(port, GET % b"/metrics")
        except ConnectionError:
            answer = b""
        first[1].close()
        await first[1].wait_closed()
        return answer

    assert asyncio.run(with_web(talk, refused, connections_max=1)) == b""
    assert refused == {"too_many_connections": 1}


def test_page_of_somebody_else_is_refused_before_anything_is_looked_at() -> None:
    refused = Counter[str]()
    request = (
        b"GET /v1/things HTTP/1.1\r\nHost: x\r\nOrigin: http://evil.example\r\nConnection: close\r\n\r\n"
    )

    status, _, body = asked(request, refused)

    assert (status, json.loads(body)["error"]["code"]) == (403, "foreign_page")
    assert refused == {"foreign_page": 1}
