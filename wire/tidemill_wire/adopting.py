"""A failure whose broker is away, told to another one of the subject: with the whole messages, for it has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tidemill_wire import limits
from tidemill_wire.batch import aligned
from tidemill_wire.fields import Fields, parse_group, parse_subject
from tidemill_wire.kinds import Kind

ATTEMPTS_MAX = 0x7FFF_FFFF
"""As a batch can say of its messages."""
_SIZE_BYTES = 4


@dataclass(frozen=True, slots=True)
class Adopt:
    """Messages that failed in a group, after ``attempts`` deliveries before this one: give them to that group again.
    The batch is one of a kind, by its producer id, so it may be said twice.
    """

    kind: ClassVar = Kind.ADOPT
    group: str
    subject: str
    attempts: int
    delay_ms: int
    """As in a NACK: -1 leaves it to the group's policy."""
    reason: str = ""
    error: str = ""
    place: str = ""
    reject: bool = False
    batch: memoryview = memoryview(b"")

    def fields(self) -> dict[str, Any]:
        longest = limits.DETAIL_CHARS_MAX
        said: dict[str, Any] = {
            "group": self.group, "subject": self.subject, "attempts": self.attempts, "delay": self.delay_ms,
            "reason": self.reason[:longest], "error": self.error[:longest], "place": self.place[:longest],
        }  # fmt: skip
        return said | {"reject": True} if self.reject else said


def _parse_adopt(f: Fields, body: bytearray) -> Adopt:
    size = aligned(_SIZE_BYTES + int.from_bytes(body[:_SIZE_BYTES], "little"))
    longest, attempts = limits.DETAIL_CHARS_MAX, f.number("attempts", 0, limits.ATTEMPTS_TOLD_MAX)
    return Adopt(
        parse_group(f.text("group")), parse_subject(f.text("subject")), attempts,
        f.number("delay", -1, limits.NACK_DELAY_MS_MAX), f.text("reason", longest), f.text("error", longest, ""),
        f.text("place", longest, ""), f.flag("reject"), memoryview(body)[size:],
    )  # fmt: skip


PARSERS: dict[int, Callable[[Fields, bytearray], Adopt]] = {Kind.ADOPT: _parse_adopt}
