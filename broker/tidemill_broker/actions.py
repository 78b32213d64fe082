"""The words of the action log: everything that was done with messages, one record each.

Sequences are of messages, pulls are of deliveries; ranges are pairs of first and last, both included. Subjects, groups
and consumers are named once and then go by their number: a record that uses a number stands behind the one that gave
it, so whatever prefix of the log survives is complete in itself.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias, assert_never, cast

import msgpack

from tidemill_journal.errors import CorruptRecord
from tidemill_journal.records import Record


class ActionKind(IntEnum):
    """The kinds; numbers are the format's. Those without a class here belong to later versions."""

    START = 1
    SUBJECT = 2
    GROUP = 3
    CONSUMER = 4
    SYNCED = 5
    PULL = 16
    ACK = 17
    FAIL = 18
    EXTEND = 19
    RELEASE = 20
    FOREVER_OFFLINE = 21
    SEEK = 22
    LOCK = 23
    UNLOCK = 24
    COMMIT = 25
    ROLLBACK = 26
    PARK = 27
    VOID = 28
    DEAD = 29
    PAUSE = 30
    RESUME = 31
    REDRIVE = 32
    PURGE = 33


class Reason(IntEnum):
    """Why a delivery failed."""

    NACK = 1
    LEASE_ENDED = 2
    CONSUMER_GONE = 3


class PullRun(NamedTuple):
    """Deliveries ``pull`` … of the messages ``first`` …, ``messages`` of them without a gap."""

    pull: int
    first: int
    messages: int
    attempts: int


@dataclass(frozen=True, slots=True)
class Started:
    """The broker began its ``boot``-th life. Pull sequences of different lives never meet. The wall clock had gone back
    by ``back_ms`` since the last action: moments that lie ahead move with it, or a lease would last an hour longer.
    """

    boot: int
    back_ms: int = 0


@dataclass(frozen=True, slots=True)
class SubjectNamed:
    """A partition got a number, or its settings changed."""

    partition: int
    name: str
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class GroupNamed:
    """A consumer group begins at ``cursor`` of a partition, skipping what was stored before ``start_ms``."""

    group: int
    partition: int
    name: str
    cursor: int
    start_ms: int
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConsumerNamed:
    """A consumer of a group got a number."""

    consumer: int
    group: int
    name: str


@dataclass(frozen=True, slots=True)
class Synced:
    """All before these positions is on the disk: damage there is damage, not a torn tail."""

    message_position: int
    action_position: int


@dataclass(frozen=True, slots=True)
class Pulled:
    """Deliveries were given to a consumer until the deadline."""

    consumer: int
    deadline_ms: int
    runs: Sequence[PullRun]


@dataclass(frozen=True, slots=True)
class Acked:
    """Deliveries were handled."""

    consumer: int
    ranges: Sequence[int]


class FailureDetail(NamedTuple):
    """What a consumer said of a failure: a text, the exception's type and place, and the mark of their kind."""

    reason: str
    error: str
    place: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class FailedDeliveries:
    """Deliveries failed and are due again. ``counted``: as an attempt (1), or not (0)."""

    consumer: int
    due_ms: int
    reason: int
    ranges: Sequence[int]
    at_ms: int = 0
    counted: int = 1
    detail: FailureDetail | None = None


@dataclass(frozen=True, slots=True)
class Extended:
    """Deliveries have a new deadline."""

    consumer: int
    deadline_ms: int
    ranges: Sequence[int]


@dataclass(frozen=True, slots=True)
class Released:
    """Deliveries were handed back untouched."""

    consumer: int
    ranges: Sequence[int]


@dataclass(frozen=True, slots=True)
class ConsumerForgotten:
    """A consumer that holds nothing is gone for good; its number is not used again."""

    consumer: int


@dataclass(frozen=True, slots=True)
class Voided:
    """Messages in the error log that do not exist: a power cut took them, and nobody had been promised them."""

    group: int
    first: int
    messages: int


