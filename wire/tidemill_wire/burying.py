"""What is said of a group's dead letters: which are given to it again, which nobody wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tidemill_wire import limits
from tidemill_wire.fields import Fields, packed, parse_group, parse_stored
from tidemill_wire.kinds import Kind


@dataclass(frozen=True, slots=True)
class Bury:
    """What REDRIVE and PURGE have in common: sequences in the dead letters of a group; no range means all."""

    subject: str
    group: str
    ranges: Sequence[int]

    def fields(self) -> dict[str, Any]:
        return {"subject": self.subject, "group": self.group, "ranges": packed(self.ranges)}


@dataclass(frozen=True, slots=True)
class Redrive(Bury):
    """Give them to the group again, with no attempt behind them."""

    kind: ClassVar = Kind.REDRIVE


@dataclass(frozen=True, slots=True)
class Purge(Bury):
    """Nobody wants them any more."""

    kind: ClassVar = Kind.PURGE


def _parse_bury(f: Fields) -> tuple[str, str, list[int]]:
    subject, group = parse_stored(f.text("subject")), parse_group(f.text("group"))
    return subject, group, f.ranges("ranges", limits.RANGES_MAX)


PARSERS: dict[int, Callable[[Fields, bytearray], Redrive | Purge]] = {
    Kind.REDRIVE: lambda f, _body: Redrive(*_parse_bury(f)),
    Kind.PURGE: lambda f, _body: Purge(*_parse_bury(f)),
}
