"""Probes of one kind, in the order in which they were sent: which of them are to come, and what came. Pure.

    a probe is   under way   its send has not ended
                 expected    it was answered, and was not seen
                 doubtful    its send failed, or nobody knows: it may come, and need not; forgotten for want of room
                 seen        it came; remembered for a while, by its sequence
                 lost        it was expected for ``patience_ms`` of attention
                 outlived    it was expected for ``kept_ms`` of time, so retention may have taken it: it is not judged

*Attention* is time in which probes came: from one to the next, when that is no longer than ``gap_ms``. A broker that is
away, a consumer that is not served and a canary that stands still give nothing, so none of these makes a probe lost.
What makes it lost is that others came, again and again, and it did not. It is counted as found when it comes after all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

Kept = TypeVar("Kept")
EXPECTED_MAX = 10_000
"""Probes that did not come yet; with so many that are to come nothing more is sent."""
REMEMBERED_MAX = 4096
"""Probes that came, or were lost, and are known when they come again."""


class Came(StrEnum):
    """What a sighting was."""

    FIRST = "first"
    FOUND = "found"
    """It was lost."""
    STORED_TWICE = "stored"
    """It is stored in two places."""
    ACKNOWLEDGED = "acknowledged"
    """It came again though its ack had been answered."""
    REDELIVERED = "redelivered"
    """It came again before that, as it may."""
    UNKNOWN = "unknown"
    """It is older than what is remembered."""


@dataclass(slots=True)
class Probe:
    """One that is under way, expected or doubtful."""

    number: int
    sent_ms: int
    due_ms: int
    answered_ms: int | None = None
    identity: str = ""
    """Its message's id, when it was answered."""
    lost_at: int | None = None
    """Attention at which it is given up."""


@dataclass(slots=True)
class Known:
    """One that came."""

    sequence: int
    acked: bool = False


@dataclass(slots=True)
class Tally:
    """How many, since the canary began."""

    sent: int = 0
    answered: int = 0
    failed: int = 0
    """Not stored, or nobody knows."""
    held_back: int = 0
    """Not sent, because too many did not come."""
    seen: int = 0
    lost: int = 0
    found: int = 0
    """Lost, and came after all."""
    unjudged: int = 0
    """Expected while another canary of the same name was at work, or until retention may have taken it."""


class Stream:
    """See the module. All times are of one clock that does not jump."""

    def __init__(self, patience_ms: int, gap_ms: int, kept_ms: int) -> None:
        self.tally = Tally()
        self._kept_ms = kept_ms
        self._patience_ms = patience_ms
        self._gap_ms = gap_ms
        self._number = 0
        self._open: dict[int, Probe] = {}
        """Under way, expected and doubtful, by number."""
        self._known: OrderedDict[int, Known] = OrderedDict()
        self._lost: OrderedDict[int, Probe] = OrderedDict()
        self._attention = 0
        self.last_seen_ms: int | None = None
        self._newest = -1
        """The highest number that came."""

    def send(self, now_ms: int, due_ms: int) -> Probe | None:
        """A new one is under way; ``None``: too many did not come."""
        if len(self._open) >= EXPECTED_MAX and not self._make_room():
            self.tally.held_back += 1
            return None
        self.tally.sent += 1
        self._number += 1
        probe = self._open[self._number] = Probe(self._number, now_ms, due_ms)
        return probe

    def _make_room(self) -> bool:
        """Who is doubtful need not come, so it is forgotten before nothing more is sent: as nothing comes then, no
        attention would ever give it up.
        """
        self._open = {
            probe.number: probe
            for probe in self._open.values()
            if probe.lost_at is None or probe.answered_ms is not None
        }
        return len(self._open) < EXPECTED_MAX

    def answered(self, number: int, now_ms: int, identity: str) -> None:
        """It is stored, says the broker."""
        self.tally.answered += 1
        self._ended(number, now_ms)
        if (probe := self._open.get(number)) is not None:
            probe.answered_ms, probe.identity = now_ms, identity

    def failed(self, number: int, now_ms: int) -> None:
        """It is not stored, or nobody knows."""
        self.tally.failed += 1
        self._ended(number, now_ms)

    def _ended(self, number: int, now_ms: int) -> None:
        probe = self._open.get(number)
        if probe is not None:
            waits_ms = max(0, probe.due_ms - now_ms)
            probe.lost_at = self._attention + waits_ms + self._patience_ms

    def seen(self, number: int, sequence: int, now_ms: int) -> tuple[Came, Probe | None]:
        """It came; with what is known of it when it came for the first time."""
        if self.last_seen_ms is not None:
            gap_ms = now_ms - self.last_seen_ms
            self._attention += gap_ms if gap_ms <= self._gap_ms else 0
        self.last_seen_ms = now_ms
        known, probe = self._known.get(number), self._open.pop(number, None)
        if known is not None:
            if known.sequence != sequence:
                return Came.STORED_TWICE, None
            return (Came.ACKNOWLEDGED if known.acked else Came.REDELIVERED), None
        lost = self._lost.pop(number, None)
        if probe is None and lost is None:
            return Came.UNKNOWN, None
        _remember(self._known, number, Known(sequence))
        self.tally.seen += 1
        self.tally.found += lost is not None
        return (Came.FIRST, probe) if lost is None else (Came.FOUND, lost)

    def is_out_of_order(self, number: int, sequence: int) -> tuple[bool, bool]:
        """Of one that came for the first time: whether it was stored in another order than it was sent, and whether it
        came after one that was sent later. To be asked once, after ``seen``.
        """
        newest, self._newest = self._newest, max(self._newest, number)
        before = self._known.get(newest)
        if before is None or newest == number:
            return False, False
        return (number > newest) != (sequence > before.sequence), number < newest

    def acked(self, number: int) -> None:
        """The broker has noted that it was handled."""
        if (known := self._known.get(number)) is not None:
            known.acked = True

    def give_up(self) -> Iterator[Probe]:
        """Those that are lost from now on; who is doubtful is forgotten as late."""
        for probe in list(self._open.values()):
            if probe.lost_at is None:
                continue  # it is under way, and those behind it may have ended
            if probe.lost_at > self._attention:
                if probe.due_ms == probe.sent_ms:
                    break
                continue
            del self._open[probe.number]
            if probe.answered_ms is not None:
                _remember(self._lost, probe.number, probe)
                self.tally.lost += 1
                yield probe

    def forget(self) -> None:
        """Somebody else takes what was expected here: none of it is judged."""
        self._leave([number for number, probe in self._open.items() if probe.lost_at is not None])

    def outlive(self, now_ms: int) -> None:
        """Retention may have taken what is so old, with nobody at fault: it is not judged."""
        kept_ms = now_ms - self._kept_ms
        self._leave(
            [
                number
                for number, probe in self._open.items()
                if probe.answered_ms is not None and max(probe.answered_ms, probe.due_ms) < kept_ms
            ]
        )

    def _leave(self, numbers: list[int]) -> None:
        for number in numbers:
            del self._open[number]
        self.tally.unjudged += len(numbers)

    def expects_from_before(self, now_ms: int) -> bool:
        """Whether one is expected that was answered at that time or before."""
        return any(
            probe.answered_ms is not None and probe.answered_ms <= now_ms for probe in self._open.values()
        )

    @property
    def expected(self) -> int:
        """How many were answered, and did not come yet."""
        return sum(probe.answered_ms is not None for probe in self._open.values())


def _remember(where: OrderedDict[int, Kept], number: int, what: Kept) -> None:
    where[number] = what
    while len(where) > REMEMBERED_MAX:
        where.popitem(last=False)
