"""Lanes against a model: whatever comes in and whoever pulls, each message comes once, in its order within its lane,
the highest first, and no lane is passed over for longer than its share allows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from samples.brokers import SUBJECT, TINY, Rig
from tidemill_broker.group_settings import GroupSettings
from tidemill_wire.commands import Ack, Done, Nack
from tidemill_wire.kinds import Place
from tidemill_wire.lanes import first_of_lane, lane_name, priority_of, split_lane
from tidemill_wire.limits import LANE_SHARE, PRIORITY_MAX
from tidemill_wire.steering import Seek, Sought

PATIENT = replace(TINY, lease_ms=3_600_000, consumer_gone_ms=10**9, action_segment_bytes=1024)
PRIORITIES = st.sampled_from((0, 1, 3, PRIORITY_MAX))
CONSUMERS = st.sampled_from("cd")
IN_FLIGHT = 40


class Lanes(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(PATIENT)
        self.rig.send(b"x")
        partition = self.rig.broker.state.partitions[1]
        declared = GroupSettings(lease_ms=3_600_000, in_flight_max=IN_FLIGHT)
        self.rig.broker.members.declare_group(partition, "g", (0, 0), declared, self.rig.now_ms)
        self.rig.pump()
        self.stored = Counter({0: 1})
        """How many messages each lane has."""
        self.cursor: Counter[int] = Counter()
        self.held: dict[int, tuple[str, int]] = {}
        """Pull sequence -> consumer and sequence."""
        self.failed: set[int] = set()
        self.passed: Counter[int] = Counter()
        """Messages that others were given while a lane waited."""
        self.largest = self.given = 0
        self.early: Counter[int] = Counter()
        """Messages that a lane was given while a higher one waited."""

    def waiting(self) -> set[int]:
        fresh = {priority for priority in self.stored if self.cursor[priority] < self.stored[priority]}
        return fresh | {priority_of(sequence) for sequence in self.failed}

    @rule(priority=PRIORITIES, count=st.integers(1, 30))
    def send(self, priority: int, count: int) -> None:
        sent = self.rig.send(*(b"x" for _ in range(count)), priority=priority)
        assert list(sent.first_sequences) == [first_of_lane(priority) + self.stored[priority]]
        self.stored[priority] += count

    @rule(consumer=CONSUMERS, most=st.integers(1, 60))
    def pull(self, consumer: str, most: int) -> None:
        waiting = self.waiting()
        grants = self.rig.pull(most, consumer=consumer).grants
        given = sum(grant.count for grant in grants)
        if not waiting or len(self.held) >= IN_FLIGHT:
            assert not grants
            return
        [lane] = {grant.subject for grant in grants}
        priority = split_lane(lane)[1]
        assert priority in waiting
        assert 0 < given <= min(most, IN_FLIGHT - len(self.held))
        failed_there = {sequence for sequence in self.failed if priority_of(sequence) == priority}
        for grant in grants:
            self.take(consumer, priority, grant.first_sequence, grant.count, grant.pull_sequence)
        came_again = failed_there - self.failed
        assert len(came_again) == min(given, len(failed_there)), (
            "what failed comes before what is new, in its lane"
        )
        self.count(priority, waiting, given)

    def take(self, consumer: str, priority: int, first: int, count: int, pull: int) -> None:
        for offset in range(count):
            sequence = first + offset
            assert priority_of(sequence) == priority
            if sequence in self.failed:
                self.failed.remove(sequence)
            else:
                assert sequence == first_of_lane(priority) + self.cursor[priority], "each once, in its order"
                self.cursor[priority] += 1
            assert pull + offset not in self.held
            self.held[pull + offset] = consumer, sequence

    def count(self, priority: int, waiting: set[int], given: int) -> None:
        """Higher ones first, but for a share; and nobody is passed over for long."""
        self.given += given
        self.largest = max(self.largest, given)
        if priority < max(waiting):
            self.early[priority] += given
            assert self.early[priority] * LANE_SHARE <= self.given
        for other in self.stored:
            others = self.passed[other] + given if other in waiting and other != priority else 0
            self.passed[other] = others
            assert others <= 2 * (LANE_SHARE + self.largest) or other == max(waiting), "it starves"

    @precondition(lambda self: self.held)
    @rule(data=st.data(), count=st.integers(1, 40))
    def ack(self, data: st.DataObject, count: int) -> None:
        for pull in sorted(self.held)[data.draw(st.integers(0, len(self.held) - 1)) :][:count]:
            consumer, sequence = self.held.pop(pull)
            lane = lane_name(SUBJECT, priority_of(sequence))
            assert self.rig.ask(Ack("g", consumer, lane, [pull, pull])) == Done([])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def nack(self, data: st.DataObject) -> None:
        pull = data.draw(st.sampled_from(sorted(self.held)))
        consumer, sequence = self.held.pop(pull)
        lane = lane_name(SUBJECT, priority_of(sequence))
        assert self.rig.ask(Nack("g", consumer, lane, [pull, pull], 0, f"{pull}")) == Done([])
        self.failed.add(sequence)

    @rule(place=st.sampled_from([Place.EARLIEST, Place.LATEST]))
    def seek(self, place: Place) -> None:
        answer = self.rig.ask(Seek("g", SUBJECT, place, 0, False))
        assert isinstance(answer, Sought)
        assert (answer.in_flight, answer.failed) == (len(self.held), len(self.failed))
        self.held.clear()
        self.failed.clear()
        self.cursor = Counter() if place is Place.EARLIEST else Counter(self.stored)

    @rule(checkpoint=st.booleans())
    def restart(self, checkpoint: bool) -> None:
        if checkpoint:
            self.rig.broker.keeping.checkpoint(self.rig.now_ms)
            self.rig.pump()
        self.rig.sync()
        self.rig.restart()
        self.passed.clear()  # what is owed is forgotten
        self.given = 0
        self.early.clear()

    @invariant()
    def agrees(self) -> None:
        family = self.rig.broker.state.family(self.rig.broker.state.groups[1])
        for group in family:
            priority = priority_of(group.cursor)
            assert group.cursor == first_of_lane(priority) + self.cursor[priority]
        assert sum(group.in_flight for group in family) == len(self.held)
        assert sum(group.failed_count() for group in family) == len(self.failed)


TestLanes = Lanes.TestCase
TestLanes.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
