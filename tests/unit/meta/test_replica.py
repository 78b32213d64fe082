"""A replica on the loop, whose store is slow, or away: who is told what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from samples.meta_memory import MemoryStore
from tidemill_host.clock import Clock
from tidemill_host.refusals import HttpRefused
from tidemill_meta.doors.api import Api
from tidemill_meta.doors.replica import Replica
from tidemill_meta.doors.requests import denials
from tidemill_meta.doors.watch import Watch
from tidemill_meta.errors import Denied
from tidemill_meta.settings import MetaSettings
from tidemill_meta.storing import Board, Bulletin, Changes, Decide

BROKER = {"group": "g1", "name": "g1-0", "boot": 1}
ADDRESSES = {"data": "h:1", "control": "h:2"}
TURNS = 50
"""Of the loop: long enough for everything that does not wait."""


class SetClock(Clock):
    """It says what it was told to say."""

    def __init__(self) -> None:
        self.ms = 1_780_000_000_000

    def now_ms(self) -> int:
        return self.ms


class SlowStore(MemoryStore):
    """Exchanges wait at the gate, turns at another one."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.held = asyncio.Event()
        self.turn = asyncio.Event()
        self.turn.set()
        self.asked_for = asyncio.Event()

    async def commit(self, after: int, decide: Decide) -> Changes:
        self.asked_for.set()
        await self.turn.wait()
        return await super().commit(after, decide)

    async def exchange(self, mine: Bulletin) -> Board:
        if not self.gate.is_set():
            self.held.set()
        await self.gate.wait()
        return await super().exchange(mine)


@asynccontextmanager
async def late_replica(store: SlowStore) -> AsyncIterator[tuple[Replica, Api]]:
    """A replica that a broker has registered with, and that has not exchanged for two seconds since."""
    clock = SetClock()
    replica = Replica(MetaSettings(name="r", exchange_ms=1), store, clock)
    await replica.open()
    api = Api(replica, Watch(replica.meta, clock))
    work = asyncio.create_task(replica.run())
    await api.asked()["POST", "/v1/brokers"]({**BROKER, "addresses": ADDRESSES}, {})
    store.gate.clear()
    await store.held.wait()
    clock.ms += 2_000
    try:
        yield replica, api
    finally:
        work.cancel()


async def beat(api: Api) -> object:
    with denials():
        return await api.asked()["POST", "/v1/brokers/heartbeat"](BROKER, {})


async def test_heartbeat_waits_for_an_exchange_that_is_late() -> None:
    store = SlowStore()
    async with late_replica(store) as (_, api):
        asked = asyncio.create_task(beat(api))
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert not asked.done()

        store.gate.set()

        answer = await asked
        assert isinstance(answer, dict)
        assert answer["master"] == "g1-0"


async def test_heartbeat_waits_for_no_longer_than_its_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill_meta.doors.replica.CATCH_UP_SECONDS", 0.01)
    async with late_replica(SlowStore()) as (_, api):
        with pytest.raises(HttpRefused, match="does not know what the others do"):
            await beat(api)


async def test_heartbeat_does_not_wait_for_a_database_that_is_away() -> None:
    store = SlowStore()
    async with late_replica(store) as (replica, api):
        store.away = True
        store.gate.set()

        async with asyncio.timeout(0.4):
            with pytest.raises(HttpRefused, match="does not know what the others do"):
                await beat(api)
        assert replica.meta.senses.brokers.present("g1/g1-0#1", 0, replica.clock.now_ms())


async def test_what_is_asked_while_a_replica_waits_for_its_turn_is_done_in_that_one() -> None:
    store = SlowStore()
    store.turn.clear()
    clock = SetClock()
    replica = Replica(MetaSettings(name="r"), store, clock)
    api = Api(replica, Watch(replica.meta, clock))
    await replica.open()
    work = asyncio.create_task(replica.run())

    def register(name: str) -> asyncio.Task[object]:
        body = {**BROKER, "group": name, "name": f"{name}-0", "addresses": ADDRESSES}
        return asyncio.ensure_future(api.asked()["POST", "/v1/brokers"](body, {}))  # type: ignore[arg-type]

    first = register("g1")
    await store.asked_for.wait()
    second = register("g2")
    await asyncio.sleep(0)

    store.turn.set()
    await asyncio.gather(first, second)

    assert (replica.commits, store.revision) == (1, 1)
    work.cancel()


async def test_changes_that_wait_for_a_turn_are_refused_when_the_database_goes_away() -> None:
    store = SlowStore()
    store.turn.clear()
    clock = SetClock()
    replica = Replica(MetaSettings(name="r"), store, clock)
    await replica.open()
    work = asyncio.create_task(replica.run())
    waiting = asyncio.ensure_future(replica.change(lambda draft, now_ms: None))
    await store.asked_for.wait()

    store.away = True
    store.turn.set()

    with pytest.raises(Denied, match="the database is away"):
        await waiting
    work.cancel()
