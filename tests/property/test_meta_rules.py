"""Meta's rules for all inputs: allocations even and sticky, routes immutable, and nobody promoted that lacks a message.

The last two tests are histories: replicas of meta, brokers and consumers on one virtual clock, of which some die, stand
still, or do not reach each other. What is checked is what users are promised, not how the rules come to it.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from hypothesis import example, given, settings
from hypothesis import strategies as st

from samples.metas import STEP_MS, World
from samples.replicating import Cluster
from tidemill_meta.allocation import granted, rebalanced, released, shared_out
from tidemill_meta.beats import Consumes
from tidemill_meta.routing import Site, default_route, expanded
from tidemill_meta.storing import StoreAway
from tidemill_meta.values import Allocation
from tidemill_wire.routes import PartitionSet

PARTITIONS = st.integers(0, 70).map(lambda count: [f"g{number % 3}/s#{number}" for number in range(count)])
CONSUMERS = st.sets(st.sampled_from([f"c{number}" for number in range(20)]))


@given(PARTITIONS, CONSUMERS, st.data())
def test_every_partition_has_one_owner_shares_differ_by_one_and_moves_are_fewest(
    partitions: list[str], consumers: set[str], data: st.DataObject
) -> None:
    names = sorted(consumers | {"gone"})
    before = {name: data.draw(st.sampled_from(names)) for name in partitions if data.draw(st.booleans())}

    after = shared_out(partitions, consumers, before)

    assert sorted(after) == (sorted(partitions) if consumers else [])
    counts = [sum(owner == name for owner in after.values()) for name in sorted(consumers)]
    assert max(counts, default=0) - min(counts, default=0) <= 1
    held = sorted((sum(before.get(one) == name for one in partitions) for name in consumers), reverse=True)
    base, extra = divmod(len(partitions), len(consumers)) if consumers else (0, 0)
    kept_at_most = sum(min(count, base + (place < extra)) for place, count in enumerate(held))
    assert sum(before.get(name) == owner for name, owner in after.items()) == kept_at_most


@given(
    st.lists(st.tuples(st.sampled_from(["join", "leave", "hear", "over"]), st.integers(0, 5)), max_size=60),
    st.sampled_from([frozenset[str](), frozenset({"c0"}), frozenset(f"c{number}" for number in range(6))]),
)
@example([("join", 1), ("join", 2), ("hear", 1), ("hear", 2), ("join", 0), ("hear", 1)], frozenset({"c0"}))
def test_no_partition_is_granted_to_two_consumers_whatever_they_have_heard(
    steps: list[tuple[str, int]], exclusive: frozenset[str]
) -> None:
    """Each consumer goes on with what it heard last, until it hears of a later version; then it says so. Where all are
    exclusive one of them has anything at all; where one is, from when it has come and the others have heard of it.
    """
    partitions = [f"g/s#{number}" for number in range(7)]
    allocation, here = Allocation("s", "g"), set[str]()
    applied: dict[str, int] = {}
    holds: dict[str, frozenset[str]] = {}
    since = 0

    def store(changed: Allocation) -> Allocation:
        return changed if changed == allocation else replace(changed, version=allocation.version + 1)

    for what, number in steps:
        name = f"c{number}"
        match what:
            case "join":
                here.add(name)
            case "leave":
                here.discard(name)
            case "hear":
                holds[name] = frozenset(granted(allocation, name))
                applied[name] = allocation.version
            case _:
                if name not in here:  # its authorisation is over
                    holds.pop(name, None)
                    over = [one for one in allocation.formers if one.consumer == name]
                    allocation = store(released(allocation, applied, over))
        before = allocation.version
        alone = bool(here & exclusive) or (allocation.alone and not here)
        since = allocation.version + 1 if alone and not allocation.alone else since
        released_now = released(allocation, applied, [])
        allocation = store(rebalanced(released_now, partitions, here, alone=alone))
        assert allocation.version >= before
        held = [partition for held in holds.values() for partition in held]
        assert len(held) == len(set(held))
        if allocation.alone:
            at_work = [name for name, mine in holds.items() if mine]
            granted_alone = [name for name in at_work if applied[name] >= since]
            assert len(at_work) <= 1 or not granted_alone


SITES = st.lists(
    st.builds(
        Site,
        st.uuids().map(lambda number: f"g{number.hex[:6]}"),
        st.just(frozenset[tuple[str, str]]()),
        st.floats(0, 1),
        st.integers(0, 50),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda site: site.name,
).filter(lambda sites: any(site.open for site in sites))


@given(SITES, st.lists(st.integers(1, 9), max_size=5))
def test_expansions_change_no_former_version_and_move_only_to_new_partitions(
    sites: list[Site], expansions: list[int]
) -> None:
    versions: list[PartitionSet] = [default_route("s", sites, None, 2)]
    for more in expansions:
        former = versions[-1]
        former_text = former.to_map()
        after = expanded("s", former, sites, None, more)
        after.check()
        assert former.to_map() == former_text
        assert [one.key for one in after.partitions[: len(former.partitions)]] == [
            one.key for one in former.partitions
        ]
        sizes = [one.size for one in after.partitions]
        assert max(sizes) - min(sizes) <= 1
        old = {one.key for one in former.partitions}
        moved = {number for number in range(1024) if former.of(number).key != after.of(number).key}
        shrunk = sum(
            max(0, one.size - now.size) for one, now in zip(former.partitions, after.partitions, strict=False)
        )
        assert len(moved) == shrunk
        assert all(after.of(number).key not in old for number in moved)
        versions.append(after)


@settings(max_examples=60)
@given(st.integers(0, 1 << 32), st.integers(1, 3), st.integers(2, 4))
@example(1, 1, 2)
@example(2, 3, 3)
def test_whoever_is_promoted_has_all_that_was_committed(seed: int, metas: int, brokers: int) -> None:
    """Brokers that replicate, die, start again, lose sight of meta or of each other; masters relieved on purpose."""
    cluster = Cluster(random.Random(seed), metas, brokers)
    for _ in range(400):
        cluster.step()
        cluster.check()
    cluster.heal()

    assert cluster.led, "a group that healed has a master that commits"


@settings(max_examples=60)
@given(st.integers(0, 1 << 32), st.integers(1, 3), st.sampled_from(["ordered", "exclusive"]))
@example(3, 3, "ordered")
def test_no_two_consumers_are_authorised_for_a_partition_at_a_time(
    seed: int, metas: int, asks: Literal["ordered", "exclusive"]
) -> None:
    """Consumers that die, come, and are cut off; meta's replicas that die, stand still, or lose their database. Of
    exclusive consumers no two are authorised for anything.
    """
    chance = random.Random(seed)
    world = World(metas)
    for name in ("g1", "g2"):
        world.register(name, f"{name}-0")
    world.client("first", Consumes("s", "g", "c", asks))
    world.first.meta.client_left("first", world.now_ms)
    for replica in world.replicas:
        replica.read()
    consumers = [Consumer(world, f"p{number}", chance, asks) for number in range(4)]
    owned = 0
    for _ in range(500):
        trouble(world, chance)
        world.now_ms += STEP_MS if chance.random() < 0.98 else chance.randint(300, 3_000)
        for consumer in consumers:
            consumer.step()
        for replica in world.replicas:
            if replica.running:
                try:
                    replica.pulse()
                except StoreAway:
                    continue
        held = [partition for consumer in consumers for partition in consumer.handles]
        assert len(held) == len(set(held))
        owned += len(held)
        assert asks == "ordered" or sum(bool(consumer.handles) for consumer in consumers) <= 1

    assert owned, "nobody was ever authorised: nothing was tested"


def trouble(world: World, chance: random.Random) -> None:
    """Something goes wrong with meta, or is well again."""
    number = chance.randrange(len(world.replicas))
    match chance.randrange(100):
        case 0:
            world.replicas[number].running = not world.replicas[number].running
        case 1:
            if not world.store.away:
                world.restart(number)
        case 2:
            world.store.away = True
        case 3 | 4:
            world.store.away = False
            world.replicas[number].running = True
        case _:
            pass


class Consumer:
    """A process that consumes in order: now and then it stops, is killed, stands still, or asks another replica."""

    def __init__(
        self, world: World, name: str, chance: random.Random, asks: Literal["ordered", "exclusive"]
    ) -> None:
        self._world = world
        self._name = name
        self._asks: Literal["ordered", "exclusive"] = asks
        self._chance = chance
        self._alive = chance.random() < 0.7
        self._cut = False
        self._partitions: frozenset[str] = frozenset()
        self._until_ms = self._due_ms = self._applied = 0

    @property
    def handles(self) -> frozenset[str]:
        return self._partitions if self._alive and self._world.now_ms < self._until_ms else frozenset()

    def step(self) -> None:
        match self._chance.randrange(100):
            case 0:
                self._alive = False  # killed; or standing still, which looks the same from outside
            case 1 | 2 if not self._alive:
                self._alive = True
                if self._chance.random() < 0.5:  # another life: it knows nothing
                    self._partitions, self._applied, self._until_ms = frozenset(), 0, 0
            case 3 if self._alive:
                self._leave()
            case 4 | 5:
                self._cut = not self._cut  # from meta: it goes on for as long as it may
            case _:
                if (
                    self._alive
                    and not self._cut
                    and (self._world.now_ms >= self._due_ms or self._chance.random() < 0.2)
                ):
                    self._beat()

    def _leave(self) -> None:
        replica = self._chance.choice(self._world.replicas)
        self._partitions, self._until_ms, self._applied = frozenset(), 0, 0
        if replica.running:
            replica.meta.client_left(self._name, replica.now_ms)
        self._alive = False

    def _beat(self) -> None:
        from tidemill_meta.errors import Denied

        number = self._chance.randrange(len(self._world.replicas))
        sent_ms = self._world.now_ms
        self._due_ms = sent_ms + STEP_MS
        if not self._world.replicas[number].running:
            return
        try:
            answer = self._world.client(
                self._name, Consumes("s", "g", "c", self._asks, self._applied), at=number
            )
        except (Denied, StoreAway):
            return
        row = answer["consumes"][0]
        self._due_ms = sent_ms + answer["beat_ms"]
        self._partitions, self._applied = frozenset(row["partitions"]), row["allocation"]
        self._until_ms = sent_ms + row["authorised_ms"]
