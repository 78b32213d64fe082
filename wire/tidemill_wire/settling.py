"""What became of deliveries, as their consumer says it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tidemill_wire import limits
from tidemill_wire.fields import Fields, packed, parse_consumer, parse_group, parse_partition
from tidemill_wire.kinds import Kind


@dataclass(frozen=True, slots=True)
class Settle:
    """What became of deliveries: ``ranges`` is first, last, first, last … of pull sequences, both included."""

    group: str
    consumer: str
    subject: str
    ranges: Sequence[int]

    def fields(self) -> dict[str, Any]:
        ranges = packed(self.ranges)
        return {"group": self.group, "consumer": self.consumer, "subject": self.subject, "ranges": ranges}


@dataclass(frozen=True, slots=True)
class Ack(Settle):
    """They were handled. Answered when that is as durable as the subject asks for."""

    kind: ClassVar = Kind.ACK
    kept_until_ms: int = 0
    """They were not handled: a delay service keeps them for their group until then."""

    def fields(self) -> dict[str, Any]:
        said = Settle.fields(self)
        return {**said, "kept_until": self.kept_until_ms} if self.kept_until_ms else said


@dataclass(frozen=True, slots=True)
class Nack(Settle):
    """They failed: give them out again after ``delay_ms`` (-1: as the group's policy says)."""

    kind: ClassVar = Kind.NACK
    delay_ms: int = -1
    reason: str = ""
    error: str = ""
    """The exception's type, and its ``place`` in the handler's code."""
    place: str = ""
    reject: bool = False
    """Never again: to the dead letters at once."""

    def fields(self) -> dict[str, Any]:
        longest = limits.DETAIL_CHARS_MAX
        said = {"error": self.error[:longest], "place": self.place[:longest], "reject": self.reject}
        return {
            **Settle.fields(self), "delay": self.delay_ms, "reason": self.reason[:longest],
            **{name: value for name, value in said.items() if value},
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Extend(Settle):
    """They are still being handled: the lease begins anew. With ``parked_ms`` they failed, and are tried again in their
    place after so long.
    """

    kind: ClassVar = Kind.EXTEND
    parked_ms: int = -1
    reason: str = ""
    error: str = ""
    place: str = ""

    def fields(self) -> dict[str, Any]:
        if self.parked_ms < 0:
            return Settle.fields(self)
        longest = limits.DETAIL_CHARS_MAX
        said = {"reason": self.reason[:longest], "error": self.error[:longest], "place": self.place[:longest]}
        return {**Settle.fields(self), "parked": self.parked_ms} | {
            name: value for name, value in said.items() if value
        }


@dataclass(frozen=True, slots=True)
class Release(Settle):
    """They were not begun: give them to somebody else at once, as if never given out."""

    kind: ClassVar = Kind.RELEASE


def _settle(f: Fields) -> tuple[str, str, str, list[int]]:
    ranges = f.ranges("ranges", limits.RANGES_MAX)
    group = parse_group(f.text("group"))
    return group, parse_consumer(f.text("consumer")), parse_partition(f.text("subject")), ranges


def _parse_ack(f: Fields, _body: bytearray) -> Ack:
    return Ack(*_settle(f), f.number("kept_until", 0, limits.DOOMED_MS, 0))


def _parse_release(f: Fields, _body: bytearray) -> Release:
    return Release(*_settle(f))


def _parse_nack(f: Fields, _body: bytearray) -> Nack:
    return Nack(
        *_settle(f),
        f.number("delay", -1, limits.NACK_DELAY_MS_MAX),
        f.text("reason", limits.DETAIL_CHARS_MAX),
        f.text("error", limits.DETAIL_CHARS_MAX, ""),
        f.text("place", limits.DETAIL_CHARS_MAX, ""),
        f.flag("reject"),
    )


def _parse_extend(f: Fields, _body: bytearray) -> Extend:
    return Extend(
        *_settle(f),
        f.number("parked", -1, limits.NACK_DELAY_MS_MAX, -1),
        f.text("reason", limits.DETAIL_CHARS_MAX, ""),
        f.text("error", limits.DETAIL_CHARS_MAX, ""),
        f.text("place", limits.DETAIL_CHARS_MAX, ""),
    )


PARSERS: dict[int, Callable[[Fields, bytearray], Ack | Nack | Extend | Release]] = {
    Kind.ACK: _parse_ack,
    Kind.NACK: _parse_nack,
    Kind.EXTEND: _parse_extend,
    Kind.RELEASE: _parse_release,
}
