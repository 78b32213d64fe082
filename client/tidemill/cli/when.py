"""`--delay 90m` and `--at 2027-01-01T09:00+08:00`: when a message is given out."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, NamedTuple

import typer

from tidemill.cli.failures import wrong_usage
from tidemill.cli.texts import parse_text
from tidemill_wire.limits import DELAY_MS_MAX

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")

DelayOption = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Give it out so much later, as in 30s, 90m, 12h or 7d.")
]
AtOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Give it out at this time, as in 2027-01-01T09:00+08:00."),
]
TimerKeyOption = Annotated[
    str | None,
    typer.Option(
        callback=parse_text, help="What to find it by until it is given out, with --delay, --at or --cron."
    ),
]
CronOption = Annotated[
    str | None,
    typer.Option(
        metavar="EXPRESSION", callback=parse_text, help="Let it recur, as in '0 9 * * mon-fri' or @daily."
    ),
]
ZoneOption = Annotated[
    str | None,
    typer.Option(
        metavar="ZONE", callback=parse_text, help="Whose clocks --cron goes by, as Europe/Berlin; else UTC."
    ),
]
MissedOption = Annotated[
    str | None,
    typer.Option(
        metavar="once|all|none",
        callback=parse_text,
        help="What comes of times of --cron that passed without a service.",
    ),
]


class When(NamedTuple):
    """One of the two, or none: now."""

    delay: timedelta | None = None
    at: datetime | None = None


NOW = When()


def parse_when(delay: str | None, at: str | None) -> When:
    """Refused before anything is connected."""
    if delay is not None and at is not None:
        raise wrong_usage("--delay and --at exclude each other: give one of them")
    if delay is not None:
        after = parse_duration(delay)
        if after.total_seconds() * 1000 > DELAY_MS_MAX:
            days = DELAY_MS_MAX // 86_400_000
            raise wrong_usage(f"--delay {delay[:60]!r} is over {days} days: give it a nearer time")
        return When(delay=after)
    if at is None:
        return NOW
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        raise wrong_usage(f"--at {at[:60]!r} is no time: write one such as 2027-01-01T09:00+08:00") from None
    if moment.tzinfo is None:
        raise wrong_usage(f"--at {at[:60]!r} has no time zone: write it behind the time, as +08:00 or Z")
    return When(at=moment)


def parse_duration(written: str, option: str = "--delay") -> timedelta:
    """A number with a unit, or several: 90m, 1h30m."""
    parts = DURATION.findall(written)
    if not parts or "".join(number + unit for number, unit in parts) != written:
        raise wrong_usage(
            f"{option} {written[:60]!r} is no duration: write one such as 30s, 90m, 1h30m or 7d"
        )
    try:
        return timedelta(seconds=sum(float(number) * UNITS[unit] for number, unit in parts))
    except OverflowError:
        raise wrong_usage(f"{written[:60]!r} is longer than any time: write one such as 30s or 7d") from None
