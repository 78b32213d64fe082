"""Dead letters of the broker in memory: what was rejected, or failed as often as may be.

They lie by reference: nothing expires here. What is redriven comes again as itself, with no attempt behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemill.delivery import add_range
from tidemill_wire.commands import Nack
from tidemill_wire.fields import dead_subject
from tidemill_wire.fingerprints import fingerprint_of
from tidemill_wire.lanes import split_lane
from tidemill_wire.ranges import pairs


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that its group gave up."""

    lane: str
    sequence: int
    """In its lane."""
    attempts: int
    why: Nack
    failed_at_ms: int

    @property
    def known(self) -> dict[str, Any]:
        """What a dead letter says of its death."""
        why = self.why
        return {
            "subject": split_lane(self.lane)[0], "group": why.group, "attempts": self.attempts, "since": 0,
            "failed_at": self.failed_at_ms, "reason": why.reason, "error": why.error, "place": why.place,
            "fingerprint": fingerprint_of(why.reason, why.error, why.place), "original": self.sequence,
        }  # fmt: skip


@dataclass(slots=True)
class Grave:
    """The dead letters of one group of a subject; their sequences are their places in the list."""

    letters: list[Letter] = field(default_factory=list[Letter])
    handled: set[int] = field(default_factory=set[int])

    def waiting(self) -> int:
        """Neither redriven nor purged."""
        return len(self.letters) - len(self.handled)

    def handle(self, ranges: Sequence[int]) -> Iterator[Letter]:
        """Take those that wait; no range means all."""
        for first, last in pairs(ranges or [0, len(self.letters) - 1]):
            for number in range(first, min(last + 1, len(self.letters))):
                if number not in self.handled:
                    self.handled.add(number)
                    yield self.letters[number]


class Graves:
    """Those of all groups."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._graves: dict[tuple[str, str], Grave] = {}

    def bury(self, why: Nack, sequence: int, attempts: int) -> None:
        """It comes no more."""
        subject = split_lane(why.subject)[0]
        grave = self._graves.setdefault((subject, why.group), Grave())
        grave.letters.append(Letter(why.subject, sequence, attempts, why, self._now_ms()))

    def of(self, subject: str, group: str) -> Grave | None:
        """Where they lie; ``None`` when nothing of the group ever died."""
        return self._graves.get((subject, group))

    def named(self, name: str) -> Grave | None:
        """By the name of the subject that they are read from."""
        return next((grave for names, grave in self._graves.items() if dead_subject(*names) == name), None)

    def status(self, subject: str, group: str) -> dict[str, Any]:
        """As a broker's HTTP port says it."""
        grave = self.of(subject, group) or Grave()
        handled: list[int] = []
        for number in sorted(grave.handled):
            add_range(handled, number, number)
        place = {
            "subject": dead_subject(subject, group), "first": 0, "next": len(grave.letters),
            "waiting": grave.waiting(), "handled": handled,
        }  # fmt: skip
        errors: dict[str, dict[str, Any]] = {}
        for letter in reversed(grave.letters):
            said = {name: letter.known[name] for name in ("reason", "error", "place", "fingerprint")}
            error = errors.setdefault(
                said["fingerprint"], {**said, "messages": 0, "last_ms": letter.failed_at_ms}
            )
            error["messages"] += 1
        return {**place, "partitions": [{**place, "partition": subject}], "errors": list(errors.values())}
