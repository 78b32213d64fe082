"""Cron expressions: when something that recurs is next. Pure: what a zone's clocks show is a function that is passed.

    minute hour day month weekday        0 9 * * mon-fri        @daily

Lists, ranges, steps and names, as in crontab(5); when day and weekday are both restricted, either is enough. Where the
clocks of the zone are turned, an expression for certain hours keeps its days: a time that does not exist comes at the
first moment after the gap (once, however many fall into it), and of a time that is there twice the first counts. One
for every hour goes by time that passes: nothing for what does not exist, and twice what is there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

Offset: TypeAlias = Callable[[int], int]
"""How far the clocks of a zone are ahead of UTC, both in seconds, at a second of UTC."""
Zones: TypeAlias = Callable[[str], Offset]
"""A zone by its name; ``ValueError`` when it is not known."""

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
DAYS_MAX = 9 * 366
"""Two 29ths of February are eight years apart at most."""
EXPRESSION_CHARS_MAX = 200
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
NICKNAMES = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Field:
    """One of the five: what it is called, its numbers, and names for them."""

    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()


FIELDS = (
    Field("minute", 0, 59), Field("hour", 0, 23), Field("day", 1, 31), Field("month", 1, 12, MONTHS),
    Field("weekday", 0, 7, WEEKDAYS),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cron:
    """An expression that was read."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool
    """Day and weekday are both restricted."""

    def falls_on(self, month: int, day: int, weekday: int) -> bool:
        """Whether it has times on such a day."""
        by_day, by_weekday = day in self.days, weekday in self.weekdays
        return month in self.months and (by_day or by_weekday if self.either else by_day and by_weekday)

    @property
    def hourly(self) -> bool:
        """It goes by time that passes."""
        return len(self.hours) == 24


def parse_cron(text: str) -> Cron:
    """The expression in a text; ``ValueError`` says in a sentence what is wrong."""
    written = NICKNAMES.get(text.strip().lower(), text).split()
    if text.strip().startswith("@") and text.strip().lower() not in NICKNAMES:
        raise ValueError(
            f"{text[:60]!r} is no cron expression: of those with @ there are {' '.join(NICKNAMES)}"
        )
    if len(written) != len(FIELDS) or len(text) > EXPRESSION_CHARS_MAX:
        raise ValueError(
            f"{text[:60]!r} is no cron expression: write minute, hour, day, month and weekday, as in '0 9 * * mon-fri'"
        )
    try:
        minutes, hours, days, months, weekdays = map(_numbers, FIELDS, written)
    except ValueError as error:
        raise ValueError(f"{text[:60]!r} is no cron expression: {error}") from None
    either = not written[2].startswith("*") and not written[4].startswith("*")
    return Cron(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), either)


def next_after(cron: Cron, after_s: int, offset: Offset) -> int | None:
    """The first second of UTC behind this one at which it is time; ``None``: there is no such day, as 30 February."""
    back = max(0, offset(after_s) - offset(after_s + 2 * DAY_S))
    best: int | None = None
    for local in _locals(cron, after_s + offset(after_s) - back):
        before, behind = offset(local - DAY_S), offset(local + DAY_S)
        if best is not None and best <= local - max(before, behind):
            break
        for found in _moments(local, (before, behind), offset, hourly=cron.hourly):
            if found > after_s:
                best = found if best is None else min(best, found)
    return best


def _numbers(field: Field, text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.lower().split(","):
        span, slash, step = part.partition("/")
        size = _plain(step) if slash else 1
        if size is None or size < 1:
            raise ValueError(f"the step {step!r} of the {field.name} is no number from 1 on")
        first, dash, last = span.partition("-")
        if span == "*":
            start, end = field.least, field.most - (field.name == "weekday")
        else:
            start = _number(field, first)
            end = _number(field, last) if dash else (field.most if slash else start)
            if field.name == "weekday" and dash and end == 0:
                end = 7
        if end < start:
            raise ValueError(f"the {field.name}s {span!r} end before they begin")
        found.update(range(start, end + 1, size))
    return frozenset(found)


def _number(field: Field, text: str) -> int:
    if text in field.names:
        return field.names.index(text) + field.least
    number = _plain(text)
    if number is None or not field.least <= number <= field.most:
        named = f", and no name as {field.names[1]}" if field.names else ""
        raise ValueError(f"the {field.name} {text!r} is not within {field.least} and {field.most}{named}")
    return number


def _plain(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 4 else None


def _locals(cron: Cron, from_s: int) -> Iterator[int]:
    """What clocks on the wall show at its times, as if it were UTC, from a minute on."""
    first = from_s // DAY_S
    times = sorted(hour * HOUR_S + minute * MINUTE_S for hour in cron.hours for minute in cron.minutes)
    least = from_s // MINUTE_S * MINUTE_S
    for days in range(first, first + DAYS_MAX):
        month, day = _month_and_day(days)
        if cron.falls_on(month, day, (days + 4) % 7):
            yield from (local for time in times if (local := days * DAY_S + time) >= least)


def _month_and_day(days: int) -> tuple[int, int]:
    """Of the Gregorian calendar, days after 1970-01-01. Years that begin in March have their odd day at the end."""
    days += 719_468
    era_day = days % 146_097
    year = (era_day - era_day // 1_460 + era_day // 36_524 - era_day // 146_096) // 365
    day = era_day - (365 * year + year // 4 - year // 100)
    month = (5 * day + 2) // 153
    return (month + 3 if month < 10 else month - 9), day - (153 * month + 2) // 5 + 1


def _moments(local: int, offsets: tuple[int, int], offset: Offset, *, hourly: bool) -> list[int]:
    """When clocks show that; ``offsets`` are those of the days before and behind."""
    found = sorted({local - ahead for ahead in offsets if offset(local - ahead) == ahead})
    if hourly or len(found) == 1:
        return found
    if found:
        return found[:1]
    low, high = local - DAY_S, local + DAY_S
    while high - low > 1:  # the first second with the later offset
        middle = (low + high) // 2
        low, high = (middle, high) if offset(middle) == offsets[0] else (low, middle)
    return [high]
