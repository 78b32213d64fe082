"""Schedules in the words that Spark's operators understand, which are fewer than ours.

Theirs are robfig/cron's: no weekday 7, and a day and a weekday that are both restricted mean either of them, always.
So fields are written as the numbers they hold, and what has no such words is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemill_operator.desired.wanted import SpecError
from tidemill_wire.cron import parse_cron

EVERY = "*"
DAYS, MONTHS, WEEKDAYS = range(1, 32), range(1, 13), range(7)


def plain_schedule(written: str) -> str:
    """Minute, hour, day, month and weekday, without names, ranges and steps."""
    cron = parse_cron(written)
    days, weekdays = _field(cron.days, DAYS), _field(cron.weekdays, WEEKDAYS)
    if cron.either and EVERY in {days, weekdays}:
        days = weekdays = EVERY
    if EVERY not in {days, weekdays} and not cron.either:
        raise SpecError(
            f"spec.schedule {written!r} is for certain days that are certain weekdays, too, which Spark's operators do "
            "not know: restrict one of the two"
        )
    fields = (_field(cron.minutes, range(60)), _field(cron.hours, range(24)), days)
    return " ".join((*fields, _field(cron.months, MONTHS), weekdays))


def _field(numbers: frozenset[int], of: Iterable[int]) -> str:
    return EVERY if numbers.issuperset(of) else ",".join(str(one) for one in sorted(numbers))