@dataclass(frozen=True, slots=True)
class Buried:
    """Failed messages lie in the dead-letter subject now: in the batch at ``position`` of the message log. If a power
    cut took that batch, it took the burial, too. ``NOWHERE``: the group keeps no dead letters, they are dropped.
    """

    group: int
    first: int
    messages: int
    position: int


@dataclass(frozen=True, slots=True)
class GroupPaused:
    """A group's deliveries fail alike: it is probed only."""

    group: int
    at_ms: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class GroupResumed:
    """A probe was handled."""

    group: int


@dataclass(frozen=True, slots=True)
class Redriven:
    """Dead letters (sequences in their subject) are given to the group again."""

    group: int
    at_ms: int
    ranges: Sequence[int]


@dataclass(frozen=True, slots=True)
class Purged:
    """Dead letters that nobody wants any more."""

    group: int
    ranges: Sequence[int]


NOWHERE = (1 << 64) - 1

Action: TypeAlias = (
    Started | SubjectNamed | GroupNamed | ConsumerNamed | Synced
    | Pulled | Acked | FailedDeliveries | Extended | Released | ConsumerForgotten | Voided
    | Buried | GroupPaused | GroupResumed | Redriven | Purged
)  # fmt: skip

_U64 = struct.Struct("<Q")
_TWO = struct.Struct("<QQ")
_PULL = struct.Struct("<IIq")
_RUN = struct.Struct("<QQII")
_RANGES = struct.Struct("<IIq")
_U32 = struct.Struct("<I")
_VOID = struct.Struct("<QQQ")
_FAIL = struct.Struct("<IIqqII")
_DEAD = struct.Struct("<QQQQ")
_PAUSE = struct.Struct("<Iiq")
_pack = cast("Callable[[list[Any]], bytes]", msgpack.Packer(autoreset=True).pack)


def _unpack(body: bytes) -> list[Any]:
    return list(cast("list[Any]", msgpack.unpackb(body)))


def _pack_ranges(consumer: int, extra: int, moment: int, ranges: Sequence[int]) -> bytes:
    return _RANGES.pack(consumer, extra, moment) + array("Q", ranges).tobytes()


def encode_action(action: Action) -> tuple[int, bytes]:
    """Kind and body of the record."""
    match action:
        case Pulled(consumer, deadline_ms, runs):
            body = _PULL.pack(consumer, len(runs), deadline_ms) + b"".join(_RUN.pack(*run) for run in runs)
            return ActionKind.PULL, body
        case Acked(consumer, ranges):
            return ActionKind.ACK, _pack_ranges(consumer, 0, 0, ranges)
        case FailedDeliveries():
            return ActionKind.FAIL, _pack_failed(action)
        case Extended(consumer, deadline_ms, ranges):
            return ActionKind.EXTEND, _pack_ranges(consumer, 0, deadline_ms, ranges)
        case Released(consumer, ranges):
            return ActionKind.RELEASE, _pack_ranges(consumer, 0, 0, ranges)
        case Synced(message_position, action_position):
            return ActionKind.SYNCED, _TWO.pack(message_position, action_position)
        case Started(boot, back_ms):
            return ActionKind.START, _TWO.pack(boot, back_ms) if back_ms else _U64.pack(boot)
        case ConsumerForgotten(consumer):
            return ActionKind.FOREVER_OFFLINE, _U32.pack(consumer)
        case Voided(group, first, messages):
            return ActionKind.VOID, _VOID.pack(group, first, messages)
        case Buried(group, first, messages, position):
            return ActionKind.DEAD, _DEAD.pack(group, first, messages, position)
        case GroupPaused(group, at_ms, fingerprint):
            return ActionKind.PAUSE, _PAUSE.pack(group, 0, at_ms) + fingerprint.encode()
        case GroupResumed(group):
            return ActionKind.RESUME, _U32.pack(group)
        case Redriven(group, at_ms, ranges):
            return ActionKind.REDRIVE, _pack_ranges(group, 0, at_ms, ranges)
        case Purged(group, ranges):
            return ActionKind.PURGE, _pack_ranges(group, 0, 0, ranges)
        case SubjectNamed(partition, name, settings):
            return ActionKind.SUBJECT, _pack([partition, name, settings])
        case GroupNamed(group, partition, name, cursor, start_ms, settings):
            return ActionKind.GROUP, _pack([group, partition, name, cursor, start_ms, settings])
        case ConsumerNamed(consumer, group, name):
            return ActionKind.CONSUMER, _pack([consumer, group, name])
        case _:
            assert_never(action)


