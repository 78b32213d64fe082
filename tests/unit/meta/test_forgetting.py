"""What meta lets go of, when, and what it must not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from samples.meta_memory import MemoryStore
from samples.metas import START_MS, World
from tidemill_host.clock import Clock
from tidemill_meta.doors.replica import Replica
from tidemill_meta.forgetting import DAY_MS, GONE_MS, SWEEP_MS, Forgetting, Sweep, forget_removals
from tidemill_meta.registry import Draft, Registry
from tidemill_meta.settings import MetaSettings
from tidemill_meta.storing import Bulletin, Changes, Entry
from tidemill_meta.subjects import remove_subject, use_subject
from tidemill_meta.values import Removal, Route, SubjectRecord


def removal(name: str, version: int, *, there: bool) -> Entry:
    return Entry(Removal.KIND, name, version, Removal(name, 1, ()).to_map() if there else None)


def swept(
    forgetting: Forgetting, registry: Registry, numbers: dict[str, int], from_ms: int
) -> list[Sweep | None]:
    """What each sweep of ``GONE_MS`` and one more finds."""
    return [forgetting.sweep(registry, numbers, from_ms + at_ms) for at_ms in range(0, GONE_MS + 1, SWEEP_MS)]


def test_what_is_gone_is_swept_when_all_have_known_it_for_long() -> None:
    registry = Registry()
    registry.apply(Changes(1, (removal("a", 1, there=True), removal("b", 1, there=True))))
    registry.apply(Changes(2, (removal("a", 2, there=False),)))

    *before, last = swept(Forgetting(), registry, {}, 0)

    assert before == [None] * len(before)
    assert last == Sweep(2, {})
    registry.forget(2, 2)
    assert (registry.remembers(Removal.KIND, "a"), registry.remembers(Removal.KIND, "b")) == (False, True)
    assert registry.version(Removal.KIND, "a") == 2, "what begins goes on above it"


def test_what_went_a_moment_ago_is_not_swept() -> None:
    registry, forgetting = Registry(), Forgetting()
    registry.apply(Changes(1, (removal("a", 1, there=True),)))
    swept(forgetting, registry, {}, 0)
    registry.apply(Changes(2, (removal("a", 2, there=False),)))

    assert forgetting.sweep(registry, {}, GONE_MS + SWEEP_MS) is None


def test_bulletin_that_is_not_followed_by_another_one_is_swept() -> None:
    registry, forgetting = Registry(), Forgetting()
    swept(forgetting, registry, {"dead": 7, "alive": 1}, 0)

    found = forgetting.sweep(registry, {"dead": 7, "alive": 2}, GONE_MS + SWEEP_MS)

    assert found == Sweep(0, {"dead": 7})


def removed_world() -> World:
    """A subject on a broker group was used, and was removed."""
    world = World(1)
    world.register("g1", "g1-0")
    first = world.first
    first.change(lambda draft, now_ms: use_subject(draft, first.meta.senses, "s", now_ms))
    first.change(lambda draft, now_ms: remove_subject(draft, first.meta.senses, "s", now_ms, force=True))
    return world


def forget(world: World) -> bool:
    """Whether the removal is forgotten now."""
    first = world.first
    first.change(lambda draft, now_ms: forget_removals(draft, first.meta.senses, now_ms))
    return first.meta.registry.get(Removal, "s") is None


def test_removal_is_forgotten_when_it_is_old_and_its_brokers_have_obeyed() -> None:
    world = removed_world()
    kept_ms = MetaSettings().removed_days * DAY_MS
    world.beat("g1", "g1-0", told=world.first.meta.registry.revision)
    world.now_ms = START_MS + kept_ms - 1
    assert not forget(world)
    world.now_ms += 1
    assert forget(world)


def test_removal_waits_for_a_broker_that_has_not_heard_of_it() -> None:
    world = removed_world()
    world.now_ms += 1000 * DAY_MS
    world.beat("g1", "g1-0", told=0)
    assert not forget(world)
    world.beat("g1", "g1-0", told=world.first.meta.registry.revision)
    assert forget(world)


def test_new_subject_has_no_fences_for_what_is_forgotten() -> None:
    world = removed_world()
    registry = world.first.meta.registry
    registry.forget(registry.revision, 40)
    draft = Draft(registry)

    use_subject(draft, world.first.meta.senses, "other", world.now_ms)

    route = draft.get(Route, "other")
    assert route is not None
    assert (route.version, route.fence, route.fences) == (41, 0, ())


def test_replica_that_missed_what_is_forgotten_lets_go_of_it_too() -> None:
    registry = Registry()
    subject = SubjectRecord("s", None, "R", 1)
    registry.apply(Changes(1, (Entry(SubjectRecord.KIND, "s", 1, subject.to_map()),)))

    changed = registry.apply(Changes(9, (removal("x", 3, there=True),), whole=True, floor=5))

    assert changed == [(SubjectRecord.KIND, "s"), (Removal.KIND, "x")]
    assert registry.get(SubjectRecord, "s") is None
    assert not registry.remembers(SubjectRecord.KIND, "s")
    assert registry.last_told_at == 9
    assert registry.version(SubjectRecord.KIND, "s") == 5


class SetClock(Clock):
    """It says what it was told to say."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms


@contextlib.asynccontextmanager
async def at_work(replica: Replica) -> AsyncIterator[None]:
    task = asyncio.ensure_future(replica.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_replica_forgets_in_its_store_what_was_gone_for_long() -> None:
    store, clock = MemoryStore(), SetClock()
    replica = Replica(MetaSettings(name="r"), store, clock)
    await replica.open()
    async with at_work(replica):
        await store.exchange(Bulletin("dead", 7, b"x\x9c\x03\x00\x00\x00\x00\x01"))
        replica.meta.senses.is_new("dead", 7)
        await replica.change(lambda draft, _: draft.put(Removal("s", clock.ms, ())))
        clock.ms += MetaSettings().removed_days * DAY_MS
        for _ in range(2 * GONE_MS // SWEEP_MS + 2):
            await replica._sweep()
            clock.ms += SWEEP_MS

    changes = await store.changes(0)
    assert (changes.entries, changes.whole, changes.floor) == ((), True, 2)
    assert not replica.meta.registry.remembers(Removal.KIND, "s")
    assert [one.replica for one in (await store.exchange(Bulletin("r", 99, b""))).bulletins] == ["r"]
