"""The HTTP port: values as JSON, and every refusal as JSON of one shape, counted."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

import aiohttp.web
import pytest

from tidemill_host.routing import Route, Variables
from tidemill_host.web import Web
from tidemill_wire import limits

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


def test_beyond_the_limit_probes_are_answered_others_told_so_and_more_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand who wait for messages are not to make anybody take the process for dead."""
    monkeypatch.setattr(limits, "HTTP_SPARE_CONNECTIONS", 1)
    refused = Counter[str]()

    async def talk(port: int) -> bytes:
        first = await asyncio.open_connection("127.0.0.1", port)
        first[1].write(GET.replace(b"Connection: close\r\n", b"") % b"/metrics")
        await first[0].readuntil(b"things 1\n")
        keeps = GET.replace(b"Connection: close\r\n", b"")
        answers = [
            (await exchange(port, keeps % path))[:12] for path in (b"/metrics", b"/v1/things", b"/metrics")
        ]
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        try:
            answers.append((await exchange(port, GET % b"/metrics"))[:12])
        except ConnectionError:
            answers.append(b"closed")
        for writer in (first[1], silent):
            writer.close()
            await writer.wait_closed()
        return b" ".join(answers)

    answers = asyncio.run(with_web(talk, refused, connections_max=1))

    assert answers.startswith(b"HTTP/1.1 200 HTTP/1.1 503 HTTP/1.1 200")
    assert not answers.endswith((b"200", b"503"))
    assert refused["too_many_connections"] >= 2


def test_page_of_somebody_else_is_refused_before_anything_is_looked_at() -> None:
    refused = Counter[str]()
    request = (
        b"GET /v1/things HTTP/1.1\r\nHost: x\r\nOrigin: http://evil.example\r\nConnection: close\r\n\r\n"
    )

    status, _, body = asked(request, refused)

    assert (status, json.loads(body)["error"]["code"]) == (403, "foreign_page")
    assert refused == {"foreign_page": 1}


class Rows:
    """A long list, and what somebody else got done meanwhile."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.turns = self.turns_at_end = 0
        self.begun = False

    def __call__(self) -> Iterator[dict[str, int]]:
        self.begun = True
        for number in range(self.count):
            yield {"number": number}
        self.turns_at_end = self.turns


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 1234])
def test_long_list_is_one_value_and_lets_others_have_their_turns(count: int) -> None:
    rows = Rows(count)

    async def main() -> bytes:
        web = Web({"/v1/things": rows}, lambda: b"", Counter())
        port = await web.listen("127.0.0.1", 0)
        asking = asyncio.ensure_future(exchange(port, GET % b"/v1/things"))
        while not asking.done():
            rows.turns += rows.begun
            await asyncio.sleep(0)
        await web.close()
        return await asking

    answer = asyncio.run(main())

    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == [{"number": number} for number in range(count)]
    assert rows.turns_at_end >= count // 100


def deaf(port: int) -> socket.socket:
    """Asks, and reads nothing."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", port))
    made.sendall(GET % b"/metrics")
    return made


@pytest.mark.parametrize(
    "patience_ms, unread_max, count",
    [(0, limits.UNREAD_BYTES_MAX, 1), (limits.SLOW_FRAME_MS, 20 * limits.MIB, 3)],
    ids=["for too long", "too much together"],
)
def test_who_does_not_read_the_answer_is_cut_off(
    patience_ms: int, unread_max: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiohttp waits for ever until it has written all, and until it has closed."""
    monkeypatch.setattr(limits, "SLOW_FRAME_MS", patience_ms)
    monkeypatch.setattr(limits, "UNREAD_BYTES_MAX", unread_max)
    refused = Counter[str]()
    page = bytes(16 * limits.MIB)

    async def main() -> None:
        web = Web({}, lambda: page, refused)
        port = await web.listen("127.0.0.1", 0)
        guests = [deaf(port) for _ in range(count)]
        now, held = asyncio.get_running_loop().time, lambda: [one.held for one in web._server.connections]
        try:
            async with asyncio.timeout(60):
                while len(held()) < count or not all(held()):  # noqa: ASYNC110 - nobody is told of it
                    await asyncio.sleep(0)
                while len(held()) == count:
                    await asyncio.sleep(0)
                    web._server.check(now())
            assert sum(held()) <= unread_max
        finally:
            for guest in guests:
                guest.close()
            await web.close()

    asyncio.run(main())
    assert set(refused) == {"too_slow"}


def test_packed_body_is_not_unpacked_before_it_is_refused() -> None:
    packed = gzip.compress(bytes(8 * limits.MIB))
    seen: list[int] = []

    async def answer(request: aiohttp.web.BaseRequest, _: Variables) -> aiohttp.web.StreamResponse:
        seen.append(len(await request.content.read()))
        return aiohttp.web.Response()

    async def main() -> None:
        web = Web({}, lambda: b"", Counter(), [Route("POST", "/things", answer)])
        port = await web.listen("127.0.0.1", 0)
        head = b"POST /things HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nConnection: close\r\n"
        try:
            await exchange(port, head + b"Content-Length: %d\r\n\r\n" % len(packed) + packed)
        finally:
            await web.close()

    asyncio.run(main())
    assert seen == [len(packed)]
