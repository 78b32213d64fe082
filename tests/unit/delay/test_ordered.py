"""Messages for later with order keys: where their keys lie when they are due, and once, whenever the route changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from samples.brokers import Rig
from samples.delays import NOW_MS, SMALL, SUBJECT, DelayRig, at_broker
from tidemill_delay.routing import Ways
from tidemill_host.machine import Peer, Send
from tidemill_wire.columns import Column, Content
from tidemill_wire.commands import SendBatches, Welcome, parse_command
from tidemill_wire.connection import Received
from tidemill_wire.errors import Unavailable
from tidemill_wire.fencing import Fence, Fenced, FenceRow
from tidemill_wire.frame import FrameDecoder
from tidemill_wire.ordering import Chart, moved, ranges_of
from tidemill_wire.routes import Partition, PartitionSet

DUE = NOW_MS + 1_000
KEYS = [str(number) for number in range(12)]
PEERS = {"g0": Peer(7), "g1": Peer(8)}
A, B, C = f"g0/{SUBJECT}", f"g1/{SUBJECT}", f"g0/{SUBJECT}#1"


def version(number: int, **ends: int) -> PartitionSet:
    """Partitions A, B and C up to these logical partitions."""
    rows, begin = [], 0
    for name, end in ends.items():
        group, _, partition = {"a": A, "b": B, "c": C}[name].partition("/")
        rows.append(Partition(group, partition, ((begin, end),)))
        begin = end
    return PartitionSet(number, tuple(rows))


ONE, TWO = version(1, a=1024), version(2, a=512, b=1024)


class OrderedRig(DelayRig):
    """A delay service between two broker groups; it is told the route when a test says so."""

    def __init__(self, *sets: PartitionSet, listed: Sequence[str] = ("g0", "g1")) -> None:
        self.sets, self.listed = sets, listed
        self.rigs = {"g0": Rig(now_ms=NOW_MS), "g1": Rig(now_ms=NOW_MS)}
        self.deaf_to: set[str] = set()
        """Of those the answers get lost."""
        self.cut: set[str] = set()
        """Those that nobody reaches."""
        self.asked: Counter[str] = Counter()
        self.stored: list[tuple[str, str, str]] = []
        """Partition, id and order key of what brokers stored."""
        self.fences = 0
        super().__init__(replace(SMALL, checkpoint_events=1000))

    def meet(self) -> None:
        self.tell(*self.sets)
        for group, peer in PEERS.items():
            if group not in self.cut:
                self.delay.received(peer, Received(0, Welcome(1, f"{group}-0", 1)), self.now_ms)
        self.delay.ticked(self.now_ms)
        self.pump()

    def tell(self, *sets: PartitionSet) -> None:
        """The route as meta says it."""
        self.sets = sets
        groups = tuple(one.group for one in sets[-1].partitions if one.name == SUBJECT) if sets else ()
        ways = Ways(sets, frozenset(self.listed)) if sets else None
        self.delay.route(SUBJECT, groups, self.now_ms, ways)
        self.pump()

    def lose(self, group: str) -> None:
        """The connection ends."""
        self.delay.disconnected(PEERS[group], self.now_ms)
        self.pump()

    def fence(self, to: PartitionSet) -> None:
        """All that lose order keys by the next version close to them."""
        self.fences += 1
        ranges = {one.key: one.ranges for one in to.partitions}
        losers = {was for parts in moved(self.sets[-1], to).values() for was in parts}
        for loser in losers:
            group, _, name = loser.partition("/")
            answer = self.rigs[group].ask(Fence([FenceRow(name, self.fences, ranges.get(loser, ()))]))
            assert isinstance(answer, Fenced)

    def keyed(self, *keys: str | None, due: int = DUE) -> None:
        content = Content([b"tide"] * len(keys), order_keys=list(keys))
        assert not self.send([b"tide"] * len(keys), due, content=content).refused

    def _deliver(self, send: Send) -> None:
        group = next((name for name, peer in PEERS.items() if peer == send.peer), None)
        if group is None:
            super()._deliver(send)
            return
        [frame] = FrameDecoder().feed(send.head)
        command = parse_command(frame)
        assert isinstance(command, SendBatches)
        self.asked[group] += 1
        if group in self.cut:
            return
        answer, stored = at_broker(self.rigs[group], command, self.now_ms)
        for batch in stored:
            sources = batch.numbers(Column.SOURCES, "i", batch.header.messages)
            for row, key in enumerate(batch.order_keys() or [""] * batch.header.messages):
                identity = batch.message_id(row if sources is None else sources[row])
                self.stored.append((f"{group}/{batch.partition}", identity, key))
        if group not in self.deaf_to:
            self.delay.received(send.peer, Received(frame.correlation, answer), self.now_ms)

    @property
    def homes(self) -> dict[str, str]:
        """Where each key was stored; each once."""
        assert len({identity for _, identity, _ in self.stored}) == len(self.stored), "stored twice"
        return {key: place for place, _, key in self.stored if key}


def homes_by(route: PartitionSet, keys: Sequence[str] = KEYS) -> dict[str, str]:
    chart = Chart(route)
    return {key: chart.of(key).key for key in keys}


def test_each_key_goes_to_its_partition_and_one_without_goes_with_the_first() -> None:
    three = version(3, a=300, b=700, c=1024)
    rig = OrderedRig(three)
    rig.keyed(*KEYS, None)
    rig.wait(2_000)

    assert rig.homes == homes_by(three)
    assert set(rig.homes.values()) == {A, B, C}
    assert len(rig.stored) == len(KEYS) + 1
    assert (rig.delay.state.waiting, dict(rig.delay.courier.refused)) == (0, {})
    assert rig.asked.total() <= 3, "one batch for each partition, and one SEND for each broker"


def test_keys_that_moved_after_the_route_was_told_are_brought_where_they_are_now() -> None:
    rig = OrderedRig(ONE)
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
    rig = OrderedRig()
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
    rig = OrderedRig(ONE)
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
    rig = OrderedRig(ONE)
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
    rig = OrderedRig(ONE)
    rig.keyed(*KEYS)
    rig.cut = {"g0"}
    rig.wait(1_100)
    rig.listed, rig.sets = ("g1",), (ONE, two)
    rig.restart()
    rig.wait(2_000)

    assert rig.homes == homes_by(two)
    assert rig.asked == {"g0": 1, "g1": 1}


def test_what_is_refused_for_now_is_tried_again_at_its_partition() -> None:
    rig = OrderedRig(TWO)
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
    rig = OrderedRig(ONE)
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
    rig = OrderedRig(TWO)
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
        left.append(replace(one, ranges=ranges_of(mine)))
    if gone:
        left.append(Partition(chance.choice(["g0", "g1"]), new, ranges_of(sorted(gone))))
    return PartitionSet(route.version + 1, tuple(left))


def disturb(rig: OrderedRig, chance: random.Random) -> None:
    group = chance.choice(["g0", "g1"])
    match chance.randrange(6):
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


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_each_is_stored_once_and_none_is_left(seed: int) -> None:
    chance = random.Random(seed)
    rig = OrderedRig(chance.choice([ONE, TWO]))
    for _ in range(6):
        keys = [chance.choice([*KEYS, None]) for _ in range(chance.randrange(1, 8))]
        content = Content([b"tide"] * len(keys), order_keys=keys)
        due = [DUE + 1_000 * chance.randrange(12) for _ in keys]
        rig.send([b"tide"] * len(keys), *due, content=content)
    sent = rig.delay.state.messages
    for _ in range(20):
        disturb(rig, chance)
    rig.cut, rig.deaf_to = set(), set()
    for group in PEERS:
        rig.lose(group)  # what was said to the deaf is asked for again
    rig.meet()
    rig.wait(200_000)

    assert rig.delay.state.waiting == 0
    assert len({identity for _, identity, _ in rig.stored}) == len(rig.stored) == sent


def test_pieces_that_lie_out_of_their_order_are_read_whole() -> None:
    """Two ticks that are brought at once, of which the later one begins in an earlier piece."""
    rig = OrderedRig(ONE)
    rig.send([b"a" * 300, b"c"], DUE, DUE + 500)
    rig.send([b"b" * 300], DUE)
    rig.restart()  # both are in one page of the hour
    rig.now_ms = DUE + 2_000
    rig.wait(2_000)

    assert not rig.delay.courier.refused
    assert len(rig.stored) == 3
