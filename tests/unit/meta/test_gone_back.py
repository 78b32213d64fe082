"""A store that goes back, on SQLite and on a real PostgreSQL: an older copy is put in its place, and whoever knows more
is not taken in by it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from unit.meta.conftest import MakeStore

from samples.postgres import Postgres
from samples.stores import entry, opened, write
from tidemill_host.clock import RealClock
from tidemill_host.refusals import HttpRefused
from tidemill_meta.allocation import granted
from tidemill_meta.anew import begun_anew
from tidemill_meta.doors.api import Api
from tidemill_meta.doors.replica import Replica
from tidemill_meta.doors.store import SqlStore
from tidemill_meta.doors.watch import Watch
from tidemill_meta.errors import Denied
from tidemill_meta.registry import Draft, Registry
from tidemill_meta.settings import MetaSettings
from tidemill_meta.storing import STEP, Anew, Changes, Entry, is_lost
from tidemill_meta.values import Allocation, BrokerGroup, Former, SubjectRecord

DEADLINE_S = 60.0
SETTINGS = MetaSettings(exchange_ms=50, authorisation_ms=3_000)
ADDRESSES = {"data": "h:7400", "control": "h:7401"}


@dataclass(slots=True)
class Copy:
    """What a database held; put back while nobody has it open on SQLite, or beneath whoever has on PostgreSQL."""

    database: str
    rows: dict[str, list[Any]] = field(default_factory=dict)

    async def take(self) -> None:
        if self.database.startswith("sqlite"):
            with sqlite3.connect(self._file) as one, sqlite3.connect(f"{self._file}.copy") as other:
                one.backup(other)
            one.close()
            other.close()
            return
        connection = await asyncpg.connect(self.database)
        names = await connection.fetch("SELECT tablename FROM pg_tables WHERE tablename LIKE 'meta_%'")
        for (name,) in names:
            self.rows[name] = await connection.fetch(f'SELECT * FROM "{name}"')
        await connection.close()

    async def put_back(self) -> None:
        if self.database.startswith("sqlite"):
            Path(f"{self._file}-wal").unlink(missing_ok=True)
            Path(f"{self._file}.copy").rename(self._file)
            return
        connection = await asyncpg.connect(self.database)
        async with connection.transaction():
            for name, rows in self.rows.items():
                await connection.execute(f'TRUNCATE "{name}"')
                await connection.copy_records_to_table(name, records=rows)
        await connection.close()

    @property
    def _file(self) -> str:
        return self.database.removeprefix("sqlite:///")


@pytest.fixture
def copy(database: str) -> Copy:
    return Copy(database)


# -- the store ------------------------------------------------------------------------------------------------


async def test_what_an_older_copy_lacks_is_lost_however_much_is_written_since(
    make_store: MakeStore, copy: Copy
) -> None:
    """Also when more is written than was lost, before anybody looks who knows better."""
    store = make_store()
    async with opened(store):
        await write(store, 0, entry("a"))
        await copy.take()
        lost = await write(store, 1, entry("b"))
    assert lost.revision == 2
    await copy.put_back()

    restored = make_store()
    async with opened(restored):
        for number in range(5):
            await write(restored, 0, entry(f"c{number}"))

        changes = await restored.changes(lost.revision)

        assert is_lost(lost.revision, changes.revision, changes.gaps)
        assert changes.whole, "and who knows what is lost is told all"
        assert {one.name for one in changes.entries} == {"a", *(f"c{number}" for number in range(5))}
        assert not is_lost(1, changes.revision, changes.gaps), "what it has not lost is known"


async def test_same_copy_put_back_twice_tells_its_two_lives_apart(make_store: MakeStore, copy: Copy) -> None:
    heads: list[Changes] = []
    for number in range(3):
        store = make_store()
        async with opened(store):
            await write(store, 0, entry(f"of life {number}"))
            if not number:
                await copy.take()
                await write(store, 1, entry("lost"))
            heads.append(await store.changes(0))
            if number == 1:
                await copy.take()
        if number < 2:
            await asyncio.to_thread(_until_later)
            await copy.put_back()

    first, second, third = heads
    assert is_lost(first.revision, third.revision, third.gaps)
    assert not is_lost(second.revision, third.revision, third.gaps), "the second copy has it"


def _until_later() -> None:
    """The clock that tells lives apart has gone on by a millisecond."""
    now_ms = RealClock().now_ms()
    while RealClock().now_ms() <= now_ms:
        pass


async def test_what_begins_anew_is_told_to_everybody(make_store: MakeStore) -> None:
    store, other = make_store(), make_store()
    async with opened(store, other):
        await write(store, 0, entry("a"))
        known = await write(store, 1, entry("b"), Entry("thing", "gone", 1, None))

        def anew(changes: Changes) -> Anew:
            assert {one.name for one in changes.entries} == {"a", "b", "gone"}
            return Anew(5_000, (entry("b", 5_000, other=True),))

        assert await store.commit(0, anew) == Changes(0, ())

        told = await other.changes(known.revision)
        assert (told.revision, told.began, told.whole, told.floor) == (5_000, 5_000, True, 5_000)
        assert {(one.name, one.version) for one in told.entries} == {
            ("a", 5_000),
            ("b", 5_000),
            ("gone", 5_000),
        }
        assert [one.body for one in told.entries if one.name == "b"] == [{"other": True}]
        assert not is_lost(4_000, told.revision, told.gaps), "whoever knew anything else is told all the same"
        assert (await write(store, 5_000, entry("c"))).revision == 5_001


# -- the rule -------------------------------------------------------------------------------------------------


def test_beginning_anew_is_above_all_that_is_known_and_above_the_clock() -> None:
    registry = Registry()
    group = BrokerGroup("g1", 3, "g1-0", (("g1-0", 1),), (("g1-0", 1),))
    subject = Entry(SubjectRecord.KIND, "s", 3, {"declared": None, "state": "RW"})
    registry.apply(Changes(7, (subject, Entry(BrokerGroup.KIND, "g1", 3, group.to_map()))))

    assert begun_anew(registry, 9, 0).revision == 9 + STEP
    made = begun_anew(registry, 9, 1_780_000_000_000)
    assert made.revision == 1_780_000_000_000
    [unsure] = made.entries
    assert (unsure.name, unsure.version) == ("g1", made.revision)
    assert unsure.body is not None
    assert not BrokerGroup.from_map("g1", 1, unsure.body).seated


def test_partitions_of_a_group_in_order_are_granted_to_nobody_when_all_begins_anew() -> None:
    registry, draft = Registry(), Draft(Registry())
    draft.put(Allocation("s", "g", (("g1/s", "p c"),), (Former("g1/s", "q d", 2),)))
    registry.apply(Changes(1, draft.entries()))

    [kept] = begun_anew(registry, 1, 0).entries

    assert kept.body is not None
    doubted = Allocation.from_map(kept.name, kept.version, kept.body)
    assert granted(doubted, "p c") == ()
    assert dict(doubted.owners) == {"g1/s": "p c"}


# -- replicas -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Served:
    """A replica at work, and its paths."""

    replica: Replica
    api: Api
    pulsed: asyncio.Event

    async def ask(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        return await self.api.asked()[method, path](body, {})

    def group(self) -> BrokerGroup:
        found = self.replica.meta.registry.get(BrokerGroup, "g1")
        assert found is not None
        return found


@asynccontextmanager
async def serving(*stores: Any) -> AsyncIterator[list[Served]]:
    served: list[Served] = []
    works: list[asyncio.Task[None]] = []
    for number, store in enumerate(stores):
        settings = MetaSettings(
            name=f"r{number}", exchange_ms=SETTINGS.exchange_ms, authorisation_ms=SETTINGS.authorisation_ms
        )
        replica = Replica(settings, store, RealClock())
        await replica.open()
        pulsed = asyncio.Event()
        replica.changed = partial(_note, pulsed)
        served.append(Served(replica, Api(replica, Watch(replica.meta, replica.clock)), pulsed))
        works.append(asyncio.create_task(replica.run()))
    try:
        yield served
    finally:
        for work in works:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
        for store in stores:
            await store.close()


def _note(pulsed: asyncio.Event, _: object) -> None:
    pulsed.set()


async def until(served: Served, is_so: Callable[[], bool], meanwhile: Callable[[], Any]) -> None:
    """Pulse after pulse of a replica. What it refuses meanwhile is asked again."""
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():
            with suppress(HttpRefused, Denied):
                await meanwhile()
            served.pulsed.clear()
            await served.pulsed.wait()


def beat_of(served: Served, known: int, epoch: int = 1, **said: Any) -> Callable[[], Any]:
    """A broker's heartbeats at that replica."""
    body = {
        "group": "g1", "name": "g1-0", "boot": 1, "epoch": epoch, "role": "master", "in_sync": ["g1-0"],
        "known": known, **said,
    }  # fmt: skip
    return lambda: served.ask("POST", "/v1/brokers/heartbeat", body)


