"""The gateway behind a real HTTP port: back-pressure, and a page that describes what is served."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest

from samples.brokers import empty_disk
from tidemill_broker.doors import Service, gateway_page, recover
from tidemill_broker.doors.gateway import Gateway
from tidemill_broker.doors.neighbour import Later, Nobody, no_delay_service
from tidemill_broker.doors.permits import PERMITS
from tidemill_broker.settings import BrokerSettings
from tidemill_host.audit import Audit
from tidemill_host.clock import RealClock
from tidemill_host.doorman import Doorman
from tidemill_host.locks import LockSettings
from tidemill_host.persist import Lanes
from tidemill_host.web import Web
from tidemill_wire import limits
from tidemill_wire.access import Access, Charter, Identity, Operation, Permission, TokenRow, digest_of
from tidemill_wire.commands import Sent
from tidemill_wire.quotas import Meter, Rates

SEND = b"POST /v1/subjects/s/messages HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"


def asked(request: bytes) -> tuple[int, str, Any, Counter[str]]:
    """Status, head and value of the answer to some bytes, and what was counted as refused."""
    [answer], refused = asyncio.run(_asked([request]))
    return *answer, refused


@asynccontextmanager
async def served(
    refused: Counter[str], later: Later | None = None, doorman: Doorman | None = None
) -> AsyncGenerator[tuple[int, Gateway]]:
    """The port, and the gateway behind it."""
    disk, clock = empty_disk(), RealClock()
    broker, _ = recover(disk.mount(), BrokerSettings(durability="low"), clock.now_ms())
    lanes = Lanes(*(ThreadPoolExecutor(1) for _ in range(3)))
    service = Service(broker, disk.mount(), lanes, clock)
    service.turn.start()
    gateway = Gateway(service, later)
    gateway.start()
    web = Web({}, lambda: b"", refused, gateway.routes(), doorman)
    port = await web.listen("127.0.0.1", 0)
    try:
        async with asyncio.timeout(60):
            yield port, gateway
    finally:
        gateway.close()
        await web.close()
        service.close("the end")
        for lane in (lanes.write, lanes.sync, lanes.read):
            lane.shutdown()


async def _asked(
    requests: Sequence[bytes], later: Later | None = None
) -> tuple[list[tuple[int, str, Any]], Counter[str]]:
    refused = Counter[str]()
    async with served(refused, later) as (port, _):
        return [await answered(port, request) for request in requests], refused


async def answered(port: int, request: bytes) -> tuple[int, str, Any]:
    """Status, head and value."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), head.decode(), json.loads(body)


def posted(body: bytes) -> bytes:
    return SEND + b"Content-Length: %d\r\n\r\n" % len(body) + body


def test_message_is_stored_and_answered_with_its_sequence() -> None:
    status, _, value, refused = asked(posted(b'{"text": "a"}'))

    assert (status, [row["sequence"] for row in value["messages"]]) == (200, [0])
    assert not refused


def test_messages_with_a_known_dedup_key_are_answered_with_where_the_first_one_is() -> None:
    rows = [{"text": "a", "dedup_key": "k"}, {"text": "b"}, {"text": "c", "dedup_key": "k"}, {"text": "d"}]
    status, _, value, refused = asked(posted(json.dumps({"messages": rows}).encode()))

    first, plain, again, last = value["messages"]
    assert (status, [row["sequence"] for row in value["messages"]]) == (200, [0, 1, 0, 2])
    assert again == {"id": first["id"], "sequence": 0, "duplicate": True}
    assert not refused
    assert "duplicate" not in first | plain | last
    assert len({first["id"], plain["id"], last["id"]}) == 3


class LosingLater(Nobody):
    """Stores, and its first answer gets lost."""

    asked = 0

    async def take(self, batch: bytearray) -> Sent:
        self.asked += 1
        if self.asked == 1:
            raise no_delay_service()
        return Sent([0])


