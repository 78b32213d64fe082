"""Bytes that the disk refuses to who only asks, over HTTP: an answer that names them, once, and all else is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from samples.brokers import SUBJECT, TINY, Rig
from tidemill_broker.doors.queries import Queries
from tidemill_broker.doors.segments import SegmentRanges
from tidemill_broker.doors.service import Service
from tidemill_broker.queries import Query, Span
from tidemill_host.refusals import HttpRefused
from tidemill_wire.replication import Ends

FILE = f"message/{0:020}.log"
T = TypeVar("T")


@pytest.fixture
def rig() -> Rig:
    """Two sealed segments and an open one, of which a place in the first one is bad."""
    rig = Rig(TINY)
    rig.fill(15)
    rig.disk.refuse(FILE, 300)
    return rig


def asked(rig: Rig, question: Callable[[Any, ThreadPoolExecutor], Awaitable[T]]) -> T:
    async def ask() -> T:
        with ThreadPoolExecutor(1) as lane:
            return await question(rig.disk.mount(), lane)

    return asyncio.run(ask())


def browse(rig: Rig, first: int) -> list[int]:
    def job(query: Query) -> list[int]:
        return [message.sequence for message in query.browse(Span(first=first), False).messages]

    partition = rig.broker.state.by_name[SUBJECT.encode()]
    return asked(rig, lambda disk, lane: Queries(rig.broker, disk, lane).ask(job, 100, partition))


def segment(rig: Rig, base: int, start: int) -> bytes | bytearray:
    """As a broker of a broker group answers, where all is committed."""
    logs = rig.broker.logs
    machine = SimpleNamespace(committed=Ends(logs.messages.end, logs.actions.end))
    service = cast("Service", SimpleNamespace(machine=machine, broker=rig.broker))

    async def ask(disk: Any, lane: ThreadPoolExecutor) -> bytes | bytearray:
        answer = SegmentRanges(service, disk, lane).routes()[1].answer
        request: Any = SimpleNamespace(query={"from": str(start)})
        body = (await answer(request, {"log": "message", "base": str(base)})).body
        assert isinstance(body, bytes | bytearray)
        return body

    return asked(rig, ask)


def test_who_browses_over_a_bad_place_is_told_which_and_sees_what_is_behind_it(rig: Rig) -> None:
    with pytest.raises(HttpRefused) as caught:
        browse(rig, 0)

    assert caught.value.code == "read_failed"
    assert f"of {FILE} cannot be read (Input/output error)" in str(caught.value)
    assert browse(rig, 6) == list(range(6, 15))


def test_disk_that_answers_when_it_is_asked_again_is_believed(rig: Rig) -> None:
    rig.disk.refused.clear()
    rig.disk.fail_at["read"] = 0

    assert browse(rig, 0) == list(range(15))


def test_archive_that_asks_for_a_bad_place_is_told_which_and_gets_the_others(rig: Rig) -> None:
    bases = rig.broker.logs.messages.bases
    with pytest.raises(HttpRefused) as caught:
        segment(rig, 0, 0)

    assert caught.value.code == "read_failed"
    assert f"of {FILE} cannot be read (Input/output error)" in str(caught.value)
    size = rig.broker.logs.messages.end_of(bases[1]) - bases[1]
    assert len(segment(rig, bases[1], bases[1])) == size
