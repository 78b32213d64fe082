"""Messages that recur: what a user wrote is checked here, and when the first one is due. The delay service does the
rest.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from tidemill.encode import check_timer_key
from tidemill.later import Delay, due_at
from tidemill_wire.cron import Offset
from tidemill_wire.recurrence import begin_series


class Rule(NamedTuple):
    """How a message recurs, as a user says it; with nothing, it does not."""

    cron: str | None = None
    time_zone: str | None = None
    missed: str | None = None


ONE_TIME = Rule()


def due_of(
    rule: Rule, delay: Delay | None, at: datetime | None, keys: tuple[str | None, str | None], now_ms: int
) -> tuple[int | None, bytes | None]:
    """When a message is due first, and how it recurs. ``keys`` are its timer key and its dedup key."""
    timer_key, dedup_key = keys
    if rule == ONE_TIME:
        return due_at(delay, at, now_ms, timer_key), None
    if rule.cron is None:
        raise ValueError("time_zone and missed are of a message that recurs: give cron, too")
    if delay is not None or at is not None:
        raise ValueError("cron says when: leave out delay and at")
    if timer_key is None:
        raise ValueError("a message that recurs is ended by its timer key: give a timer_key")
    if dedup_key is not None:
        raise ValueError(
            "a message that recurs has no dedup key: its occurrences would be taken for repetitions"
        )
    check_timer_key(timer_key)
    said = begin_series((rule.cron, rule.time_zone, rule.missed), offset_in, now_ms)
    return due_at(None, datetime.fromtimestamp(said.planned_ms / 1000, UTC), now_ms), said.encode()


def offset_in(name: str) -> Offset:
    """What clocks of a zone show, as this machine knows it."""
    try:
        zone = ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise ValueError(
            f"there is no time zone {name[:60]!r}: write one such as Europe/Berlin, or install tzdata"
        ) from None
    return lambda second: int(
        (datetime.fromtimestamp(second, zone).utcoffset() or timedelta()).total_seconds()
    )