def test_a_request_for_later_that_comes_again_with_its_key_is_paid_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would be told to wait for the quota that it has used up itself."""
    shop = Identity("token:shop", everything=True)
    shop.payer = Meter("token:shop", Rates(messages=0.001), 0)
    monkeypatch.setattr("tidemill_broker.doors.gateway.asker", lambda: shop)
    body = b'{"text": "a", "delay": 60}'
    again, other = (
        SEND + b"Idempotency-Key: %s\r\nContent-Length: %d\r\n\r\n" % (key, len(body)) + body
        for key in (b"one", b"two")
    )
    answers, _ = asyncio.run(_asked([again, again, again, other], LosingLater()))
    assert [status for status, _, _ in answers] == [503, 200, 200, 429]


def test_chunks_without_a_length_are_one_body() -> None:
    body = b'6\r\n{"text\r\n7\r\n": "a"}\r\n0\r\n\r\n'
    status, _, value, _ = asked(SEND + b"Transfer-Encoding: chunked\r\n\r\n" + body)
    assert (status, len(value["messages"])) == (200, 1)


@pytest.mark.parametrize("limit", ["BACKLOG_BYTES_MAX", "HTTP_HELD_BYTES_MAX"])
def test_sender_is_told_to_wait_when_too_much_is_held(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """Of what waits for the disk, or of bodies: a bound below nothing stands for one that is reached."""
    monkeypatch.setattr(limits, limit, -1)
    status, head, value, refused = asked(posted(b'{"text": "a"}'))

    assert (status, value["error"]["code"], value["error"]["retryable"]) == (503, "overloaded", True)
    assert "Retry-After: 1" in head
    assert refused == {"overloaded": 1}


@pytest.mark.parametrize(
    "more, status, code",
    [
        (b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 415, "unsupported_encoding"),
        (b"Idempotency-Key: \xc3\xa9\r\nContent-Length: 2\r\n\r\n{}", 400, "malformed_request"),
        (b"Tidemill-Tags: a,,b\r\nContent-Length: 2\r\n\r\n{}", 400, "malformed_request"),
        (b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n\r\n", 400, "http_error"),
    ],
)
def test_head_that_is_not_right_is_refused_and_counted(more: bytes, status: int, code: str) -> None:
    got, _, value, refused = asked(SEND + more)

    assert (got, value["error"]["code"]) == (status, code)
    assert refused[code] == 1


def test_page_describes_the_routes_and_nothing_else() -> None:
    async def routes() -> set[tuple[str, str]]:
        disk, clock = empty_disk(), RealClock()
        broker, _ = recover(disk.mount(), BrokerSettings(), clock.now_ms())
        lanes = Lanes(*(ThreadPoolExecutor(1) for _ in range(3)))
        return {
            (one.method, one.path) for one in Gateway(Service(broker, disk.mount(), lanes, clock)).routes()
        }

    described = {("POST", path) for path, item in gateway_page.paths().items() if "post" in item}
    assert asyncio.run(routes()) == described


def said(method: str, path: str, token: str, body: bytes) -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def test_who_loses_its_token_while_it_waits_is_given_nothing_and_another_is() -> None:
    """A wait may be a minute; what it is let in with is asked for again when there is something to give."""
    access = Access(locked=True, own=lambda: {digest_of("cluster")})
    everything = Permission(frozenset(Operation), ("*",))
    row = TokenRow("1", "token:a", digest_of("guest"), 0)
    access.obey(Charter(1, {"token:a": (everything,)}, {row.digest: row}))
    refused = Counter[str]()
    doorman = Doorman(access, PERMITS, Audit(LockSettings(), "broker", lambda: 0), lambda: 0, refused)
    path = "/v1/subjects/s/groups/g/receive"

    async def main() -> tuple[tuple[int, str, Any], tuple[int, str, Any]]:
        async with served(refused, doorman=doorman) as (port, gateway):
            await answered(port, said("POST", "/v1/subjects/s/messages", "cluster", b'{"text": "before"}'))
            first = said("POST", path, "guest", b'{"wait_ms": 0, "start": "latest"}')
            assert (await answered(port, first))[0] == 200
            waiting = asyncio.ensure_future(
                answered(port, said("POST", path, "guest", b'{"wait_ms": 60000}'))
            )
            async with asyncio.timeout(30):
                held = gateway.consumers._consumers
                while not any(one.peer.waiting for one in held.values()):  # noqa: ASYNC110 - nobody is told of it
                    await asyncio.sleep(0)
            access.obey(Charter(2, {}, {}))
            await answered(port, said("POST", "/v1/subjects/s/messages", "cluster", b'{"text": "secret"}'))
            return await waiting, await answered(port, said("POST", path, "cluster", b'{"wait_ms": 60000}'))

    lost, found = asyncio.run(main())

    assert (lost[0], lost[2]["error"]["code"]) == (401, "unauthenticated")
    assert "secret" not in json.dumps(lost[2])
    assert [message["text"] for message in found[2]["messages"]] == ["secret"]
