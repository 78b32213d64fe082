"""A delay service between two broker groups, whose route a test tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from samples.brokers import Rig
from samples.delays import NOW_MS, SMALL, SUBJECT, DelayRig, at_broker
from tidemill_delay.routing import Ways
from tidemill_host.machine import Peer, Send
from tidemill_wire.columns import Column, Content
from tidemill_wire.commands import SendBatches, Welcome, parse_command
from tidemill_wire.connection import Received
from tidemill_wire.fencing import Fence, Fenced, FenceRow
from tidemill_wire.frame import FrameDecoder
from tidemill_wire.ordering import Chart, moved
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


class BetweenRig(DelayRig):
    """See the module."""

    def __init__(
        self,
        *sets: PartitionSet,
        listed: Sequence[str] = ("g0", "g1"),
        rigs: Mapping[str, Rig] | None = None,
    ) -> None:
        self.sets, self.listed = sets, listed
        self.rigs = rigs or {"g0": Rig(now_ms=NOW_MS), "g1": Rig(now_ms=NOW_MS)}
        self.shut: set[str] = set()
        """Those that take nothing just now, says meta."""
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
        takers = [one.group for one in sets[-1].partitions if one.name == SUBJECT] if sets else []
        groups = [one for one in takers if one not in self.shut] or takers
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
    def once(self) -> bool:
        """Nothing was stored twice."""
        return len({identity for _, identity, _ in self.stored}) == len(self.stored)

    @property
    def homes(self) -> dict[str, str]:
        """Where each key was stored; each once."""
        assert self.once, "stored twice"
        return {key: place for place, _, key in self.stored if key}


def homes_by(route: PartitionSet, keys: Sequence[str] = KEYS) -> dict[str, str]:
    chart = Chart(route)
    return {key: chart.of(key).key for key in keys}
