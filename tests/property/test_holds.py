"""Bounds of what is in flight: whatever consumers and time do, nobody is given more than fits, and nobody waits for
room that is there.

After each step the broker's own ``check`` has counted again what is in flight.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from samples.brokers import SUBJECT, TINY, Rig, pulls
from tidemill_broker.partitions import SubjectSettings
from tidemill_wire.commands import Ack, Failed, Nack, Pull, Pulled, Release
from tidemill_wire.errors import KIND_BY_NUMBER
from tidemill_wire.kinds import Place
from tidemill_wire.quotas import Bound
from tidemill_wire.ranges import count_of, pairs
from tidemill_wire.steering import Seek

PATIENT = replace(TINY, lease_ms=1000, consumer_gone_ms=10**9)
SUBJECTS = (SUBJECT, "other")
NAMES = ("token:shop", "token:till", "")
"""Who consumes; the last one has no quota."""
CONSUMERS = ("c", "d")
GROUPS = ("g", "h")


class Held:
    """What one pull was given, as its asker knows it."""

    def __init__(self, who: str, pull: Pull, answer: Pulled) -> None:
        self.who, self.group, self.consumer = who, pull.group, pull.consumer
        self.subject = answer.grants[0].subject
        self.ranges = pulls(answer)


class Bounded(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(PATIENT)
        self.most = dict.fromkeys(NAMES[:2], 3)
        self.subject_most = 0
        self.held: list[Held] = []
        self.waiting: dict[int, tuple[str, Pull]] = {}

    @rule(subject=st.sampled_from(SUBJECTS), count=st.integers(1, 6), priority=st.sampled_from((0, 0, 5)))
    def send(self, subject: str, count: int, priority: int) -> None:
        self.rig.send(*(b"x" for _ in range(count)), subject=subject, priority=priority)
        self.listen()

    @rule(
        who=st.sampled_from(NAMES),
        consumer=st.sampled_from(CONSUMERS),
        group=st.sampled_from(GROUPS),
        both=st.booleans(),
        wait_ms=st.sampled_from((0, 300, 10_000)),
    )
    def pull(self, who: str, consumer: str, group: str, *, both: bool, wait_ms: int) -> None:
        if len(self.waiting) >= 8:
            return
        bound = Bound(who, self.most[who]) if who else None
        subjects = SUBJECTS if both else SUBJECTS[:1]
        pull = Pull(group, consumer, subjects, 100, 1 << 20, wait_ms, bound=bound)
        answer = self.rig.ask(pull)
        self.waiting[self.rig.correlation] = who, pull
        if answer is not None:
            self.rig.answers[self.rig.correlation] = answer
        self.listen()

    def listen(self) -> None:
        """Who waited may have been answered."""
        for correlation in [one for one in self.waiting if one in self.rig.answers]:
            who, pull = self.waiting.pop(correlation)
            answer = self.rig.answers.pop(correlation)
            if isinstance(answer, Failed):
                assert KIND_BY_NUMBER[answer.number].name == "over_quota"
                assert answer.wait_ms > 0
                assert who or self.subject_most
                continue
            assert isinstance(answer, Pulled)
            if answer.grants:
                self.held.append(Held(who, pull, answer))
                if who:
                    hold = self.rig.broker.state.holds.of_identity(Bound(who, self.most[who]))
                    assert hold.count <= hold.most, "more than fits was given"

    @precondition(lambda self: self.held)
    @rule(data=st.data(), how=st.sampled_from((Ack, Ack, Nack, Release)), part=st.booleans())
    def settle(self, data: st.DataObject, how: type[Ack | Nack | Release], *, part: bool) -> None:
        one = data.draw(st.sampled_from(self.held))
        ranges = one.ranges[:2] if part else one.ranges
        if part and ranges[1] > ranges[0]:
            ranges = [ranges[0], ranges[0]]
        self.rig.ask(how(one.group, one.consumer, one.subject, ranges))
        if not part:
            self.held.remove(one)
        self.listen()

    @rule(milliseconds=st.sampled_from((1, 250, 999, 1001, 5000)))
    def time_passes(self, milliseconds: int) -> None:
        self.rig.wait(milliseconds)
        self.listen()

    @rule(most=st.sampled_from((0, 2, 4)))
    def declare(self, most: int) -> None:
        self.subject_most = self.subject_most or most
        made = replace(SubjectSettings("low", 3600, 0, 1 << 20), in_flight_max=most)
        self.rig.broker.intake.declare(SUBJECT, made, self.rig.now_ms)
        self.rig.wait(1)
        self.listen()

    @rule(who=st.sampled_from(NAMES[:2]), most=st.integers(3, 6))
    def grant(self, who: str, most: int) -> None:
        """More, or as much: what was given is within it still."""
        self.most[who] = max(self.most[who], most)

    @rule(group=st.sampled_from(GROUPS))
    def seek(self, group: str) -> None:
        self.rig.ask(Seek(group, SUBJECT, Place.EARLIEST))
        self.listen()

    @rule()
    def restart(self) -> None:
        self.rig.restart()
        self.waiting.clear()

    @invariant()
    def nobody_waits_for_room_that_is_there(self) -> None:
        """To look again at all who wait brings nobody anything."""
        serving, now_ms = self.rig.broker.serving, self.rig.now_ms
        before = serving.pulls.count
        for identity in list(serving.pulls.waiting):
            serving.serve_group(identity, now_ms)
        assert serving.pulls.count == before

    def teardown(self) -> None:
        """In the end all that is handed back or acked comes to somebody."""
        self.rig.wait(700_000)
        self.listen()
        for group in GROUPS:
            for _ in range(500):
                self.rig.wait(100)
                pull = Pull(group, "last", SUBJECTS, 100, 1 << 20, 0, bound=Bound("token:last", 2))
                answer = self.rig.ask(pull)
                assert isinstance(answer, Pulled), answer
                if not answer.grants:
                    break
                held = Held("token:last", pull, answer)
                assert count_of(held.ranges) <= 2
                for first, last in pairs(held.ranges):
                    self.rig.ask(Ack(group, "last", held.subject, [first, last]))
            else:
                raise AssertionError(f"group {group} comes to no end")
        self.rig.broker.check()


TestBounded = Bounded.TestCase
TestBounded.settings = settings(max_examples=30, stateful_step_count=30)
