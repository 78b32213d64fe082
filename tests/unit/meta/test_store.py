"""The store on SQLite and on a real PostgreSQL: the same promises on both, and in memory."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest
from sqlalchemy import event, text
from unit.meta.conftest import MakeStore

from samples.meta_memory import MemoryStore
from samples.postgres import Postgres
from samples.stores import entry, opened, write
from tidemill_meta.doors import store as store_module
from tidemill_meta.doors import tables
from tidemill_meta.doors.store import DatabaseUrlError, SqlStore
from tidemill_meta.doors.tables import NewerDatabase
from tidemill_meta.registry import Draft, Registry
from tidemill_meta.senses import Senses
from tidemill_meta.settings import MetaSettings
from tidemill_meta.storing import Bulletin, Changes, Entry, Store, StoreAway, StoreDamaged
from tidemill_meta.subjects import remove_subject, told_to
from tidemill_meta.values import Removal, Route, SubjectRecord
from tidemill_wire.routes import Partition, PartitionSet


async def test_what_is_committed_is_read_by_everybody(make_store: MakeStore) -> None:
    one, other = make_store(), make_store()
    async with opened(one, other):
        written = await write(one, 0, entry("a", size=1), entry("b", text="ä\x00'\""))
        assert written.revision == 1

        changes = await other.changes(0)

        assert changes.revision == 1
        assert {(found.name, found.version): found.body for found in changes.entries} == {
            ("a", 1): {"size": 1},
            ("b", 1): {"text": "ä\x00'\""},
        }


async def test_turn_is_told_what_was_written_meanwhile(make_store: MakeStore) -> None:
    one, other = make_store(), make_store()
    told: list[Changes] = []

    def decide(changes: Changes) -> list[Entry]:
        told.append(changes)
        return [entry("a", 2, by="other")]

    async with opened(one, other):
        await write(one, 0, entry("a", by="one"))

        written = await other.commit(0, decide)

        assert told == [Changes(1, (entry("a", by="one"),))]
        assert written == Changes(2, (entry("a", 2, by="other"),))
        assert (await one.changes(1)).entries == (entry("a", 2, by="other"),)


async def test_turn_that_writes_nothing_or_breaks_leaves_the_revision(make_store: MakeStore) -> None:
    store = make_store()

    def broken(_: Changes) -> list[Entry]:
        raise ZeroDivisionError

    async with opened(store):
        assert await store.commit(0, lambda _: []) == Changes(0, ())
        with pytest.raises(ZeroDivisionError):
            await store.commit(0, broken)
        assert (await write(store, 0, entry("a"))).revision == 1


async def test_only_what_changed_is_read_and_what_is_gone_says_so(make_store: MakeStore) -> None:
    store = make_store()
    async with opened(store):
        await write(store, 0, entry("a"), entry("b"))
        await write(store, 1, Entry("thing", "b", 2, None))
        await write(store, 2, entry("c"))

        assert (await store.changes(1)).entries == (Entry("thing", "b", 2, None), entry("c"))
        assert (await store.changes(3)).entries == ()
        assert (await store.changes(3)).revision == 3


async def test_a_removal_outlives_what_was_removed_and_knows_the_revision_of_its_commit(
    make_store: MakeStore,
) -> None:
    """A replica that opens the database later tells brokers of it, and counts on that revision."""
    one, later = make_store(), make_store()
    subject, route = (
        SubjectRecord("s", None),
        Route("s", (PartitionSet(1, (Partition("g1", "s", ((0, 1024),)),)),)),
    )
    registry = Registry()

    def remove(changes: Changes) -> list[Entry]:
        registry.apply(changes)
        draft = Draft(registry)
        senses = Senses(MetaSettings(), 0, alone=True)
        remove_subject(draft, senses, "s", 1_780_000_000_000, force=True)
        return list(draft.entries())

    async with opened(one, later):
        made = Draft(Registry())
        made.put(subject)
        made.put(route)
        await one.commit(0, lambda _: list(made.entries()))
        await one.commit(0, remove)
        found = Registry()
        found.apply(await later.changes(0))

        assert found.get(SubjectRecord, "s") is None
        removal = found.get(Removal, "s")
        assert removal is not None
        assert (removal.number, removal.groups, removal.revision) == (
            1_780_000_000_000,
            ("g1",),
            found.revision,
        )
        assert told_to(found, "g1", 1)["removed"] == [["s", 1_780_000_000_000]]


async def test_of_many_writers_at_once_each_has_its_turn(make_store: MakeStore) -> None:
    """The race: writers that count on what the one before wrote. No count is lost, and no revision used twice."""
    stores = [make_store() for _ in range(4)]
    revisions: list[int] = []

    def raised(changes: Changes) -> list[Entry]:
        before = changes.entries[0] if changes.entries else entry("counter", 0, count=0)
        assert before.body is not None
        return [entry("counter", before.version + 1, count=before.body["count"] + 1)]

    async def count_up(store: Store) -> None:
        for _ in range(10):
            written = await store.commit(0, raised)
            revisions.append(written.revision)

    async with opened(*stores):
        async with asyncio.TaskGroup() as tasks:
            for store in stores:
                tasks.create_task(count_up(store))

        last = await stores[0].changes(0)

    assert sorted(revisions) == list(range(1, 41))
    assert last.entries == (entry("counter", 40, count=40),)


async def test_bulletins_are_put_over_the_one_before(make_store: MakeStore) -> None:
    one, other = make_store(), make_store()
    async with opened(one, other):
        await one.exchange(Bulletin("one", 1, b"\x00first"))
        await other.exchange(Bulletin("other", 1, b""))
        board = await one.exchange(Bulletin("one", 2, b"\xffsecond"))

        assert board.revision == 0
        assert set(board.bulletins) == {Bulletin("one", 2, b"\xffsecond"), Bulletin("other", 1, b"")}


async def test_stores_opened_at_once_make_the_tables_once(make_store: MakeStore) -> None:
    stores = [make_store() for _ in range(3)]
    async with AsyncExitStack() as stack:
        for store in stores:
            stack.push_async_callback(store.close)
        await asyncio.gather(*(store.open() for store in stores))

        assert [(await store.changes(0)).revision for store in stores] == [0, 0, 0]


async def test_a_database_of_an_earlier_version_keeps_what_it_has(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_store()
    with monkeypatch.context() as earlier:
        earlier.setattr(tables, "STEPS", tables.STEPS[:1])
        async with first._engine.begin() as connection:  # as that version wrote
            await connection.run_sync(tables.migrate)
            row = {"kind": "thing", "name": "a", "version": 1, "revision": 1, "body": '{"kept":true}'}
            await connection.execute(tables.ENTRIES.insert().values(row))
            await connection.execute(tables.HEAD.update().values(revision=1))
        await first.close()

    later = make_store()
    async with opened(later):
        assert (await later.changes(0)).entries == (entry("a", kept=True),)
        assert (await later.exchange(Bulletin("r", 1, b"x"))).revision >= 1


async def test_a_database_of_a_later_version_is_refused(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(make_store()):
        pass
    monkeypatch.setattr(tables, "STEPS", tables.STEPS[:1])
    older = make_store()
    try:
        with pytest.raises(NewerDatabase, match="is of version 5, this program knows 1"):
            await older.open()
    finally:
        await older.close()


@pytest.mark.parametrize("seed", range(3))
async def test_databases_and_memory_agree(make_store: MakeStore, seed: int) -> None:
    chance = random.Random(seed)
    real, memory = make_store(), MemoryStore()
    versions: dict[str, int] = {}
    async with opened(real, memory):
        for number in range(40):
            names = chance.sample("abcdef", chance.randint(1, 3))
            seen = chance.randint(0, memory.revision)
            entries = [
                Entry(
                    "thing", name, versions.get(name, 0) + 1, {"n": number} if chance.random() < 0.8 else None
                )
                for name in names
            ]
            assert await write(real, seen, *entries) == await write(memory, seen, *entries)
            versions |= {one.name: one.version for one in entries}
            if chance.random() < 0.2:
                until = chance.randint(0, memory.revision)
                assert await real.forget(until, {}) == await memory.forget(until, {})
            after = chance.randint(0, memory.revision)
            one, other = await real.changes(after), await memory.changes(after)
            assert one.revision == max(after, other.revision)
            assert (one.whole, one.floor) == (other.whole, other.floor)
            assert sorted(one.entries, key=repr) == sorted(other.entries, key=repr)


async def test_database_that_stops_is_away_and_comes_back(server: Postgres) -> None:
    store = SqlStore(server.url("meta_restarted"))
    async with opened(store):
        await write(store, 0, entry("a"))
        server.stop()
        try:
            with pytest.raises(StoreAway):
                await write(store, 1, entry("b"))
            with pytest.raises(StoreAway):
                await store.exchange(Bulletin("r", 1, b""))
        finally:
            server.start()

        assert [found.name for found in (await store.changes(0)).entries] == ["a"]
        written = await write(store, 1, entry("b"))
        assert written.revision > 2, "another life has revisions of its own"
        assert written.gaps == ((1, written.revision - 1),)


async def test_commit_cut_off_in_its_middle_leaves_nothing(server: Postgres) -> None:
    """The connection dies between the first statement of a commit and its end."""
    store = SqlStore(server.url("meta_cut"))
    async with opened(store):
        async with store._engine.connect() as connection:
            await connection.execute(text("UPDATE meta_head SET revision = 1"))
            await connection.execute(
                text(
                    "INSERT INTO meta_entries (kind, name, version, revision, body) VALUES ('thing', 'a', 1, 1, '{}')"
                )
            )
            raw = await connection.get_raw_connection()
            assert raw.driver_connection is not None
            raw.driver_connection.terminate()
            await connection.invalidate()

        assert (await store.changes(0)).entries == ()
        assert (await write(store, 0, entry("a"))).revision == 1


async def test_replica_that_stands_still_in_its_turn_loses_it(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "TURN_MS_MAX", 200)
    url = server.url("meta_stopped")
    one, other = SqlStore(url), SqlStore(url)
    async with opened(one, other):
        async with one._engine.connect() as stopped:
            await stopped.execute(text("SELECT revision FROM meta_head FOR UPDATE"))

            assert (await write(other, 0, entry("a"))).revision == 1
            await stopped.invalidate()


@pytest.mark.parametrize(
    "url, sentence",
    [
        ("nonsense", "is no database"),
        ("mysql://a@b/c", "meta knows no mysql"),
        ("postgresql//x", "is no database"),
    ],
)
def test_address_of_another_database_is_refused_with_a_sentence(url: str, sentence: str) -> None:
    with pytest.raises(DatabaseUrlError, match=sentence):
        SqlStore(url)


async def test_new_file_in_which_another_process_makes_its_tables_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite refuses to change the journal's mode at once then, and not after the timeout."""
    store = SqlStore(f"sqlite:///{tmp_path}/meta.db")
    with closing(sqlite3.connect(tmp_path / "meta.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE made_by_another (x)")

        async def look_again_when_it_is_done() -> None:
            other.execute("COMMIT")

        monkeypatch.setattr(store_module, "_pause", look_again_when_it_is_done)
        async with opened(store):
            assert (await write(store, 0, entry("a"))).revision == 1
            with closing(sqlite3.connect(tmp_path / "meta.db")) as third:
                assert third.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_file_that_nobody_lets_go_of_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "TIMEOUT_SECONDS", 0.05)
    store = SqlStore(f"sqlite:///{tmp_path}/meta.db")
    with closing(sqlite3.connect(tmp_path / "meta.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE made_by_another (x)")
        try:
            with pytest.raises(StoreAway, match="locked"):
                await store.open()
        finally:
            await store.close()


def noted(store: SqlStore) -> list[str]:
    """How each statement begins that is said from now on."""
    said: list[str] = []

    @event.listens_for(store._engine.sync_engine, "before_cursor_execute")
    def note(_: object, __: object, statement: str, *___: object) -> None:
        said.append(statement.split(maxsplit=1)[0])

    return said


async def test_exchange_is_two_statements(server: Postgres) -> None:
    """Four times a second, by each replica; and who is late with it may answer no heartbeat."""
    store = SqlStore(server.url("meta_statements"))
    async with opened(store):
        said = noted(store)
        await store.exchange(Bulletin("r", 1, b"x"))

    assert said == ["INSERT", "SELECT"]


async def test_turn_is_two_statements_however_much_is_read_and_written(server: Postgres) -> None:
    """For each of them all other replicas wait."""
    url = server.url("meta_turns")
    store, other = SqlStore(url), SqlStore(url)
    async with opened(store, other):
        await write(other, 0, *(entry(f"other{number}") for number in range(50)))
        said = noted(store)
        written = await write(store, 0, *(entry(f"mine{number}") for number in range(50)))
        assert (written.revision, len((await other.changes(0)).entries)) == (2, 100)

    assert said == ["SELECT", "WITH"]


@pytest.mark.parametrize("content", [bytes(range(256)) * 64, b"SQLite format 3\0" + b"\xa5" * 16_000])
async def test_file_that_is_no_database_is_damaged_and_no_defect(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "meta.db").write_bytes(content)
    store = SqlStore(f"sqlite:///{tmp_path}/meta.db")
    try:
        with pytest.raises(StoreDamaged):
            await store.open()
    finally:
        await store.close()


async def test_entry_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/meta.db")
    async with opened(store):
        await write(store, 0, entry("a"))
        with closing(sqlite3.connect(tmp_path / "meta.db")) as other:
            other.execute("UPDATE meta_entries SET body = '{'")
            other.commit()

        with pytest.raises(StoreDamaged):
            await store.changes(0)