def _pack_failed(action: FailedDeliveries) -> bytes:
    detail = _pack(list(action.detail)) if action.detail is not None else b""
    head = _FAIL.pack(
        action.consumer, action.reason, action.due_ms, action.at_ms, len(detail), action.counted
    )
    return b"".join((head, detail, bytes(-len(detail) & 7), array("Q", action.ranges).tobytes()))


def decode_action(record: Record) -> Action:
    """The action of a record whose sum was good, or ``CorruptRecord``."""
    try:
        return _decode(record.kind, record.body)
    except (struct.error, ValueError, TypeError) as error:
        raise CorruptRecord(f"an action of kind {record.kind} cannot be read ({error})") from error


def _decode(kind: int, body: bytes) -> Action:
    match kind:
        case ActionKind.PULL:
            consumer, count, deadline_ms = _PULL.unpack_from(body)
            runs = [PullRun(*run) for run in _RUN.iter_unpack(body[_PULL.size :])]
            if len(runs) != count:
                raise ValueError(f"{len(runs)} runs of {count}")
            return Pulled(consumer, deadline_ms, runs)
        case ActionKind.ACK | ActionKind.EXTEND | ActionKind.RELEASE | ActionKind.REDRIVE | ActionKind.PURGE:
            return _decode_ranges(kind, body)
        case ActionKind.FAIL:
            return _decode_failed(body)
        case ActionKind.DEAD:
            return Buried(*_DEAD.unpack(body))
        case ActionKind.PAUSE:
            group, _, at_ms = _PAUSE.unpack_from(body)
            return GroupPaused(group, at_ms, body[_PAUSE.size :].decode())
        case ActionKind.RESUME:
            return GroupResumed(*_U32.unpack(body))
        case ActionKind.SYNCED:
            return Synced(*_TWO.unpack(body))
        case ActionKind.START:
            return Started(*(_U64 if len(body) == _U64.size else _TWO).unpack(body))
        case ActionKind.FOREVER_OFFLINE:
            return ConsumerForgotten(*_U32.unpack(body))
        case ActionKind.VOID:
            return Voided(*_VOID.unpack(body))
        case ActionKind.SUBJECT:
            return SubjectNamed(*_unpack(body))
        case ActionKind.GROUP:
            return GroupNamed(*_unpack(body))
        case ActionKind.CONSUMER:
            return ConsumerNamed(*_unpack(body))
        case _:
            raise ValueError("a kind that this version does not know")


def _decode_ranges(kind: int, body: bytes) -> Action:
    consumer, _, moment = _RANGES.unpack_from(body)
    ranges = _unpack_ranges(body[_RANGES.size :])
    match kind:
        case ActionKind.ACK:
            return Acked(consumer, ranges)
        case ActionKind.REDRIVE:
            return Redriven(consumer, moment, ranges)
        case ActionKind.PURGE:
            return Purged(consumer, ranges)
        case ActionKind.EXTEND:
            return Extended(consumer, moment, ranges)
        case _:
            return Released(consumer, ranges)


def _decode_failed(body: bytes) -> Action:
    consumer, reason, due_ms, at_ms, size, counted = _FAIL.unpack_from(body)
    end = _FAIL.size + size
    start = end + (-size & 7)
    if len(body) < start:
        raise ValueError("a detail that is cut")
    detail = FailureDetail(*_unpack(body[_FAIL.size : end])) if size else None
    ranges = _unpack_ranges(body[start:])
    return FailedDeliveries(consumer, due_ms, reason, ranges, at_ms, counted, detail)


def _unpack_ranges(data: bytes) -> array[int]:
    ranges = array("Q", data)
    if len(ranges) % 2:
        raise ValueError("a range without its end")
    return ranges
