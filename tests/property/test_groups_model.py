"""Groups against a model: whatever consumers and time do, each message is where a list of places says it is.

After each step the broker's own ``check`` has run; a restart, by replay alone or from a checkpoint, changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from samples.brokers import SUBJECT, TINY, Rig
from tidemill_broker.snapshots import pack_state
from tidemill_wire.commands import Ack, Done, Extend, Nack, Release
from tidemill_wire.kinds import Place
from tidemill_wire.steering import Seek, Sought, Suspend

LEASE_MS = 1000
BACKOFF_MS = [1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000, 600_000]
PATIENT = replace(TINY, lease_ms=LEASE_MS, consumer_gone_ms=10**9, action_segment_bytes=1024)
CONSUMERS = st.sampled_from("cd")


@dataclass
class Held:
    consumer: str
    first: int
    attempts: int
    deadline_ms: int


class Model:
    """Every message is new (from ``cursor`` on), held (by pull sequence), failed (by sequence), or gone."""

    def __init__(self) -> None:
        self.stored = self.cursor = self.acked = 0
        self.times: list[int] = []
        """When each message was stored."""
        self.suspended = False
        self.held: dict[int, Held] = {}
        self.failed: dict[int, tuple[int, int]] = {}  # sequence: attempts, due

    def give(self, first: int, count: int, attempts: int, now_ms: int) -> None:
        for sequence in range(first, first + count):
            if sequence in self.failed:
                known, due_ms = self.failed.pop(sequence)
                assert (known, True) == (attempts, due_ms <= now_ms)
            else:
                assert (sequence, attempts) == (self.cursor, 0)
                self.cursor += 1

    def take(self, consumer: str, first: int, last: int) -> list[Held]:
        mine = [pull for pull in self.held if first <= pull <= last and self.held[pull].consumer == consumer]
        return [self.held.pop(pull) for pull in mine]

    def release(self, taken: list[Held]) -> None:
        self.failed.update({one.first: (one.attempts, 0) for one in taken})

    def nack(self, taken: list[Held], delay_ms: int, now_ms: int) -> None:
        for one in taken:
            wait_ms = delay_ms if delay_ms >= 0 else BACKOFF_MS[min(one.attempts, 10)]
            self.failed[one.first] = one.attempts + 1, now_ms + wait_ms

    def seek(self, place: int) -> None:
        self.held.clear()
        self.failed.clear()
        self.cursor = place

    def end_leases(self, now_ms: int) -> None:
        """At once the first time; then after the backoff of the attempt before."""
        for pull, one in list(self.held.items()):
            if one.deadline_ms <= now_ms:
                del self.held[pull]
                wait_ms = BACKOFF_MS[min(one.attempts - 1, 10)] if one.attempts else 0
                self.failed[one.first] = one.attempts + 1, one.deadline_ms + wait_ms


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(PATIENT)
        self.model = Model()
        self.nacks = 0

    @rule(count=st.integers(1, 5))
    def send(self, count: int) -> None:
        self.rig.send(*(b"x" for _ in range(count)))
        self.model.stored += count
        self.model.times += [self.rig.now_ms] * count

    @rule(consumer=CONSUMERS, most=st.integers(1, 12))
    def pull(self, consumer: str, most: int) -> None:
        model, now_ms = self.model, self.rig.now_ms
        due = sum(1 for _, due_ms in model.failed.values() if due_ms <= now_ms)
        given = self.rig.pull(most, consumer=consumer).grants
        counts = [grant.count for grant in given]
        if model.suspended:
            assert not given
            return
        assert sum(counts) == min(most, due + model.stored - model.cursor)
        first_new = next(
            (i for i, grant in enumerate(given) if grant.first_sequence >= model.cursor), len(given)
        )
        assert sum(counts[:first_new]) == min(most, due), "failures come first, all that are due"
        for grant in given:
            model.give(grant.first_sequence, grant.count, grant.attempts, now_ms)
            for index in range(grant.count):
                held = Held(consumer, grant.first_sequence + index, grant.attempts, now_ms + LEASE_MS)
                assert grant.pull_sequence + index not in model.held
                model.held[grant.pull_sequence + index] = held

    def some_range(self, data: st.DataObject) -> tuple[int, int]:
        first = data.draw(st.sampled_from(sorted(self.model.held))) + data.draw(st.integers(-2, 2))
        return first, first + data.draw(st.integers(0, 8))

    def missing(self, consumer: str, first: int, last: int) -> set[int]:
        mine = {pull for pull, one in self.model.held.items() if one.consumer == consumer}
        return set(range(first, last + 1)) - mine

    def settle(self, kind, consumer: str, first: int, last: int, *more: int | str) -> bool:
        known = consumer in self.rig.broker.state.groups[1].consumers
        lost = self.missing(consumer, first, last)
        answer = self.rig.ask(kind("g", consumer, SUBJECT, [first, last], *more))
        if known:
            assert isinstance(answer, Done)
            pairs = zip(answer.lost[::2], answer.lost[1::2], strict=True)
            assert {number for low, high in pairs for number in range(low, high + 1)} == lost
        return known

    @precondition(lambda self: self.model.held)
    @rule(consumer=CONSUMERS, data=st.data())
    def ack(self, consumer: str, data: st.DataObject) -> None:
        first, last = self.some_range(data)
        if self.settle(Ack, consumer, first, last):
            self.model.acked += len(self.model.take(consumer, first, last))

    @precondition(lambda self: self.model.held)
    @rule(consumer=CONSUMERS, data=st.data(), delay_ms=st.sampled_from([-1, 0, 300, 2000]))
    def nack(self, consumer: str, data: st.DataObject, delay_ms: int) -> None:
        first, last = self.some_range(data)
        self.nacks += 1  # each for another reason, else the group would be paused
        if self.settle(Nack, consumer, first, last, delay_ms, "x" * self.nacks):
            self.model.nack(self.model.take(consumer, first, last), delay_ms, self.rig.now_ms)

    @precondition(lambda self: self.model.held)
    @rule(consumer=CONSUMERS, data=st.data())
    def release(self, consumer: str, data: st.DataObject) -> None:
        first, last = self.some_range(data)
        if self.settle(Release, consumer, first, last):
            self.model.release(self.model.take(consumer, first, last))

    @precondition(lambda self: self.model.held)
    @rule(consumer=CONSUMERS, data=st.data())
    def extend(self, consumer: str, data: st.DataObject) -> None:
        first, last = self.some_range(data)
        if self.settle(Extend, consumer, first, last):
            for pull, one in self.model.held.items():
                if first <= pull <= last and one.consumer == consumer:
                    one.deadline_ms = self.rig.now_ms + LEASE_MS

    @precondition(lambda self: self.rig.broker.state.groups)
    @rule(place=st.sampled_from(Place), value=st.integers(0, 60), rehearsal=st.booleans())
    def seek(self, place: Place, value: int, rehearsal: bool) -> None:
        """Whatever is held or has failed is void; a rehearsal tells the same and changes nothing."""
        model, now_ms = self.model, self.rig.now_ms
        target = {
            Place.EARLIEST: 0,
            Place.LATEST: model.stored,
            Place.SEQUENCE: min(value, model.stored),
            Place.TIME: sum(1 for stored_ms in model.times if stored_ms < now_ms - 100 * value),
        }[place]
        moment = now_ms - 100 * value if place is Place.TIME else value
        answer = self.rig.ask(Seek("g", SUBJECT, place, moment, rehearsal))
        if answer is None:  # a read had to come first
            answer = self.rig.answers.pop(self.rig.correlation)
        again, skipped = max(0, model.cursor - target), max(0, target - model.cursor)
        counts = again, skipped, len(model.held), len(model.failed)
        assert answer == Sought(model.cursor, target, *counts)
        if not rehearsal:
            model.seek(target)

    @precondition(lambda self: self.rig.broker.state.groups)
    @rule(suspended=st.booleans())
    def suspend(self, suspended: bool) -> None:
        assert isinstance(self.rig.ask(Suspend("g", SUBJECT, suspended)), Done)
        self.model.suspended = suspended

    @rule(milliseconds=st.sampled_from([1, 299, 300, 999, 1000, 5000]))
    def wait(self, milliseconds: int) -> None:
        self.rig.wait(milliseconds)
        self.model.end_leases(self.rig.now_ms)

    @rule(with_checkpoint=st.booleans())
    def restart(self, with_checkpoint: bool) -> None:
        if with_checkpoint:
            self.rig.broker.keeping.checkpoint(self.rig.now_ms)
            self.rig.pump()
        before = self.said()
        self.rig.restart()
        assert self.said() == before

    def said(self) -> bytes:
        """The state but for the number of its life."""
        state = self.rig.broker.state
        numbers = state.boot, state.next_pull
        state.boot = state.next_pull = 0
        packed = pack_state(state, 0, 0)
        state.boot, state.next_pull = numbers
        return packed

    @invariant()
    def every_message_is_where_the_model_says(self) -> None:
        model, groups = self.model, self.rig.broker.state.groups
        if not groups:
            return
        group = groups[1]
        held = {
            one.pull + index: (name, one.first + index, one.attempts, one.deadline_ms)
            for name, consumer in group.consumers.items()
            for one in consumer.held()
            for index in range(one.count)
        }
        failed = {
            one.first + index: (one.attempts, one.due_ms)
            for one in group.failed.values()
            for index in range(one.messages)
        }
        wanted = {
            pull: (one.consumer, one.first, one.attempts, one.deadline_ms) for pull, one in model.held.items()
        }
        assert (group.cursor, group.acked, group.in_flight) == (model.cursor, model.acked, len(model.held))
        assert held == wanted
        assert failed == model.failed


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=40)
