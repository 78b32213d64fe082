"""What a consumer asks for, proven."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeAlias

from tidemill.errors import Refused
from tidemill_wire.commands import Start
from tidemill_wire.fields import broadcast_group, parse_consumer, parse_group
from tidemill_wire.filters import EVERYTHING, TagFilter, parse_subscribed
from tidemill_wire.kinds import Mode
from tidemill_wire.limits import PULL_SUBJECTS_MAX

From: TypeAlias = Literal["earliest", "latest"] | str | datetime | int


@dataclass(frozen=True, slots=True)
class Sharing:
    """How a consumer is given messages, and with whom it shares them."""

    at_most_once: bool = False
    exclusive: bool = False
    broadcast: bool = False
    by_key: bool = False
    """Exclusive, order keys side by side."""

    @property
    def mode(self) -> Mode:
        """As a PULL says it."""
        if self.exclusive and self.broadcast:
            raise ValueError("a broadcast has its messages to itself: leave exclusive away")
        if self.broadcast:
            return Mode.BROADCAST
        if self.by_key:
            return Mode.KEYED
        return Mode.EXCLUSIVE if self.exclusive else Mode.AS_DECLARED


SHARED = Sharing()


@dataclass(frozen=True, slots=True)
class Subscription:
    """Subjects or patterns of them, the group that consumes them, and where it begins when it is new."""

    subjects: tuple[str, ...]
    group: str
    start: int
    name: str | None
    mode: Mode = Mode.AS_DECLARED
    once: bool = False
    base: str = ""
    """Of a broadcast: the group that was named; ``group`` is then the consumer's own."""
    wanted: TagFilter = EVERYTHING

    @classmethod
    def parse(
        cls,
        subjects: str | Iterable[str],
        group: str,
        start: From,
        name: str | None,
        sharing: Sharing = SHARED,
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
        return cls(
            parsed, parse_group(group), parse_start(start), own,
            sharing.mode, sharing.at_most_once, wanted=wanted,
        )  # fmt: skip

    def of_consumer(self, name: str) -> Subscription:
        """The same for a consumer of that name: a broadcast has a group for each."""
        if self.mode is not Mode.BROADCAST:
            return self
        return replace(self, group=broadcast_group(self.group, name), base=self.group)


def parse_start(start: From) -> int:
    """``earliest``, ``latest``, a time, or that time in milliseconds."""
    match start:
        case "earliest":
            return Start.EARLIEST
        case "latest":
            return Start.LATEST
        case datetime():
            return milliseconds(start, "start")
        case int() if start >= 0 and not isinstance(start, bool):
            return start
        case _:
            raise ValueError(f"start {start!r} is none of earliest, latest, a datetime and milliseconds")


def milliseconds(moment: datetime, name: str) -> int:
    """A moment as the broker tells time."""
    if moment.tzinfo is None:
        raise ValueError(f"{name} is a datetime without a time zone: add one, as in datetime.now(UTC)")
    return max(0, int(moment.timestamp() * 1000))
