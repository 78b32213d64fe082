"""The door for who archives, behind a real HTTP port: what a request may hold in memory, and what it is told."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest
from aiohttp import web

from samples.brokers import SUBJECT, TINY, Rig, copy_of
from tidemill_broker.doors import Service, recover
from tidemill_broker.doors.stretches import Stretches
from tidemill_broker.machine import Broker
from tidemill_broker.stretches import Part, parts
from tidemill_broker.woven import HEAD
from tidemill_host.clock import RealClock
from tidemill_host.persist import Lanes
from tidemill_host.web import Web
from tidemill_wire import limits

OTHER = "order.paid"
TIMEOUT_S = 30
PARTS = "tidemill_broker.doors.stretches.parts"


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.body)

    @property
    def next(self) -> list[int]:
        """Where each partition goes on."""
        ranges, _ = HEAD.unpack_from(self.body)
        return np.frombuffer(self.body, "<i8", ranges, HEAD.size).tolist()


class Door(NamedTuple):
    """A broker that serves ranges on a port."""

    broker: Broker
    port: int

    async def post(self, spans: list[dict[str, Any]]) -> Answer:
        body = json.dumps({"spans": spans}).encode()
        head = f"POST /v1/ranges/batches HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
            said = await reader.read()
            writer.close()
            await writer.wait_closed()
        head_said, _, body_said = said.partition(b"\r\n\r\n")
        return Answer(int(head_said.split()[1]), body_said)


@asynccontextmanager
async def opened(rig: Rig) -> AsyncIterator[Door]:
    """The same messages, in a process that serves them."""
    disk, clock = copy_of(rig.disk), RealClock()
    broker, _ = recover(disk.mount(), TINY, rig.now_ms)
    lanes = Lanes(*(ThreadPoolExecutor(1) for _ in range(3)))
    service = Service(broker, disk.mount(), lanes, clock)
    service.turn.start()
    door = Stretches(service, disk.mount(), lanes.read)
    served = Web({}, lambda: b"", Counter[str](), door.routes())
    try:
        yield Door(broker, await served.listen("127.0.0.1", 0))
    finally:
        await served.close()
        service.close("the end")
        for lane in (lanes.write, lanes.sync, lanes.read):
            lane.shutdown()


def filled() -> Rig:
    rig = Rig()
    for _ in range(20):
        rig.send(b"m", b"m")
        rig.send(b"x", subject=OTHER)
    return rig


def span(partition: str, first: int, until: int) -> dict[str, Any]:
    return {"partition": partition, "from": first, "until": until}


async def test_a_partition_that_is_named_often_is_not_copied_often(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    monkeypatch.setattr(limits, "RANGE_EXTENTS_MAX", 5)

    def noting(*given: Any) -> Iterator[Part]:
        for part in parts(*given):
            copied.append(0 if part.run is not None or part.rows is None else len(part.rows))
            yield part

    monkeypatch.setattr(PARTS, noting)
    rig = Rig()
    rig.fill(4)
    async with opened(rig) as door:
        answer = await door.post([span(SUBJECT, 0, 4)] * 100)

    assert answer.status == 200
    assert sum(copied) == 5
    assert answer.next == [4, 1] + [0] * 98


async def test_what_expires_while_a_request_is_looked_at_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(filled()) as door:
        other = door.broker.state.by_name[OTHER.encode()]
        assert other.first_kept == 0

        def expiring(*given: Any) -> Iterator[Part]:
            asyncio.get_running_loop().call_soon(other.runs.pop, 0)
            return parts(*given)

        monkeypatch.setattr(PARTS, expiring)
        answer = await door.post([span(SUBJECT, 0, 10), span(OTHER, 0, 10)])

    assert answer.status == 410
    assert answer.value["first"] == other.first_kept > 0


async def test_a_name_that_is_no_text_names_no_partition() -> None:
    async with opened(filled()) as door:
        answer = await door.post([span("\ud800", 0, 1)])

    assert (answer.status, answer.value["error"]["code"]) == (404, "not_found")


async def test_who_does_not_read_even_the_beginning_is_waited_for_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def stuck(_response: web.StreamResponse, _data: bytes) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(limits, "RANGE_PATIENCE_S", 0.01)
    async with opened(filled()) as door:
        monkeypatch.setattr(web.StreamResponse, "write", stuck)
        answer = await door.post([span(SUBJECT, 3, 3)])

    assert answer.body == b""
