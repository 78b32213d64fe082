"""What is said of a whole group: where it goes on, and whether."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tidemill_wire.fields import Fields, malformed, parse_group, parse_stored
from tidemill_wire.kinds import Kind, Place

_I63 = 0x7FFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class Seek:
    """Let a group go on elsewhere. Everything it was given and has not settled is void, and so are its failures."""

    kind: ClassVar = Kind.SEEK
    group: str
    subject: str
    place: Place
    value: int = 0
    """The sequence, or the time in ms."""
    rehearsal: bool = False
    """Say what would happen, and do nothing."""

    def fields(self) -> dict[str, Any]:
        return {
            "group": self.group, "subject": self.subject, "place": int(self.place), "value": self.value,
            "rehearsal": self.rehearsal,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sought:
    """What a SEEK did, or would do, to a group."""

    kind: ClassVar = Kind.SOUGHT
    before: int
    """The sequence that the group would have been given next."""
    sequence: int
    """The one that it is given next."""
    again: int
    """Messages that it was given and is given again."""
    skipped: int
    """Messages that it was not given and is not given any more."""
    in_flight: int
    """Deliveries that became void."""
    failed: int
    """Messages that waited for another attempt and do so no more."""

    def fields(self) -> dict[str, Any]:
        return {
            "before": self.before, "sequence": self.sequence, "again": self.again, "skipped": self.skipped,
            "in_flight": self.in_flight, "failed": self.failed,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Suspend:
    """Give a group nothing more, or again. It keeps its place; what it holds may be settled. Answered with DONE."""

    kind: ClassVar = Kind.SUSPEND
    group: str
    subject: str
    suspended: bool

    def fields(self) -> dict[str, Any]:
        return {"group": self.group, "subject": self.subject, "suspended": self.suspended}


def _parse_seek(f: Fields, _body: bytearray) -> Seek:
    group, subject = parse_group(f.text("group")), parse_stored(f.text("subject"))
    place = f.number("place", min(Place), max(Place))
    return Seek(group, subject, Place(place), f.number("value", 0, _I63), f.flag("rehearsal"))


def _parse_sought(f: Fields, _body: bytearray) -> Sought:
    before, sequence = f.number("before", 0, _I63), f.number("sequence", 0, _I63)
    again, skipped = f.number("again", 0, _I63), f.number("skipped", 0, _I63)
    return Sought(
        before, sequence, again, skipped, f.number("in_flight", 0, _I63), f.number("failed", 0, _I63)
    )


def _parse_suspend(f: Fields, _body: bytearray) -> Suspend:
    if not f.has("suspended"):
        raise malformed("field 'suspended' is missing")
    return Suspend(parse_group(f.text("group")), parse_stored(f.text("subject")), f.flag("suspended"))


PARSERS: dict[int, Callable[[Fields, bytearray], Seek | Sought | Suspend]] = {
    Kind.SEEK: _parse_seek,
    Kind.SOUGHT: _parse_sought,
    Kind.SUSPEND: _parse_suspend,
}
