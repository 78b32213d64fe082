"""The store on SQLite and on a real PostgreSQL: the same promises on both, and in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from sqlalchemy import text
from unit.meta.conftest import MakeStore

from samples.postgres import Postgres
from tidemill_meta.doors import tables
from tidemill_meta.doors.store import DatabaseUrlError, SqlStore
from tidemill_meta.doors.tables import NewerDatabase
from tidemill_meta.memory import MemoryStore
from tidemill_meta.storing import Bulletin, Entry, Store, StoreAway


@asynccontextmanager
async def opened(*stores: Store) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for store in stores:
            stack.push_async_callback(store.close)
            await store.open()
        yield


def entry(name: str, version: int = 1, **body: object) -> Entry:
    return Entry("thing", name, version, body)


async def test_what_is_committed_is_read_by_everybody(make_store: MakeStore) -> None:
    one, other = make_store(), make_store()
    async with opened(one, other):
        assert await one.commit(0, [entry("a", size=1), entry("b", text="ä\x00'\"")])

        changes = await other.changes(0)

        assert changes.revision == 1
        assert {(found.name, found.version): found.body for found in changes.entries} == {
            ("a", 1): {"size": 1},
            ("b", 1): {"text": "ä\x00'\""},
        }


async def test_commit_on_an_old_revision_writes_nothing(make_store: MakeStore) -> None:
    one, other = make_store(), make_store()
    async with opened(one, other):
        assert await one.commit(0, [entry("a", by="one")])

        assert not await other.commit(0, [entry("a", by="other"), entry("b", by="other")])

        changes = await other.changes(0)
        assert [(found.name, found.body) for found in changes.entries] == [("a", {"by": "one"})]


async def test_only_what_changed_is_read_and_what_is_gone_says_so(make_store: MakeStore) -> None:
    store = make_store()
    async with opened(store):
        await store.commit(0, [entry("a"), entry("b")])
        await store.commit(1, [Entry("thing", "b", 2, None)])
        await store.commit(2, [entry("c")])

        assert (await store.changes(1)).entries == (Entry("thing", "b", 2, None), entry("c"))
        assert (await store.changes(3)).entries == ()
        assert (await store.changes(3)).revision == 3


async def test_of_many_writers_at_once_each_revision_has_one(make_store: MakeStore) -> None:
    """The race: writers that all saw the same revision; one wins, the others see what it wrote and try again."""
    stores = [make_store() for _ in range(4)]
    won: list[int] = []

    async def count_up(store: Store, times: int) -> None:
        while times:
            now = await store.changes(0)
            before = now.entries[0] if now.entries else entry("counter", 0, count=0)
            assert before.body is not None
            raised = entry("counter", before.version + 1, count=before.body["count"] + 1)
            if await store.commit(now.revision, [raised]):
                won.append(now.revision + 1)
                times -= 1

    async with opened(*stores):
        async with asyncio.TaskGroup() as tasks:
            for store in stores:
                tasks.create_task(count_up(store, 10))

        last = await stores[0].changes(0)

    assert sorted(won) == list(range(1, 41))
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
        async with opened(first):
            await first.commit(0, [entry("a", kept=True)])

    later = make_store()
    async with opened(later):
        assert (await later.changes(0)).entries == (entry("a", kept=True),)
        assert (await later.exchange(Bulletin("r", 1, b"x"))).revision == 1


async def test_a_database_of_a_later_version_is_refused(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(make_store()):
        pass
    monkeypatch.setattr(tables, "STEPS", tables.STEPS[:1])
    older = make_store()
    try:
        with pytest.raises(NewerDatabase, match="is of version 2, this program knows 1"):
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
            seen = memory.revision - (chance.random() < 0.2)
            entries = [
                Entry(
                    "thing", name, versions.get(name, 0) + 1, {"n": number} if chance.random() < 0.8 else None
                )
                for name in names
            ]
            stored = await memory.commit(seen, entries)
            assert await real.commit(seen, entries) == stored
            versions |= {one.name: one.version for one in entries} if stored else {}
            after = chance.randint(0, memory.revision)
            one, other = await real.changes(after), await memory.changes(after)
            assert one.revision == max(after, other.revision)
            assert sorted(one.entries, key=repr) == sorted(other.entries, key=repr)


async def test_database_that_stops_is_away_and_comes_back(server: Postgres) -> None:
    store = SqlStore(server.url("meta_restarted"))
    async with opened(store):
        await store.commit(0, [entry("a")])
        server.stop()
        try:
            with pytest.raises(StoreAway):
                await store.commit(1, [entry("b")])
            with pytest.raises(StoreAway):
                await store.exchange(Bulletin("r", 1, b""))
        finally:
            server.start()

        assert [found.name for found in (await store.changes(0)).entries] == ["a"]
        assert await store.commit(1, [entry("b")])


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
        assert await store.commit(0, [entry("a")])


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