def manifest(name: str) -> dict[str, Any]:
    return {"apiVersion": "tidemill.dev/v1alpha1", "kind": "Subject", "metadata": {"name": name}, "spec": {}}


async def founded(served: Served) -> None:
    await served.ask(
        "POST", "/v1/brokers", {"group": "g1", "name": "g1-0", "boot": 1, "addresses": ADDRESSES}
    )
    await until(served, lambda: served.replica.meta.senses.state(served.group(), served.replica.clock.now_ms()) == "RW",
                     beat_of(served, 0))  # fmt: skip
    await served.ask("POST", "/v1/declarations", manifest("kept"))


async def test_replicas_that_run_forget_what_is_lost_and_begin_anew(server: Postgres) -> None:
    """On PostgreSQL, for nobody puts a SQLite file back while it is open."""
    url = server.url(f"meta_{uuid.uuid4().hex}")
    copy = Copy(url)
    async with serving(SqlStore(url), SqlStore(url)) as served:
        one, other = served
        await founded(one)
        await copy.take()
        await one.ask("POST", "/v1/declarations", manifest("lost"))
        known = one.replica.meta.registry.revision
        await until(one, lambda: other.replica.meta.registry.revision == known, beat_of(one, 0))

        await copy.put_back()

        def registries() -> list[Registry]:
            return [each.replica.meta.registry for each in served]

        await until(one, lambda: all(each.began > known for each in registries()), beat_of(one, known))

        for registry in registries():
            assert registry.get(SubjectRecord, "lost") is None
            assert registry.get(SubjectRecord, "kept") is not None
        await until(one, lambda: not other.group().unsure, beat_of(one, known))
        assert (other.group().epoch, other.group().master, other.group().seated) == (1, "g1-0", True)
        assert other.group().version > known, "the broker takes it for later than all that it was told"
        began = registries()[0].began
        await until(one, lambda: registries()[0].revision == registries()[1].revision, beat_of(one, known))
        assert {registry.began for registry in registries()} == {began}, "who knows what is lost says it once"


