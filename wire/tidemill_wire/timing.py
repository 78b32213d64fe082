"""What is asked of a delay service about messages that wait: find them, cancel them, give them another time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

from tidemill_wire import limits
from tidemill_wire.batch import parse_message_id
from tidemill_wire.fields import Fields, malformed, parse_subject
from tidemill_wire.kinds import Kind

_I63 = 0x7FFF_FFFF_FFFF_FFFF
AFTER_CHARS_MAX = 60


May: TypeAlias = Callable[[str], bool]
"""Whether somebody was granted that of a subject."""


@dataclass(frozen=True, slots=True)
class Target:
    """Which messages: the one with an id, or those of a subject with a timer key."""

    id: str = ""
    subject: str = ""
    timer_key: str = ""

    def fields(self) -> dict[str, Any]:
        return {"id": self.id} if self.id else {"subject": self.subject, "timer_key": self.timer_key}


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody shall get them. Answered with CHANGED."""

    kind: ClassVar = Kind.CANCEL
    target: Target
    may: May | None = None
    """Whether whoever asks may, where that is not known before; nothing that crosses a wire."""

    def fields(self) -> dict[str, Any]:
        return self.target.fields()


@dataclass(frozen=True, slots=True)
class Reschedule:
    """They are due at another time. Answered with CHANGED."""

    kind: ClassVar = Kind.RESCHEDULE
    target: Target
    due_ms: int
    may: May | None = None
    """As of CANCEL."""

    def fields(self) -> dict[str, Any]:
        return {**self.target.fields(), "due": self.due_ms}


@dataclass(frozen=True, slots=True)
class Show:
    """Those that wait, with their bodies. Answered with WAITING."""

    kind: ClassVar = Kind.SHOW
    target: Target
    may: May | None = None
    """As of CANCEL."""

    def fields(self) -> dict[str, Any]:
        return self.target.fields()


@dataclass(frozen=True, slots=True)
class ListTimers:
    """A page of a subject's messages that wait under timer keys with this prefix, due from ``since_ms`` to before
    ``until_ms``. Answered with WAITING.
    """

    kind: ClassVar = Kind.LIST
    subject: str
    prefix: str
    since_ms: int
    until_ms: int
    after: str
    """Where the page before ended, as its answer said."""
    limit: int

    def fields(self) -> dict[str, Any]:
        return {
            "subject": self.subject, "prefix": self.prefix, "since": self.since_ms, "until": self.until_ms,
            "after": self.after, "limit": self.limit,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of a CANCEL or RESCHEDULE."""

    kind: ClassVar = Kind.CHANGED
    changed: int
    """So many are cancelled, or due at the other time."""
    gone: int
    """So many are on their way, or were delivered."""

    def fields(self) -> dict[str, Any]:
        return {"changed": self.changed, "gone": self.gone}


class TimerRow(NamedTuple):
    """A message that waits."""

    id: str
    subject: str
    timer_key: str
    due_ms: int
    stored_ms: int
    size: int
    """Of its body."""
    body: bytes | None = None
    """Absent in lists, and when it is large."""
    cron: str = ""
    """How it recurs: expression and time zone."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Messages that wait; ``after`` says where the next page begins, and is empty behind the last one."""

    kind: ClassVar = Kind.WAITING
    rows: Sequence[TimerRow]
    after: str = ""

    def fields(self) -> dict[str, Any]:
        return {"rows": [list(row if row.cron else row[:-1]) for row in self.rows], "after": self.after}


Timing: TypeAlias = Cancel | Reschedule | Show | ListTimers | Changed | Waiting


def parse_target(f: Fields) -> Target:
    """An id, or a subject and a timer key."""
    if f.has("id"):
        identity = f.text("id", 60)
        try:
            parse_message_id(identity)
        except ValueError as error:
            raise malformed(str(error)) from None
        return Target(id=identity)
    return Target(subject=parse_subject(f.text("subject")), timer_key=_key(f, "timer_key", 1))


def _key(f: Fields, name: str, least: int) -> str:
    key = f.text(name, limits.KEY_BYTES_MAX)
    if not least <= len(key.encode(errors="replace")) <= limits.KEY_BYTES_MAX:
        raise malformed(f"field {name!r} is no text of {least} to {limits.KEY_BYTES_MAX} bytes")
    return key


def _parse_list(f: Fields, _body: bytearray) -> ListTimers:
    subject, prefix = parse_subject(f.text("subject")), _key(f, "prefix", 0)
    since_ms, until_ms = f.number("since", 0, _I63), f.number("until", 0, _I63)
    after, limit = f.text("after", AFTER_CHARS_MAX), f.number("limit", 1, limits.TIMERS_PAGE_MAX)
    return ListTimers(subject, prefix, since_ms, until_ms, after, limit)


def _parse_waiting(f: Fields, _body: bytearray) -> Waiting:
    rows: list[TimerRow] = []
    for row in f.items("rows", limits.TIMERS_PAGE_MAX):
        match row:
            case [
                str(identity),
                str(subject),
                str(key),
                int(due_ms),
                int(stored_ms),
                int(size),
                bytes() | None as body,
                *more,
            ] if not more or (len(more) == 1 and isinstance(more[0], str)):
                rows.append(TimerRow(identity, subject, key, due_ms, stored_ms, size, body, *more))
            case _:
                raise malformed("field 'rows' holds something else than messages that wait")
    return Waiting(rows, f.text("after", AFTER_CHARS_MAX))


PARSERS: dict[int, Callable[[Fields, bytearray], Timing]] = {
    Kind.CANCEL: lambda f, _body: Cancel(parse_target(f)),
    Kind.RESCHEDULE: lambda f, _body: Reschedule(parse_target(f), f.number("due", 0, _I63)),
    Kind.SHOW: lambda f, _body: Show(parse_target(f)),
    Kind.LIST: _parse_list,
    Kind.CHANGED: lambda f, _body: Changed(f.number("changed", 0, _I63), f.number("gone", 0, _I63)),
    Kind.WAITING: _parse_waiting,
}
