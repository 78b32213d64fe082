"""Messages for later with order keys: where their keys lie when they are due, and once, whenever the route changes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from samples.between import DUE, KEYS, ONE, PEERS, TWO, A, B, BetweenRig, C, homes_by, version
from samples.delays import SUBJECT
from tidemill_wire.columns import Content
from tidemill_wire.errors import Unavailable
from tidemill_wire.ordering import joined
from tidemill_wire.routes import Partition, PartitionSet


def test_each_key_goes_to_its_partition_and_one_without_goes_with_the_first() -> None:
    three = version(3, a=300, b=700, c=1024)
    rig = BetweenRig(three)
    rig.keyed(*KEYS, None)
    rig.wait(2_000)

    assert rig.homes == homes_by(three)
    assert set(rig.homes.values()) == {A, B, C}
    assert len(rig.stored) == len(KEYS) + 1
    assert (rig.delay.state.waiting, dict(rig.delay.courier.refused)) == (0, {})
    assert rig.asked.total() <= 3, "one batch for each partition, and one SEND for each broker"


def test_keys_that_moved_after_the_route_was_told_are_brought_where_they_are_now() -> None:
    rig = BetweenRig(ONE)
    rig.fence(TWO)
    rig.keyed(*KEYS)
    rig.wait(3_000)
    assert rig.delay.courier.refused["route_outdated"] >= len(KEYS)
    assert rig.stored == [], "a batch is refused whole"
    rig.tell(ONE, TWO)
    rig.wait(2_000)

    assert rig.homes == homes_by(TWO)
    assert rig.delay.state.waiting == 0


def test_what_waits_for_its_route_or_for_its_broker_goes_by_the_newest_one() -> None:
    rig = BetweenRig()
    rig.keyed(*KEYS)
    rig.wait(2_000)
    rig.cut = {"g0"}
    rig.lose("g0")
    rig.tell(ONE)
    rig.fence(TWO)
    rig.tell(ONE, TWO)
    rig.cut = set()
    rig.meet()

    assert rig.homes == homes_by(TWO)
    assert not rig.delay.courier.refused


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("arrived", [False, True])
def test_what_may_be_stored_where_its_keys_were_is_asked_for_there_first(
    restarts: bool, arrived: bool
) -> None:
    rig = BetweenRig(ONE)
    rig.keyed(*KEYS)
    rig.deaf_to, rig.cut = {"g0"}, set() if arrived else {"g0"}
    rig.wait(1_100)
    assert rig.asked == {"g0": 1}
    rig.lose("g0")
    rig.fence(TWO)
    rig.sets = (ONE, TWO)
    rig.cut, rig.deaf_to = {"g0"}, set()
    if restarts:
        rig.restart()
    else:
        rig.meet()
    rig.wait(2_000)
    assert rig.asked["g1"] == 0, "nobody knows yet"
    rig.cut = set()
    rig.meet()
    rig.wait(2_000)

    assert rig.homes == homes_by(ONE if arrived else TWO)
    assert rig.delay.state.waiting == 0


def test_a_broker_group_that_is_forgotten_is_not_waited_for() -> None:
    two = version(2, b=1024)
    rig = BetweenRig(ONE)
    rig.keyed(*KEYS)
    rig.cut = {"g0"}
    rig.wait(1_100)
    rig.keyed("later", due=rig.now_ms + 60_000)
    rig.listed = ("g1",)
    rig.tell(ONE, two)
    assert rig.stored == []
    rig.lose("g0")
    rig.wait(61_000)

    assert rig.homes == homes_by(two, [*KEYS, "later"])
    assert rig.delay.state.waiting == 0


def test_another_life_asks_no_broker_group_that_is_forgotten() -> None:
    two = version(2, b=1024)
    rig = BetweenRig(ONE)
    rig.keyed(*KEYS)
    rig.cut = {"g0"}
    rig.wait(1_100)
    rig.listed, rig.sets = ("g1",), (ONE, two)
    rig.restart()
    rig.wait(2_000)

    assert rig.homes == homes_by(two)
    assert rig.asked == {"g0": 1, "g1": 1}


def test_what_is_refused_for_now_is_tried_again_at_its_partition() -> None:
    rig = BetweenRig(TWO)
    broker = rig.rigs["g1"].broker
    broker.intake.refusal = Unavailable("disk_full", "nothing is free")
    rig.keyed(*KEYS)
    rig.wait(1_500)
    assert set(rig.homes.values()) == {A}
    broker.intake.refusal = None
    rig.wait(2_000)

    assert rig.homes == homes_by(TWO)
    assert rig.delay.state.waiting == 0


def test_a_batch_is_no_repetition_of_one_that_begins_alike_and_has_fewer_messages() -> None:
    keys = sorted(KEYS, key=lambda key: homes_by(TWO)[key])
    rig = BetweenRig(ONE)
    rig.keyed(*keys)
    rig.fence(TWO)
    rig.tell(ONE, TWO)
    rig.cut, rig.deaf_to = {"g1"}, {"g0"}
    rig.wait(1_100)
    assert set(rig.homes.values()) == {A}
    rig.cut, rig.deaf_to = set(), set()
    rig.restart()  # and by version 1 all of them are asked for at A
    rig.wait(3_000)

    assert rig.homes == homes_by(TWO)
    assert rig.delay.state.waiting == 0


def test_what_came_into_one_partition_from_two_is_known_there_whichever_way_it_is_asked_for() -> None:
    three = PartitionSet(
        2,
        (
            Partition("g0", SUBJECT, ((0, 256),)),
            Partition("g1", SUBJECT, ((512, 768),)),
            Partition("g0", f"{SUBJECT}#1", ((256, 512), (768, 1024))),
        ),
    )
    keys = [key for key in map(str, range(60)) if homes_by(three, [key])[key] == C]
    assert set(homes_by(TWO, keys).values()) == {A, B}
    rig = BetweenRig(TWO)
    rig.fence(three)
    rig.tell(TWO, three)
    rig.keyed(*keys)
    rig.deaf_to = {"g0"}
    rig.wait(1_100)
    assert set(rig.homes.values()) == {C}
    rig.deaf_to = set()
    rig.restart()
    rig.wait(3_000)

    assert len(rig.stored) == len(keys) == len(rig.homes)
    assert rig.delay.state.waiting == 0


# What is drawn: routes that part and join ranges in fresh partitions, as meta makes them; a partition gains nothing.


def next_version(chance: random.Random, route: PartitionSet) -> PartitionSet:
    """Some key ranges leave some partitions, all for one new partition."""
    new = f"{SUBJECT}#{route.version}"
    left, gone = [], list[int]()
    for one in route.partitions:
        mine = [row for first, end in one.ranges for row in range(first, end)]
        if chance.random() < 0.7 and len(mine) > 1:
            keep = mine[: chance.randrange(1, len(mine))]
            gone += mine[len(keep) :]
            mine = keep
        left.append(replace(one, ranges=joined((one, one + 1) for one in mine)))
    if gone:
        left.append(
            Partition(chance.choice(["g0", "g1"]), new, joined((one, one + 1) for one in sorted(gone)))
        )
    return PartitionSet(route.version + 1, tuple(left))


def disturb(rig: BetweenRig, chance: random.Random, *, shuts: bool) -> None:
    """``shuts``: broker groups take nothing for a while, and the delay service is not started again. What was sent
    elsewhere for that, another life would look for where it goes when all are there.
    """
    group = chance.choice(["g0", "g1"])
    match chance.randrange(6):
        case 0 if shuts:
            rig.shut ^= {group}
            rig.tell(*rig.sets)
        case 0:
            rig.restart()
        case 1:
            (rig.deaf_to.discard if group in rig.deaf_to else rig.deaf_to.add)(group)
        case 2:
            rig.cut.add(group)
            rig.lose(group)
        case 3:
            rig.cut.discard(group)
            rig.meet()
        case 4 if len(rig.sets) < 5:
            after = next_version(chance, rig.sets[-1])
            rig.fence(after)
            if chance.random() < 0.5:
                rig.wait(chance.randrange(2_000))
            rig.tell(*rig.sets, after)
        case _:
            rig.wait(chance.randrange(20_000))


@pytest.mark.parametrize("shuts", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_each_is_stored_once_and_none_is_left(seed: int, shuts: bool) -> None:
    chance = random.Random(seed)
    rig = BetweenRig(chance.choice([ONE, TWO]))
    for _ in range(6):
        choices = chance.choice([[*KEYS, None], [None]])
        keys = [chance.choice(choices) for _ in range(chance.randrange(1, 8))]
        content = Content([b"tide"] * len(keys), order_keys=keys)
        due = [DUE + 1_000 * chance.randrange(12) for _ in keys]
        rig.send([b"tide"] * len(keys), *due, content=content)
    sent = rig.delay.state.messages
    for _ in range(20):
        disturb(rig, chance, shuts=shuts)
    rig.cut, rig.deaf_to = set(), set()
    for group in PEERS:
        rig.lose(group)  # what was said to the deaf is asked for again
    rig.meet()
    rig.wait(200_000)

    assert rig.delay.state.waiting == 0
    assert len({identity for _, identity, _ in rig.stored}) == len(rig.stored) == sent


def test_pieces_that_lie_out_of_their_order_are_read_whole() -> None:
    """Two ticks that are brought at once, of which the later one begins in an earlier piece."""
    rig = BetweenRig(ONE)
    rig.send([b"a" * 300, b"c"], DUE, DUE + 500)
    rig.send([b"b" * 300], DUE)
    rig.restart()  # both are in one page of the hour
    rig.now_ms = DUE + 2_000
    rig.wait(2_000)

    assert not rig.delay.courier.refused
    assert len(rig.stored) == 3
