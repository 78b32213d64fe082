"""What a client makes of the address that it was given, and of what answers there."""

from __future__ import annotations

import asyncio
import importlib
from contextlib import asynccontextmanager

import pytest

from tidemill import BrokerUnreachable, Client, ClientSettings, Refused, routes
from tidemill.routes import Web, parse_server
from tidemill.servers import Servers

OTHERS = b"<html>default backend - 404</html>"
OURS = b'{"error": {"code": "%b", "detail": "there is no such thing", "advice": "look"}}'


@asynccontextmanager
async def answering(answer: bytes):
    """Whatever is asked, this is said, and the connection ends."""

    async def serve(reader, writer):
        await reader.read(1)
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


def http(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


async def asked(answer: bytes):
    async with answering(answer) as port:
        return await Web("127.0.0.1", port).get("/v1/routes", 30.0)


async def test_a_404_of_something_in_between_is_no_verdict_of_tidemill():
    """An ingress says it for as long as its service is away: whoever gave up then would have to be started again."""
    with pytest.raises(BrokerUnreachable, match=r"answered 404.*is this tidemill's HTTP port\?"):
        await asked(http(404, OTHERS))


@pytest.mark.parametrize("code", [b"not_found", b"unknown_group"])
async def test_a_404_of_tidemill_is_a_verdict(code):
    with pytest.raises(Refused, match="there is no such thing") as caught:
        await asked(http(404, OURS % code))
    assert caught.value.kind.name == "not_found"


async def test_a_consumer_lives_through_a_404_of_something_in_between(serve, until):
    async with serve() as place:
        away = []

        async def fetch():
            if away:
                raise routes._complaint(404, "GET /v1/routes", OTHERS.decode())
            return await place.routes()

        settings = ClientSettings(backoff_base_s=0.01, backoff_max_s=0.05)
        async with Client(fetch=fetch, settings=settings) as mq:
            away.append(True)
            async with mq.consume("a", group="g") as messages:
                following = asyncio.ensure_future(anext(messages))
                sending = asyncio.ensure_future(mq.send("a", b"0"))
                await until(lambda: mq._router._asked[1] is not None)
                away.clear()
                assert (await following).body == b"0"
                await sending


@pytest.mark.parametrize("answer", [b"\0\0\0\x1aTIDEMILL\1\0 and not a word of HTTP", b"220 mail ready\r\n"])
async def test_a_port_that_speaks_no_http_is_named_with_what_to_do(answer):
    with pytest.raises(BrokerUnreachable, match=r"speaks no HTTP: that is not the HTTP port, which is 7401"):
        await asked(answer)


@pytest.mark.parametrize("text", ["tidemill://127.0.0.1:7400", "amqp://queue:7401", "ftp://queue:7401/"])
def test_another_scheme_is_refused_at_once(text):
    with pytest.raises(ValueError, match="write HOST:PORT with the HTTP port"):
        parse_server(text)
    with pytest.raises(ValueError, match="write HOST:PORT with the HTTP port"):
        Client(text)


async def test_nobody_who_answers_is_named(monkeypatch):
    monkeypatch.setattr("tidemill.router.ROUTES_TIMEOUT_S", 0.05)
    held = asyncio.Event()

    async def serve(reader, writer):
        await held.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    mq = Client(f"127.0.0.1:{port}", settings=ClientSettings(routes_cache=False))
    try:
        with pytest.raises(
            BrokerUnreachable, match=rf"nobody says who serves: no answer from 127\.0\.0\.1:{port}"
        ):
            await mq._router.refresh()
    finally:
        held.set()
        await mq.close()
        server.close()
        await server.wait_closed()


async def test_what_http_costs_once_is_paid_before_the_time_for_an_answer_begins(monkeypatch):
    """On a busy machine the import took longer than the five seconds, and nobody had been asked."""
    order = []
    load = importlib.import_module
    monkeypatch.setattr(routes, "import_module", lambda name: (order.append(name), load(name))[1])
    timeout = asyncio.timeout
    monkeypatch.setattr(
        "tidemill.router.asyncio.timeout", lambda within: (order.append(within), timeout(within))[1]
    )
    async with answering(http(200, b'{"brokers": []}')) as port:
        mq = Client(f"127.0.0.1:{port}", settings=ClientSettings(routes_cache=False))
        await mq._router.refresh()
        await mq.close()
    assert order[:2] == ["aiohttp", routes.ROUTES_TIMEOUT_S]
    Servers([("127.0.0.1", 1)], lambda host, port: object()).prepare()
    assert order.count("aiohttp") == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"memory_bytes_max": 0}, {"memory_bytes_max": -1}, {"spool_bytes_max": -1}, {"spool_after_s": -1},
        {"backoff_base_s": 0}, {"backoff_base_s": -1}, {"backoff_max_s": 0}, {"close_timeout_s": -1},
        {"routes_poll_s": 0}, {"send_timeout_s": float("nan")}, {"backoff_max_s": float("nan")},
    ],
)  # fmt: skip
def test_a_setting_with_which_sends_would_wait_for_ever_is_refused(settings):
    with pytest.raises(ValueError, match="a setting is out of its range"):
        ClientSettings(**settings)
