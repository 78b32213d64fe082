"""A request to send, proven: its messages, their priority, and when each is to be given out, once or again and again.

What recurs is one message: ``{"text": ..., "cron": "0 9 * * mon-fri", "timer_key": ...}``, with ``time_zone`` and
``missed`` beside it. When it comes first is decided when the request is answered for, as with a delay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidemill_broker.doors.gateway_messages import (
    TIMES,
    Defaults,
    malformed,
    parse_sending,
    plain_message,
)
from tidemill_broker.doors.gateway_times import When, deltas_of, parse_whens
from tidemill_host.openapi import Part, pattern
from tidemill_host.zones import offset_in
from tidemill_wire.columns import Content
from tidemill_wire.cron import EXPRESSION_CHARS_MAX
from tidemill_wire.recurrence import MISSED, ZONE_CHARS_MAX, begin_series

RULE = ("cron", "time_zone", "missed")
CRON = r"@[a-z]+|[^\s@]+(?: [^\s@]+){4}"
ZONE = f"[A-Za-z0-9_+/-]{{1,{ZONE_CHARS_MAX}}}"

Rule: TypeAlias = tuple[str, str | None, str | None]


@dataclass(slots=True)
class Sending:
    """See the module."""

    content: Content
    priority: int
    whens: list[When | None]
    rule: Rule | None = None

    def deltas(self, now_ms: int) -> list[int] | None:
        """When each message is due, from now on; ``None``: none of it is for later. What recurs says so from now on."""
        if self.rule is None:
            return deltas_of(self.whens, now_ms)
        try:
            said = begin_series(self.rule, offset_in, now_ms)
        except ValueError as error:
            raise malformed(str(error)) from None
        self.content.cron = said.encode()
        return deltas_of([When(at_ms=said.planned_ms)], now_ms)


def read_sending(value: Mapping[str, Any], defaults: Defaults, when: When | None) -> Sending:
    """What a body says; ``defaults`` and ``when`` are of the request's head."""
    rule = None if "messages" in value else _rule(value)
    rest = value if rule is None else {name: part for name, part in value.items() if name not in RULE}
    content, priority = parse_sending(rest, defaults)
    if rule is not None:
        if content.dedup_keys is not None:
            raise malformed("what recurs has no dedup_key: its occurrences would be taken for repetitions")
        return Sending(content, priority, [None], rule)
    whens = parse_whens(value, when)
    _check_timed(content, whens, "messages" in value)
    return Sending(content, priority, whens)


def plain_sending(body: bytes, defaults: Defaults, when: When | None) -> Sending:
    """A body that came as it is."""
    content = plain_message(body, defaults)
    _check_timed(content, [when], several=False)
    return Sending(content, defaults.priority, [when])


def _rule(value: Mapping[str, Any]) -> Rule | None:
    """How it recurs, if it does; whether that can be is seen later."""
    for name in RULE:
        if name in value and not isinstance(value[name], str):
            raise malformed(f"{name} is no text")
    if "cron" not in value:
        if "time_zone" in value or "missed" in value:
            raise malformed("time_zone and missed are of a message that recurs: give cron, too")
        return None
    if any(name in value for name in TIMES):
        raise malformed("cron says when: leave out delay and at")
    if "timer_key" not in value:
        raise malformed("a message that recurs is ended by its timer key: give a timer_key")
    return value["cron"], value.get("time_zone"), value.get("missed")


def _check_timed(content: Content, whens: list[When | None], several: bool) -> None:
    """A timer key of what does not wait would find nothing."""
    for at, (key, when) in enumerate(zip(content.timer_keys or (), whens, strict=False)):
        if key is not None and when is None:
            place = f"messages[{at}]." if several else ""
            raise malformed(f"{place}timer_key is of a message for later: give a delay or at")


def rule_fields() -> dict[str, Part]:
    """As the page describes them."""
    return {
        "cron": {
            **pattern(CRON, "minute, hour, day, month and weekday as in crontab(5), or @daily and its like"),
            "maxLength": EXPRESSION_CHARS_MAX,
        },
        "time_zone": pattern(ZONE, "by whose clocks it recurs, as Europe/Berlin", default="UTC"),
        "missed": {
            "enum": list(MISSED),
            "default": MISSED[0],
            "description": "what comes of times that passed while no delay service was there",
        },
    }
