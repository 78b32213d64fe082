"""Strands against a model: whatever comes and fails, each key's messages are begun one at a time and in their order."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidemill.strands import Strand, Strands

KEYS = st.sampled_from(["a", "b", "c", None])


class StrandsModel(RuleBasedStateMachine):
    """The model: of each key, which messages have not ended, in their order."""

    @initialize(room=st.integers(1, 20))
    def begin(self, room: int) -> None:
        self.strands: Strands[int] = Strands(room)
        self.room = room
        self.now = 0.0
        self.number = 0
        self.open: dict[str | int, list[int]] = {}
        self.begun: dict[int, tuple[Strand[int], str | int]] = {}
        self.blocked: dict[str | int, float] = {}

    @precondition(lambda self: not self.strands.full)
    @rule(key=KEYS)
    def add(self, key: str | None) -> None:
        self.number += 1
        self.strands.add(key, self.number)
        self.open.setdefault(key if key is not None else self.number, []).append(self.number)

    @rule()
    def take(self) -> None:
        taken = self.strands.take()
        busy = {name for _, name in self.begun.values()}
        free = {name for name in self.open if name not in busy and self.blocked.get(name, 0.0) <= self.now}
        if taken is None:
            assert not free
            return
        strand, number = taken
        name = strand.key if strand.key is not None else number
        assert name in free
        assert self.open[name][0] == number
        self.blocked.pop(name, None)
        self.begun[number] = strand, name

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.begun)))
        strand, name = self.begun.pop(number)
        self.strands.done(strand)
        self.open[name].remove(number)
        if not self.open[name]:
            del self.open[name]

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), delay=st.integers(1, 5))
    def again(self, data: st.DataObject, delay: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.begun)))
        strand, name = self.begun.pop(number)
        self.strands.again(strand, number, self.now + delay)
        self.blocked[name] = self.now + delay

    @rule(seconds=st.integers(0, 6))
    def wake(self, seconds: int) -> None:
        self.now += seconds
        self.strands.wake(self.now)
        due = self.strands.next_due
        assert due is None or due > self.now

    @rule()
    def clear(self) -> None:
        untried, failed = self.strands.clear()
        rest = [number for numbers in self.open.values() for number in numbers if number not in self.begun]
        assert sorted([*untried, *(number for _, number in failed)]) == sorted(rest)
        self.open = {name: [number] for number, (_, name) in self.begun.items()}
        self.blocked = {}

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "strands"):
            self.strands.check()
            assert self.strands.waiting == sum(map(len, self.open.values())) - len(self.begun)


TestStrands = StrandsModel.TestCase
