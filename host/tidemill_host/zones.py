"""What clocks of a time zone show, as this machine knows it."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from tidemill_wire.cron import Offset


@cache
def offset_in(name: str) -> Offset:
    """A zone by its name; ``ValueError`` when this machine does not know it."""
    try:
        zone = ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise ValueError(
            f"there is no time zone {name[:60]!r}: write one such as Europe/Berlin, or install tzdata"
        ) from None
    return lambda second: int(
        (datetime.fromtimestamp(second, zone).utcoffset() or timedelta()).total_seconds()
    )
