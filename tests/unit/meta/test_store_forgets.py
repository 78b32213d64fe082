"""What the stores forget, on SQLite and on a real PostgreSQL, and what they tell who did not know it."""

from __future__ import annotations

from unit.meta.conftest import MakeStore

from samples.stores import entry, opened, write
from tidemill_meta.registry import Draft, Registry
from tidemill_meta.storing import Bulletin, Changes, Entry, Store
from tidemill_meta.values import Removal


async def gone(store: Store, *names: str) -> int:
    """Each was there, and is not any more; the revision."""
    revision = (await write(store, 0, *(entry(name) for name in names))).revision
    return (await write(store, revision, *(Entry("thing", name, 2, None) for name in names))).revision


async def test_what_is_gone_is_forgotten_and_what_is_there_is_not(make_store: MakeStore) -> None:
    one, later = make_store(), make_store()
    async with opened(one, later):
        revision = await gone(one, "a", "b")
        await write(one, revision, entry("c"), Entry("thing", "d", 9, None))

        assert await one.forget(revision, {}) == 2
        assert await one.forget(revision, {}) == 2, "it remembers the version, not what had it"

        changes = await later.changes(0)
        assert (changes.revision, changes.whole, changes.floor) == (revision + 1, True, 2)
        assert set(map(repr, changes.entries)) == {repr(entry("c")), repr(Entry("thing", "d", 9, None))}


async def test_who_missed_what_is_forgotten_is_told_all_that_there_is_also_in_its_turn(
    make_store: MakeStore,
) -> None:
    store, told = make_store(), list[Changes]()

    def decide(changes: Changes) -> list[Entry]:
        told.append(changes)
        return []

    async with opened(store):
        await write(store, 0, entry("kept"))
        revision = await gone(store, "a")
        await store.forget(revision, {})
        await store.commit(1, decide)

        whole = Changes(revision, (entry("kept"),), whole=True, floor=2)
        assert told == [whole]
        assert await store.changes(revision - 1) == whole
        assert await store.changes(revision) == Changes(revision, ())


async def test_who_missed_nothing_is_told_what_is_new(make_store: MakeStore) -> None:
    store = make_store()
    async with opened(store):
        revision = await gone(store, "a")
        await store.forget(revision, {})
        await write(store, revision, entry("b"))

        assert await store.changes(revision) == Changes(revision + 1, (entry("b"),))


async def test_bulletin_is_forgotten_unless_another_one_was_put_up(make_store: MakeStore) -> None:
    store = make_store()
    async with opened(store):
        for name, number in (("dead", 7), ("back", 3), ("back", 4), ("mine", 1)):
            await store.exchange(Bulletin(name, number, b"x"))

        await store.forget(0, {"dead": 7, "back": 3, "unknown": 1})

        board = await store.exchange(Bulletin("mine", 2, b"x"))
        assert {one.replica: one.number for one in board.bulletins} == {"back": 4, "mine": 2}


async def test_registry_that_forgot_goes_on_above_the_versions_of_before(make_store: MakeStore) -> None:
    """As a broker counts on that remembers an allocation, or a fence."""
    one, other = make_store(), make_store()
    mine, late = Registry(), Registry()

    def put(draft: Draft) -> int:
        return draft.put(Removal("s", 1, ())).version

    async with opened(one, other):
        versions: list[int] = []
        for change in (put, put, lambda draft: draft.drop(Removal, "s"), put):
            draft = Draft(mine)
            versions.append(change(draft) or 0)
            entries = draft.entries()
            mine.apply(await one.commit(mine.revision, lambda _, entries=entries: entries))
            if versions[-1] == 1:
                late.apply(await other.changes(0))
            if not versions[-1]:
                mine.forget(mine.revision, await one.forget(mine.revision, {}))
                assert not mine.remembers(Removal.KIND, "s")

        assert versions == [1, 2, 0, 4]
        assert late.get(Removal, "s") is not None
        changed = late.apply(await other.changes(late.revision))
        assert changed
        found = late.get(Removal, "s")
        assert found is not None
        assert found.version == 4