async def test_fresh_replica_on_an_older_copy_learns_from_a_broker_that_it_is_one(
    make_store: MakeStore, copy: Copy
) -> None:
    async with serving(make_store()) as [one]:
        await founded(one)
        await copy.take()
        await one.ask("POST", "/v1/declarations", manifest("lost"))
        known = one.replica.meta.registry.revision
    await copy.put_back()

    async with serving(make_store()) as [restored]:
        for number in range(4):  # more than was lost
            await restored.ask("POST", "/v1/declarations", manifest(f"new{number}"))
        assert restored.replica.meta.registry.revision > known

        answer: dict[str, Any] = {}

        async def beat() -> None:
            answer.update(await beat_of(restored, known, epoch=4)())

        await until(restored, lambda: restored.replica.meta.registry.began > known, beat)
        assert not answer.get("master"), "it is not known who leads"
        await until(restored, lambda: not restored.group().unsure, beat)

        group = restored.group()
        assert (group.master, group.epoch) == ("g1-0", 1_004), (
            "an epoch that was never given, to who led last"
        )
        await until(restored, lambda: answer["master"] == "g1-0", beat)
        assert answer["declared"] >= restored.replica.meta.registry.began, (
            "all that it was told it asks for again"
        )


async def test_client_that_knows_what_is_lost_is_told_its_routes_and_consumes_when_promises_are_over(
    make_store: MakeStore, copy: Copy
) -> None:
    consumes = [
        {"subject": "kept", "group": "billing", "consumer": "c", "consumption": "ordered", "allocation": 0}
    ]
    async with serving(make_store()) as [one]:
        await founded(one)
        await copy.take()
        await one.ask("POST", "/v1/declarations", manifest("lost"))
        known = one.replica.meta.registry.revision
    await copy.put_back()

    async with serving(make_store()) as [restored]:
        said: dict[str, Any] = {}

        async def speak() -> None:
            await beat_of(restored, known)()
            body = {"client": "p", "known": known, "consumes": consumes}
            said.update(await restored.ask("POST", "/v1/clients/heartbeat", body))

        await until(restored, lambda: bool(said) and restored.replica.meta.registry.began > 0, speak)
        assert [row["subject"] for row in said["routes"]] == ["kept"]
        began_ms = restored.replica.clock.now_ms()
        seen: list[int] = []

        async def watch() -> None:
            await speak()
            [row] = said["consumes"]
            if row["partitions"]:
                seen.append(restored.replica.clock.now_ms())

        await until(restored, lambda: bool(seen), watch)
        assert seen[0] - began_ms > SETTINGS.authorisation_ms - 1_000, (
            "somebody may have been authorised before"
        )
