"""Consumer groups: how far a group has come in a partition, who holds what, what failed.

A message is, for a group, in exactly one of these places:

    beyond the cursor -> delivered (a consumer's pull log, under a lease) -> gone (acked)
                              |                   ^
                              v                   |
                           failed (error log, by reference, with attempts and a due time)

What a consumer has is its pull log (``pull_log``). All changes are made by ``state.apply``, from an action.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from tidemill_broker.actions import FailureDetail
from tidemill_broker.failures import Errors, Failure, Health
from tidemill_broker.group_settings import IN_ORDER, GroupSettings
from tidemill_broker.holds import Hold
from tidemill_broker.pull_log import Consumer
from tidemill_broker.ranges import add_ranges, merge_ranges
from tidemill_wire.limits import DOOMED_MS

NOTHING_PASSED = (-1, -1)


class Group:
    """One consumer group in one partition."""

    __slots__ = (
        "_due", "_failed", "acked", "allocated", "allocation", "buried", "consumers", "cursor", "doomed", "errors",
        "failed", "handled", "health", "identity", "in_flight", "lock_ms", "name", "owner", "partition", "passed",
        "paused", "settings", "silent_ms", "start_ms", "subject_hold", "untried",
    )  # fmt: skip

    def __init__(
        self, identity: int, partition: int, name: str, cursor: int, start_ms: int, settings: GroupSettings
    ) -> None:
        self.identity = identity
        self.partition = partition
        self.name = name
        self.cursor = cursor
        self.start_ms = start_ms
        self.settings = settings
        self.consumers: dict[str, Consumer] = {}
        self.in_flight = 0
        self.subject_hold = Hold(name)
        """What counts what is in flight of its subject; its own until it is in a state."""
        self.acked = 0
        self.owner = 0
        """Of a group in order: the consumer that is given its messages, and until when at least (``lock_ms``)."""
        self.lock_ms = 0
        self.allocation = 0
        """Of a group in order whose consumers are allocated by meta: the latest version that one of them named, and who
        (``allocated``).
        """
        self.allocated = ""
        self.silent_ms = 0
        """Of a broadcast group: since when nobody is there; 0 while somebody is, or nobody ever was."""
        self.passed: tuple[int, int] = NOTHING_PASSED
        """A cursor, and how far from it nothing is wanted; not in the log, and forgotten when the cursor moves."""
        self.failed: dict[int, Failure] = {}
        self._failed = 0  # messages in it
        self.untried = 0
        """Of these, messages that never failed: they were handed back, or redriven."""
        self.doomed: dict[int, FailureDetail | None] = {}
        """First sequences of failures that are to be buried, and of what each failed last: ``errors`` has only the last
        text of a mistake, which may be another message's.
        """
        self.errors = Errors()
        self.health = Health()
        self.paused: tuple[int, str] | None = None
        """Since when, and the fingerprint of what everything fails of."""
        self.buried = 0
        """Messages that became dead letters."""
        self.handled: list[int] = []
        """Of a dead-letter subject: ranges of what was redriven or purged."""
        self._due: list[tuple[int, int]] = []  # heap of (due, first); entries without their failure are stale

    @property
    def ordered(self) -> bool:
        """Messages are handled in their order, by one consumer at a time."""
        return self.settings.consumption in IN_ORDER

    @property
    def room(self) -> int:
        """How many messages more may be in flight; none while the group is suspended."""
        return 0 if self.settings.suspended else self.settings.in_flight_max - self.in_flight

    def hold(self, messages: int) -> None:
        """So many more are in flight, or fewer."""
        self.in_flight += messages
        self.subject_hold.count += messages

    def go_on_at(self, cursor: int, start_ms: int) -> None:
        """As if the group began there: what consumers hold and what failed is void, doomed or not. Of a pause nothing
        is left, for what its messages fail of may lie behind. What it met before (``errors``) may be looked up still.
        """
        for consumer in self.consumers.values():
            consumer.void()
        self.hold(-self.in_flight)
        self._failed = self.untried = 0
        self.failed = {}
        self.doomed = {}
        self._due = []
        self.paused = None
        self.health.end_pause()
        self.cursor, self.start_ms, self.passed = cursor, start_ms, NOTHING_PASSED

    def share(self, other: Group) -> None:
        """How well the group is, is one for all places where its messages are: the other's counts."""
        self.health, self.errors, self.paused = other.health, other.errors, other.paused

    @property
    def reached(self) -> int:
        """Up to where everything was given out or is not wanted: the cursor, or beyond it."""
        cursor, reached = self.passed
        return reached if cursor == self.cursor else self.cursor

    def fail(self, failure: Failure, detail: FailureDetail | None = None) -> None:
        """Put messages into the error log; ``detail`` is kept of what is doomed."""
        assert failure.first not in self.failed
        self.failed[failure.first] = failure
        self._count(failure, 1)
        if failure.due_ms == DOOMED_MS:
            self.doomed[failure.first] = detail
            return
        heapq.heappush(self._due, (failure.due_ms, failure.first))

    def take_failed(self, first: int, count: int) -> Failure:
        """The first ``count`` messages of a failure are delivered again, or buried; what it was."""
        failure = self.failed.pop(first)
        self._count(failure, -1)
        detail = self.doomed.pop(first, None)
        assert count <= failure.messages
        if count < failure.messages:
            self.fail(failure._replace(first=first + count, messages=failure.messages - count), detail)
        return failure

    def handle(self, ranges: Sequence[int]) -> list[tuple[int, int]]:
        """Dead letters were redriven or purged; the (first, count) of those that had not been before."""
        self.handled, fresh = add_ranges(self.handled, ranges)
        return fresh

    def go_back(self, back_ms: int) -> None:
        """The clock was set back by so much: what is due later moves with it."""
        self._due = []
        failures, self.failed = self.failed, {}
        self._failed = self.untried = 0
        for failure in failures.values():
            due_ms = failure.due_ms if failure.due_ms == DOOMED_MS else max(0, failure.due_ms - back_ms)
            moved = failure._replace(due_ms=due_ms, since_ms=max(0, failure.since_ms - back_ms))
            self.fail(moved, self.doomed.get(failure.first))
        if self.paused is not None:
            self.paused = (self.paused[0] - back_ms, self.paused[1])
        if self.owner:
            self.lock_ms = max(0, self.lock_ms - back_ms)
        self.health.forget()

    def next_failure(self) -> Failure | None:
        """The failure that is due first."""
        while self._due:
            due_ms, first = self._due[0]
            failure = self.failed.get(first)
            if failure is not None and failure.due_ms == due_ms:
                return failure
            heapq.heappop(self._due)
        return None

    def due_failures(self, now_ms: int, limit: int) -> list[Failure]:
        """Failures that are due, the earliest first. They stay where they are."""
        popped: list[tuple[int, int]] = []
        due: list[Failure] = []
        while len(due) < limit:
            failure = self.next_failure()
            if failure is None or failure.due_ms > now_ms:
                break
            entry = heapq.heappop(self._due)
            # What failed, was delivered, and failed again with the same due time is in the heap twice: once is enough.
            if entry not in popped[-1:]:
                popped.append(entry)
                due.append(failure)
        for entry in popped:
            heapq.heappush(self._due, entry)
        return due

    def first_failures(self, now_ms: int, limit: int) -> list[Failure]:
        """Failures in the order of their messages, as far as nothing that is not due stands before them."""
        first: list[Failure] = []
        for sequence in sorted(self.failed)[:limit]:
            failure = self.failed[sequence]
            if failure.due_ms > now_ms:
                break
            first.append(failure)
        return first

    def first_due(self) -> Failure | None:
        """The failure that must be given out first in a group in order."""
        return self.failed[min(self.failed)] if self.failed else None

    def held_behind(self, sequence: int) -> list[tuple[Consumer, list[int]]]:
        """Who holds messages behind one, and the ranges of their deliveries."""
        found: list[tuple[Consumer, list[int]]] = []
        for consumer in self.consumers.values():
            behind = [(one.pull, one.count) for one in consumer.held() if one.first > sequence]
            if behind:
                found.append((consumer, merge_ranges(behind)))
        return found

    def failed_count(self) -> int:
        """Messages in the error log."""
        return self._failed

    def _count(self, failure: Failure, sign: int) -> None:
        self._failed += sign * failure.messages
        if not failure.since_ms:
            self.untried += sign * failure.messages

    def holds_before(self, sequence: int) -> bool:
        """Whether the error log or a lease refers to a message below ``sequence``."""
        if min(self.failed, default=sequence) < sequence:
            return True
        return any(
            delivery.first < sequence for consumer in self.consumers.values() for delivery in consumer.held()
        )

    def check(self) -> None:
        """Each message is in one place only, and the counts are right."""
        spans = [(failure.first, failure.messages) for failure in self.failed.values()]
        in_flight = 0
        for consumer in self.consumers.values():
            pulls = [delivery.pull for delivery in consumer.deliveries]
            assert pulls == sorted(pulls)
            for delivery in consumer.held():
                in_flight += delivery.count
                spans.append((delivery.first, delivery.count))
        assert in_flight == self.in_flight, (self.name, in_flight, self.in_flight)
        failed = [(one.messages, 0 if one.since_ms else one.messages) for one in self.failed.values()]
        counted = sum(one for one, _ in failed), sum(one for _, one in failed)
        assert counted == (self._failed, self.untried), (self.name, counted, self._failed, self.untried)
        end = 0
        for first, count in sorted(spans):
            assert first >= end, f"message {first} of group {self.name} is in two places"
            end = first + count
        assert end <= self.cursor, (self.name, end, self.cursor)
