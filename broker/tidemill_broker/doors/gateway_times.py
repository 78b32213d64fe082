"""When messages of a request are to be given out: ``delay`` or ``at``, of each message or of all. Pure.

A delay is a number of seconds, or a text such as ``90m`` or ``1h30m``; a time is an RFC 3339 timestamp with its offset.
What is past goes at once, as everywhere else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill_broker.doors.gateway_messages import TIMES, malformed
from tidemill_host.openapi import Part, header, pattern
from tidemill_host.refusals import HttpRefused, refusal_of
from tidemill_wire.errors import Refused
from tidemill_wire.limits import DELAY_MS_MAX
from tidemill_wire.schema import parse_timestamp

UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
NUMBER = r"[0-9]+(?:\.[0-9]+)?"
PART = re.compile(f"({NUMBER})(ms|s|m|h|d)")
DURATION = f"(?:{NUMBER}(?:ms|s|m|h|d))+"
DAYS_MAX = DELAY_MS_MAX // 86_400_000


@dataclass(frozen=True, slots=True)
class When:
    """A delay, counted from when the request is answered for, or a time; in milliseconds."""

    delay_ms: int = 0
    at_ms: int | None = None

    def delta_ms(self, now_ms: int) -> int:
        """From now on; what is past is due now."""
        return self.delay_ms if self.at_ms is None else max(0, self.at_ms - now_ms)


def parse_whens(value: Mapping[str, Any], default: When | None) -> list[When | None]:
    """Of each message of a body that was found to be good; ``default`` is what the head of the request says."""
    given = parse_when(value) or default
    if "messages" not in value:
        return [given]
    return [parse_when(row, f"messages[{at}].") or given for at, row in enumerate(value["messages"])]


def parse_when(value: Mapping[str, Any], place: str = "") -> When | None:
    """What a message, or a request, says of its time; ``None``: nothing."""
    given = [name for name in TIMES if name in value]
    if len(given) == len(TIMES):
        raise malformed(f"{place}delay and {place}at are both given: give one of them")
    if not given:
        return None
    return _delay(value["delay"], place) if given == ["delay"] else _time(value["at"], place)


def _delay(value: object, place: str) -> When:
    seconds: float = -1
    match value:
        case bool():
            pass
        case int() | float():
            seconds = value
        case str() if re.fullmatch(DURATION, value):
            seconds = sum(float(number) * UNITS_S[unit] for number, unit in PART.findall(value))
        case _:
            pass
    if seconds < 0:
        raise malformed(
            f"{place}delay is no number of seconds from 0 on, and no duration such as 90m or 1h30m"
        )
    if seconds > DELAY_MS_MAX / 1000:
        raise _too_far(f"{place}delay is longer than {DAYS_MAX} days")
    return When(delay_ms=math.ceil(1000 * seconds))


def _time(value: object, place: str) -> When:
    at_ms = parse_timestamp(value) if isinstance(value, str) else None
    if at_ms is None:
        raise malformed(f"{place}at is no time with its offset, such as 2027-01-01T09:00:00+08:00")
    return When(at_ms=at_ms)


def _too_far(what: str) -> HttpRefused:
    return refusal_of(Refused("limit_exceeded", f"{what}, which is the limit"))


def deltas_of(whens: Sequence[When | None], now_ms: int) -> list[int] | None:
    """When each message of a batch is due, from now on; or that none of it is for later. One that says nothing among
    others that do is due now: a batch is kept as a whole.
    """
    if not any(whens):
        return None
    deltas = [0 if when is None else when.delta_ms(now_ms) for when in whens]
    if max(deltas) > DELAY_MS_MAX:
        raise _too_far(f"a message is for more than {DAYS_MAX} days ahead")
    return deltas


def when_fields() -> dict[str, Part]:
    """As the page describes them."""
    seconds = {"type": "number", "minimum": 0, "maximum": DELAY_MS_MAX / 1000}
    return {
        "delay": {
            "anyOf": [seconds, pattern(DURATION, f"as 90m or 1h30m, at most {DAYS_MAX} days")],
            "description": "given out so much later: seconds, or a duration; not together with `at`",
        },
        "at": {
            "type": "string",
            "format": "date-time",
            "description": f"given out then, at most {DAYS_MAX} days ahead; not together with `delay`",
        },
    }


def when_headers() -> list[Part]:
    """The same, in the head of a request."""
    of = "of messages that say nothing of their time"
    at = header("Tidemill-At", f"the time {of}; not with the other", "")
    return [
        header("Tidemill-Delay", f"the delay {of}: seconds, or a duration", f"{NUMBER}|{DURATION}"),
        {**at, "schema": {"type": "string", "format": "date-time"}},
    ]


NOT_BOTH: Part = {"not": {"required": list(TIMES)}}
"""What the page says of the two."""
