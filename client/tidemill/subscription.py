"""What a consumer asks for, proven."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from tidemill.errors import Refused
from tidemill_wire.commands import Start
from tidemill_wire.fields import parse_consumer, parse_group
from tidemill_wire.filters import EVERYTHING, TagFilter, parse_subscribed
from tidemill_wire.limits import PULL_SUBJECTS_MAX

From: TypeAlias = Literal["earliest", "latest"] | str | datetime | int


@dataclass(frozen=True, slots=True)
class Subscription:
    """Subjects or patterns of them, the group that consumes them, and where it begins when it is new."""

    subjects: tuple[str, ...]
    group: str
    start: int
    name: str | None
    wanted: TagFilter = EVERYTHING

    @classmethod
    def parse(
        cls,
        subjects: str | Iterable[str],
        group: str,
        start: From,
        name: str | None,
        wanted: TagFilter = EVERYTHING,
    ) -> Subscription:
        """The arguments of ``consume``, or ``Refused`` with what is wrong with them."""
        names = (subjects,) if isinstance(subjects, str) else tuple(dict.fromkeys(subjects))
        if not names:
            raise Refused("invalid_subject", "no subject was named")
        if len(names) > PULL_SUBJECTS_MAX:
            raise Refused(
                "limit_exceeded", f"{len(names)} subjects were named, {PULL_SUBJECTS_MAX} are the limit"
            )
        parsed = tuple(parse_subscribed(one) for one in names)
        own = parse_consumer(name) if name else None
        return cls(parsed, parse_group(group), parse_start(start), own, wanted)


def parse_start(start: From) -> int:
    """``earliest``, ``latest``, a time, or that time in milliseconds."""
    match start:
        case "earliest":
            return Start.EARLIEST
        case "latest":
            return Start.LATEST
        case datetime():
            if start.tzinfo is None:
                raise ValueError("start is a datetime without a time zone: add one, as in datetime.now(UTC)")
            return max(0, int(start.timestamp() * 1000))
        case int() if start >= 0 and not isinstance(start, bool):
            return start
        case _:
            raise ValueError(f"start {start!r} is none of earliest, latest, a datetime and milliseconds")
