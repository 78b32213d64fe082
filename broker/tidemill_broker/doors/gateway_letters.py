"""Which dead letters a request means: all, those with some sequences, or those that are as it says. Pure.

What is said of them (ids, times, reason, fingerprint) stands in the copies themselves, so these have to be read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tidemill_broker.doors.gateway_messages import integer, malformed
from tidemill_broker.doors.gateway_requests import flag, text_of
from tidemill_broker.messages import Found
from tidemill_broker.queries import TIME_END
from tidemill_broker.ranges import merge_ranges
from tidemill_host.openapi import Part, pattern, record, whole
from tidemill_wire import limits
from tidemill_wire.batch import MESSAGE_ID
from tidemill_wire.fields import DEAD_PROPERTY, read_properties
from tidemill_wire.schema import parse_timestamp

SEQUENCE_MAX = (1 << 63) - 1
CHOICES = frozenset({"ids", "from", "to", "reason", "fingerprint"})
FIELDS = CHOICES | {"all", "sequences", "rehearsal"}


@dataclass(frozen=True, slots=True)
class Chosen:
    """Dead letters that are as this says; what is absent allows all."""

    ids: frozenset[str] = frozenset()
    from_ms: int = 0
    to_ms: int = TIME_END
    reason: str = ""
    """A part of the reason."""
    fingerprint: str = ""

    def allows(self, letter: Found) -> bool:
        """Whether it is one of them."""
        known = _known(letter.properties)
        failed_at = known.get("failed_at")
        at_ms = failed_at if isinstance(failed_at, int) else letter.stored_at_ms
        return (
            (not self.ids or (letter.origin or letter.id) in self.ids)
            and self.from_ms <= at_ms < self.to_ms
            and self.reason in str(known.get("reason", ""))
            and self.fingerprint in ("", known.get("fingerprint"))
        )


def _known(packed: bytes) -> Mapping[str, Any]:
    """What the broker wrote of its death; nothing, of bytes that it did not write."""
    known: object = (read_properties(packed) or {}).get(DEAD_PROPERTY)
    return cast("Mapping[str, Any]", known) if isinstance(known, dict) else {}


def allowed(letters: Sequence[Found], chosen: Chosen, handled: Sequence[int]) -> list[int]:
    """The sequences of those that are meant and were not handled before: redriven or purged, as first, last …"""
    found: list[int] = []
    for letter in letters:
        at = bisect_left(handled, letter.sequence)
        if at % 2 or list(handled[at : at + 1]) == [letter.sequence]:
            continue  # in a range, or the first of one
        if chosen.allows(letter):
            found.append(letter.sequence)
    return found


def parse_letters(value: Mapping[str, Any]) -> list[int] | Chosen:
    """Ranges of sequences, of which an empty list means all; or what they are like. All has to be said."""
    ways = [name for name in ("all", "sequences") if name in value]
    like = CHOICES & value.keys()
    if len(ways) + bool(like) > 1:
        raise malformed("name the dead letters in one way: all, their sequences, or what they are like")
    if like:
        return _parse_chosen(value)
    if "rehearsal" in value:
        raise malformed("rehearsal goes with ids, from, to, reason or fingerprint")
    if flag(value, "all"):
        return []
    written: object = value.get("sequences")
    most = limits.HTTP_MESSAGES_MAX
    if not isinstance(written, list) or not 0 < len(cast("list[object]", written)) <= most:
        raise malformed(f"sequences is no list of 1 to {most}, and all is not true")
    numbers = {_sequence(one) for one in cast("list[object]", written)}
    return merge_ranges([(number, 1) for number in sorted(numbers)])


def _parse_chosen(value: Mapping[str, Any]) -> Chosen:
    ids: object = value.get("ids", ["0" * 32 + "-0"])
    most = limits.HTTP_MESSAGES_MAX
    if not isinstance(ids, list) or not 0 < len(cast("list[object]", ids)) <= most:
        raise malformed(f"ids is no list of 1 to {most}")
    for at, one in enumerate(cast("list[object]", ids)):
        if not isinstance(one, str) or not MESSAGE_ID.fullmatch(one):
            raise malformed(f"ids[{at}] is no id of a message")
    flag(value, "rehearsal")
    return Chosen(
        frozenset(one.lower() for one in cast("list[str]", ids)) if "ids" in value else frozenset(),
        _time(value, "from", 0),
        _time(value, "to", TIME_END),
        text_of(value, "reason"),
        text_of(value, "fingerprint"),
    )


def _time(value: Mapping[str, Any], name: str, default: int) -> int:
    if name not in value:
        return default
    written = value[name]
    if not isinstance(written, str):
        return integer(value, name, (0, SEQUENCE_MAX), default)
    at_ms = parse_timestamp(written)
    if at_ms is None:
        raise malformed(f"{name} is no time: write one such as 2026-09-01T00:00:00Z, or milliseconds")
    return max(0, at_ms)


def _sequence(written: object) -> int:
    number = int(written) if type(written) is float and written.is_integer() else written
    if type(number) is not int or not 0 <= number <= SEQUENCE_MAX:
        raise malformed("sequences holds something else than sequences")
    return number


def schema() -> Part:
    """What a request says of them."""
    text = {"type": "string", "maxLength": limits.DETAIL_CHARS_MAX}
    sequences: Part = {
        "type": "array",
        "items": whole(0, SEQUENCE_MAX),
        "minItems": 1,
        "maxItems": limits.HTTP_MESSAGES_MAX,
        "description": "which, by their sequences in the dead letters of the partition that the path names",
    }
    ids: Part = {
        "type": "array",
        "items": pattern(MESSAGE_ID.pattern, "a message's id"),
        "minItems": 1,
        "maxItems": limits.HTTP_MESSAGES_MAX,
        "description": "which, by the ids of their messages",
    }
    time: Part = {"anyOf": [{"type": "string", "format": "date-time"}, whole(0, SEQUENCE_MAX)]}
    like: dict[str, Part] = {
        "ids": ids,
        "from": {**time, "description": "those that failed then or later; a number is in ms since 1970"},
        "to": {**time, "description": "those that failed before then"},
        "reason": {**text, "description": "those with this text in their reason"},
        "fingerprint": {**text, "description": "those of this mistake"},
    }
    rehearsal = {"type": "boolean", "default": False, "description": "only say how many they are"}
    return {
        "anyOf": [
            record({"sequences": sequences}),
            record({"all": {"const": True, "description": "every dead letter of the group"}}),
            record(
                {**like, "rehearsal": rehearsal},
                (*like, "rehearsal"),
                anyOf=[{"required": [name]} for name in like],
            ),
        ]
    }
