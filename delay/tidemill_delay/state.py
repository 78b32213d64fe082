"""The calendar, and who has sent what. It follows from the two logs: messages are ``placed``, actions are applied.

Invariants: an hour below ``closed_ms`` is not there, unless it is ``kept``; ``messages`` counts all that were ever
placed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from tidemill_delay.actions import (
    Action,
    Begun,
    Cancelled,
    Closed,
    Dispatched,
    Ended,
    EpochBegun,
    Started,
    Synced,
)
from tidemill_delay.hours import Hour
from tidemill_delay.series import ENDED, OPEN, Follower
from tidemill_ledger.producers import Remembering
from tidemill_wire.limits import EPOCHS_MAX
from tidemill_wire.ranges import pairs
from tidemill_wire.replication import EpochStart


class State:
    """See the module."""

    def __init__(self) -> None:
        self.boot = 0
        self.hour_ms = 0
        """How long the hours of the calendar are; 0 before the first life."""
        self.messages = 0
        self.closed_ms = 0
        """No hour before gets anything more."""
        self.kept: frozenset[int] = frozenset()
        """Hours before that, of which something waits."""
        self.begun_ms = 0
        """What is due up to then may be on its way, or has been."""
        self.hours: dict[int, Hour] = {}
        self.cancelled = 0
        self.epochs: list[EpochStart] = []
        """Those that the log has begun."""
        self.lanes: dict[str, Remembering] = {}
        """Who has sent what, by lane: a producer counts in each of them apart."""

    def hour(self, start_ms: int) -> Hour:
        """An hour, made by its first message."""
        hour = self.hours.get(start_ms)
        if hour is None:
            hour = self.hours[start_ms] = Hour(start_ms)
        return hour

    def senders(self, lane: str) -> Remembering:
        """Who has sent what to a lane of a subject."""
        return self.lanes.setdefault(lane, Remembering())

    def apply(self, action: Action) -> None:
        """What an action changes."""
        match action:
            case Started(boot, hour_ms):
                self.boot, self.hour_ms = boot, hour_ms
            case Synced():
                pass
            case Dispatched(start_ms, ranges):
                self._done(start_ms, ranges)
            case Cancelled(start_ms, ranges):
                self.cancelled += self._done(start_ms, ranges)
                if not self.is_closed(start_ms):
                    self.hour(start_ms).cancelled.add(ranges)
            case Ended(start_ms, ranges):
                for number in (first for first, _ in pairs(ranges)):
                    self.follow(start_ms, number, ENDED)
            case Begun(until_ms):
                self.begun_ms = max(self.begun_ms, until_ms)
            case Closed(before_ms, kept):
                self.closed_ms = max(self.closed_ms, before_ms)
                self.kept = frozenset(kept)
                for start_ms in [one for one in self.hours if self.is_closed(one)]:
                    del self.hours[start_ms]
            case EpochBegun(epoch, message_position, action_position):
                self.epochs.append(EpochStart(epoch, message_position, action_position))
                del self.epochs[:-EPOCHS_MAX]
            case _:
                assert_never(action)

    def is_closed(self, start_ms: int) -> bool:
        """Whether an hour is over, and all of its messages are done."""
        return start_ms < self.closed_ms and start_ms not in self.kept

    def moved(self, start_ms: int, number: int) -> None:
        """A message has another time: where it was it is done."""
        if not self.is_closed(start_ms):
            hour = self.hour(start_ms)
            hour.done.add((number, number))
            hour.moved.add((number, number))

    def follow(self, start_ms: int, number: int, follower: Follower) -> None:
        """What comes after a message that recurs."""
        if not self.is_closed(start_ms):
            series = self.hour(start_ms).series
            if follower.number >= 0 or series.get(number, OPEN) == OPEN:  # a replay reads actions first
                series[number] = follower

    def gone_ms(self, now_ms: int, tick_ms: int) -> int:
        """What is due up to then is not cancelled any more: its tick has begun, by this clock or by a former one."""
        return max(self.begun_ms, now_ms // tick_ms * tick_ms)

    def _done(self, start_ms: int, ranges: Sequence[int]) -> int:
        if self.is_closed(start_ms):
            return 0
        return self.hour(start_ms).done.add(ranges)

    @property
    def waiting(self) -> int:
        """Messages that are neither delivered nor cancelled."""
        return sum(hour.waiting for hour in self.hours.values())

    def check(self) -> None:
        """The invariants."""
        for start_ms, hour in self.hours.items():
            assert not self.is_closed(start_ms)
            assert start_ms == hour.start_ms
            hour.check()
