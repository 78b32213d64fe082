"""What is done with messages for later: the words of the action log, and their bytes. docs/format.md has them, too."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias, assert_never

from tidemill_journal.errors import CorruptRecord
from tidemill_journal.records import Record

_ONE = struct.Struct("<q")
_LIFE = struct.Struct("<qq")
_TWO = struct.Struct("<QQ")
_THREE = struct.Struct("<QQQ")


class ActionKind(IntEnum):
    """The number of a record."""

    STARTED = 1
    SYNCED = 2
    DISPATCHED = 3
    CANCELLED = 4
    CLOSED = 5
    BEGUN = 6
    ENDED = 7
    EPOCH = 16


@dataclass(frozen=True, slots=True)
class Started:
    """A life begins, with hours of this length."""

    boot: int
    hour_ms: int


@dataclass(frozen=True, slots=True)
class Synced:
    """Both logs are on the disk up to there."""

    message_position: int
    action_position: int


@dataclass(frozen=True, slots=True)
class Dispatched:
    """Brokers have these numbers of an hour."""

    hour: int
    ranges: Sequence[int]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Nobody shall get them."""

    hour: int
    ranges: Sequence[int]


@dataclass(frozen=True, slots=True)
class Ended:
    """They recur no more: nothing comes after these numbers of an hour."""

    hour: int
    ranges: Sequence[int]


@dataclass(frozen=True, slots=True)
class Closed:
    """The hours before are over, and get nothing more. All of their messages are done, but for those of hours that are
    kept.
    """

    before_ms: int
    kept: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Begun:
    """What is due up to then may be on its way from here on, and is not cancelled any more."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class EpochBegun:
    """A master begins, and both logs of the group ended there."""

    epoch: int
    message_position: int
    action_position: int


Action: TypeAlias = Started | Synced | Dispatched | Cancelled | Ended | Closed | Begun | EpochBegun


def encode_action(action: Action) -> tuple[int, bytes]:
    """Kind and body of the record."""
    match action:
        case Started(boot, hour_ms):
            return ActionKind.STARTED, _LIFE.pack(boot, hour_ms)
        case Synced(message_position, action_position):
            return ActionKind.SYNCED, _TWO.pack(message_position, action_position)
        case Dispatched(hour, ranges):
            return ActionKind.DISPATCHED, _ONE.pack(hour) + array("Q", ranges).tobytes()
        case Cancelled(hour, ranges):
            return ActionKind.CANCELLED, _ONE.pack(hour) + array("Q", ranges).tobytes()
        case Ended(hour, ranges):
            return ActionKind.ENDED, _ONE.pack(hour) + array("Q", ranges).tobytes()
        case Closed(before_ms, kept):
            return ActionKind.CLOSED, _ONE.pack(before_ms) + array("q", kept).tobytes()
        case Begun(until_ms):
            return ActionKind.BEGUN, _ONE.pack(until_ms)
        case EpochBegun(epoch, message_position, action_position):
            return ActionKind.EPOCH, _THREE.pack(epoch, message_position, action_position)
        case _:
            assert_never(action)


def decode_action(record: Record) -> Action:
    """The action of a record, or ``CorruptRecord``."""
    body = record.body
    try:
        match ActionKind(record.kind):
            case ActionKind.STARTED:
                return Started(*_LIFE.unpack(body))
            case ActionKind.SYNCED:
                return Synced(*_TWO.unpack(body))
            case ActionKind.DISPATCHED:
                return Dispatched(_ONE.unpack_from(body)[0], _ranges(body))
            case ActionKind.CANCELLED:
                return Cancelled(_ONE.unpack_from(body)[0], _ranges(body))
            case ActionKind.ENDED:
                return Ended(_ONE.unpack_from(body)[0], _ranges(body))
            case ActionKind.CLOSED:
                return Closed(_ONE.unpack_from(body)[0], array("q", body[_ONE.size :]))
            case ActionKind.BEGUN:
                return Begun(*_ONE.unpack(body))
            case ActionKind.EPOCH:
                return EpochBegun(*_THREE.unpack(body))
    except (struct.error, ValueError) as error:
        raise CorruptRecord(f"a record of kind {record.kind} that says nothing: {error}") from None


def _ranges(body: bytes) -> Sequence[int]:
    ranges = array("Q", body[_ONE.size :])
    if not ranges or len(ranges) % 2 or any(a > b for a, b in zip(ranges[::2], ranges[1::2], strict=True)):
        raise ValueError("numbers that are no ranges")
    return ranges
