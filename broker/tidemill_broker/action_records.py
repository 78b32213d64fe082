"""Actions as records of the action log: kind and body. Format: docs/format.md, "The action log"."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from typing import Any, assert_never, cast

import msgpack

from tidemill_broker.action_kinds import ActionKind
from tidemill_broker.actions import (
    Acked,
    Action,
    Allocated,
    Buried,
    ConsumerForgotten,
    ConsumerNamed,
    EpochBegun,
    Exhumed,
    Extended,
    FailedDeliveries,
    FailureDetail,
    FencePut,
    GroupForgotten,
    GroupNamed,
    GroupPaused,
    GroupResumed,
    Locked,
    Parked,
    Pulled,
    PullRun,
    Purged,
    Redriven,
    Released,
    Removed,
    Skipped,
    Sought,
    Started,
    SubjectNamed,
    Synced,
    Unlocked,
    Voided,
)
from tidemill_broker.transaction_actions import OfTransaction, decode_transaction, encode_transaction
from tidemill_journal.errors import CorruptRecord
from tidemill_journal.records import Record

_U64 = struct.Struct("<Q")
_TWO = struct.Struct("<QQ")
_PULL = struct.Struct("<IIq")
_RUN = struct.Struct("<QQII")
_RANGES = struct.Struct("<IIq")
_U32 = struct.Struct("<I")
_OFFLINE = struct.Struct("<II")
_VOID = struct.Struct("<QQQ")
_FAIL = struct.Struct("<IIqqII")
_PARK = struct.Struct("<IIqq")
_DEAD = struct.Struct("<QQQQ")
_PAUSE = struct.Struct("<Iiq")
_SEEK = struct.Struct("<IIQq")
_LOCK = struct.Struct("<IIq")
_ALLOCATE = struct.Struct("<IIQ")
_EXHUME = struct.Struct("<IIQQq")
_LIMITED = 1 << 31
"""With the number of a PULL's runs: a limit stands behind them."""
_DETAILED = b"\0"
"""In front of a list, where otherwise the mark of a mistake stands."""
_pack = cast("Callable[[list[Any]], bytes]", msgpack.Packer(autoreset=True).pack)


def _unpack(body: bytes) -> list[Any]:
    return list(cast("list[Any]", msgpack.unpackb(body)))


def _pack_ranges(consumer: int, extra: int, moment: int, ranges: Sequence[int]) -> bytes:
    return _RANGES.pack(consumer, extra, moment) + array("Q", ranges).tobytes()


def encode_action(action: Action) -> tuple[int, bytes]:
    """Kind and body of the record."""
    match action:
        case Pulled():
            return ActionKind.PULL, _pack_pulled(action)
        case Acked(consumer, ranges, kept_until_ms):
            return ActionKind.ACK, _pack_ranges(consumer, 0, kept_until_ms, ranges)
        case FailedDeliveries():
            return ActionKind.FAIL, _pack_failed(action)
        case Extended(consumer, deadline_ms, ranges):
            return ActionKind.EXTEND, _pack_ranges(consumer, 0, deadline_ms, ranges)
        case Parked():
            return ActionKind.PARK, _pack_parked(action)
        case Released(consumer, ranges):
            return ActionKind.RELEASE, _pack_ranges(consumer, 0, 0, ranges)
        case Synced(message_position, action_position):
            return ActionKind.SYNCED, _TWO.pack(message_position, action_position)
        case Started(boot, back_ms):
            return ActionKind.START, _TWO.pack(boot, back_ms) if back_ms else _U64.pack(boot)
        case ConsumerForgotten(consumer, group, name):
            said = _OFFLINE.pack(consumer, group) + name.encode() if group else _U32.pack(consumer)
            return ActionKind.FOREVER_OFFLINE, said
        case Voided(group, first, messages):
            return ActionKind.VOID, _VOID.pack(group, first, messages)
        case Skipped(group, cursor, to):
            return ActionKind.SKIP, _VOID.pack(group, cursor, to)
        case Buried(group, first, messages, position):
            return ActionKind.DEAD, _DEAD.pack(group, first, messages, position)
        case GroupPaused(group, at_ms, fingerprint):
            return ActionKind.PAUSE, _PAUSE.pack(group, 0, at_ms) + fingerprint.encode()
        case GroupResumed(group):
            return ActionKind.RESUME, _U32.pack(group)
        case Redriven(group, at_ms, ranges, attempts):
            return ActionKind.REDRIVE, _pack_ranges(group, attempts, at_ms, ranges)
        case Purged(group, ranges):
            return ActionKind.PURGE, _pack_ranges(group, 0, 0, ranges)
        case Sought(group, cursor, start_ms):
            return ActionKind.SEEK, _SEEK.pack(group, 0, cursor, start_ms)
        case Locked(group, consumer, until_ms):
            return ActionKind.LOCK, _LOCK.pack(group, consumer, until_ms)
        case Unlocked(group, at_ms):
            return ActionKind.UNLOCK, _LOCK.pack(group, 0, at_ms)
        case Allocated(group, version, consumer):
            return ActionKind.ALLOCATE, _ALLOCATE.pack(group, 0, version) + consumer.encode()
        case GroupForgotten(group):
            return ActionKind.FORGET, _U32.pack(group)
        case EpochBegun(epoch, message_position, action_position):
            return ActionKind.EPOCH, _VOID.pack(epoch, message_position, action_position)
        case Exhumed():
            return ActionKind.EXHUME, _pack_exhumed(action)
        case SubjectNamed() | GroupNamed() | ConsumerNamed() | Removed() | FencePut():
            return _encode_listed(action)
        case OfTransaction():
            return encode_transaction(action)
        case _:
            assert_never(action)


def _encode_listed(
    action: SubjectNamed | GroupNamed | ConsumerNamed | Removed | FencePut,
) -> tuple[int, bytes]:
    """Those whose body is a msgpack list: they are few."""
    match action:
        case SubjectNamed(partition, name, settings):
            return ActionKind.SUBJECT, _pack([partition, name, settings])
        case GroupNamed(group, partition, name, cursor, start_ms, settings, lanes):
            named = [group, partition, name, cursor, start_ms, settings]
            return ActionKind.GROUP, _pack([*named, lanes] if lanes else named)
        case ConsumerNamed(consumer, group, name):
            return ActionKind.CONSUMER, _pack([consumer, group, name])
        case Removed(subject, removed, number, floors):
            return ActionKind.REMOVE, _pack([subject, removed, number, floors])
        case FencePut(partition, number, ranges, ends):
            return ActionKind.FENCE, _pack([partition, number, list(ranges), list(ends)])
        case _:
            assert_never(action)


def _pack_pulled(action: Pulled) -> bytes:
    count, limit_ms = len(action.runs), action.limit_ms
    runs = b"".join(_RUN.pack(*run) for run in action.runs)
    if not limit_ms:
        return _PULL.pack(action.consumer, count, action.deadline_ms) + runs
    return _PULL.pack(action.consumer, count | _LIMITED, action.deadline_ms) + runs + _U64.pack(limit_ms)


def _pack_failed(action: FailedDeliveries) -> bytes:
    detail = _pack(list(action.detail)) if action.detail is not None else b""
    head = _FAIL.pack(
        action.consumer, action.reason, action.due_ms, action.at_ms, len(detail), action.counted
    )
    return _with_ranges(head, detail, action.ranges)


def _pack_exhumed(action: Exhumed) -> bytes:
    head = _EXHUME.pack(action.group, action.attempts, action.first, action.messages, action.since_ms)
    mark, detail = action.fingerprint, action.detail
    return head + (mark.encode() if detail is None else _DETAILED + _pack([mark, *detail]))


def _pack_parked(action: Parked) -> bytes:
    detail = _pack(list(action.detail))
    head = _PARK.pack(action.consumer, len(detail), action.deadline_ms, action.again_ms)
    return _with_ranges(head, detail, action.ranges)


def _with_ranges(head: bytes, detail: bytes, ranges: Sequence[int]) -> bytes:
    return b"".join((head, detail, bytes(-len(detail) & 7), array("Q", ranges).tobytes()))


def decode_action(record: Record) -> Action:
    """The action of a record whose sum was good, or ``CorruptRecord``."""
    try:
        return _decode(record.kind, record.body)
    except (struct.error, ValueError, TypeError) as error:
        raise CorruptRecord(f"an action of kind {record.kind} cannot be read ({error})") from error


def _decode(kind: int, body: bytes) -> Action:
    match kind:
        case ActionKind.PULL:
            return _decode_pulled(body)
        case ActionKind.ACK | ActionKind.EXTEND | ActionKind.RELEASE | ActionKind.REDRIVE | ActionKind.PURGE:
            return _decode_ranges(kind, body)
        case ActionKind.FAIL:
            return _decode_failed(body)
        case ActionKind.PARK:
            consumer, size, deadline_ms, again_ms = _PARK.unpack_from(body)
            said, ranges = _decode_detail(body, _PARK.size, size)
            if said is None:
                raise ValueError("no detail")
            return Parked(consumer, deadline_ms, ranges, again_ms, said)
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
            if len(body) == _U32.size:
                return ConsumerForgotten(*_U32.unpack(body))
            consumer, group = _OFFLINE.unpack_from(body)
            return ConsumerForgotten(consumer, group, body[_OFFLINE.size :].decode())
        case ActionKind.VOID | ActionKind.SKIP:
            return (Voided if kind == ActionKind.VOID else Skipped)(*_VOID.unpack(body))
        case ActionKind.SEEK | ActionKind.LOCK | ActionKind.UNLOCK | ActionKind.FORGET:
            return _decode_steering(kind, body)
        case ActionKind.EPOCH:
            return EpochBegun(*_VOID.unpack(body))
        case ActionKind.EXHUME:
            group, attempts, first, messages, since_ms = _EXHUME.unpack_from(body)
            text = body[_EXHUME.size :]
            if text[:1] != _DETAILED:
                return Exhumed(group, first, messages, attempts, since_ms, text.decode())
            mark, *detail = _unpack(text[1:])
            return Exhumed(group, first, messages, attempts, since_ms, mark, FailureDetail(*detail))
        case ActionKind.ALLOCATE:
            group, _, version = _ALLOCATE.unpack_from(body)
            return Allocated(group, version, body[_ALLOCATE.size :].decode())
        case ActionKind.FENCE:
            return FencePut(*_unpack(body))
        case ActionKind.HALF | ActionKind.CHECK | ActionKind.COMMIT | ActionKind.ROLLBACK | ActionKind.REOPEN:
            return decode_transaction(kind, body)
        case ActionKind.SUBJECT | ActionKind.GROUP | ActionKind.CONSUMER | ActionKind.REMOVE:
            return _decode_named(kind, body)
        case _:
            raise ValueError("a kind that this version does not know")


def _decode_pulled(body: bytes) -> Action:
    consumer, count, deadline_ms = _PULL.unpack_from(body)
    limited, count = count & _LIMITED, count & ~_LIMITED
    end = len(body) - (_U64.size if limited else 0)
    runs = [PullRun(*run) for run in _RUN.iter_unpack(body[_PULL.size : end])]
    if len(runs) != count:
        raise ValueError(f"{len(runs)} runs of {count}")
    return Pulled(consumer, deadline_ms, runs, *_U64.unpack(body[end:]) if limited else ())


def _decode_named(kind: int, body: bytes) -> Action:
    said = _unpack(body)
    match kind:
        case ActionKind.SUBJECT:
            return SubjectNamed(*said)
        case ActionKind.GROUP:
            return GroupNamed(*said)
        case ActionKind.CONSUMER:
            return ConsumerNamed(*said)
        case _:
            subject, group, number, floors = said
            return Removed(subject, group, number, [(partition, floor) for partition, floor in floors])


def _decode_steering(kind: int, body: bytes) -> Action:
    match kind:
        case ActionKind.SEEK:
            group, _, cursor, start_ms = _SEEK.unpack(body)
            return Sought(group, cursor, start_ms)
        case ActionKind.LOCK:
            return Locked(*_LOCK.unpack(body))
        case ActionKind.UNLOCK:
            group, _, at_ms = _LOCK.unpack(body)
            return Unlocked(group, at_ms)
        case _:
            return GroupForgotten(*_U32.unpack(body))


def _decode_ranges(kind: int, body: bytes) -> Action:
    consumer, attempts, moment = _RANGES.unpack_from(body)
    ranges = _unpack_ranges(body[_RANGES.size :])
    match kind:
        case ActionKind.ACK:
            return Acked(consumer, ranges, moment)
        case ActionKind.REDRIVE:
            return Redriven(consumer, moment, ranges, attempts)
        case ActionKind.PURGE:
            return Purged(consumer, ranges)
        case ActionKind.EXTEND:
            return Extended(consumer, moment, ranges)
        case _:
            return Released(consumer, ranges)


def _decode_failed(body: bytes) -> Action:
    consumer, reason, due_ms, at_ms, size, counted = _FAIL.unpack_from(body)
    detail, ranges = _decode_detail(body, _FAIL.size, size)
    return FailedDeliveries(consumer, due_ms, reason, ranges, at_ms, counted, detail)


def _decode_detail(body: bytes, begin: int, size: int) -> tuple[FailureDetail | None, array[int]]:
    """What stands behind the head: the detail, if there is one, and the ranges."""
    end = begin + size
    start = end + (-size & 7)
    if len(body) < start:
        raise ValueError("a detail that is cut")
    return FailureDetail(*_unpack(body[begin:end])) if size else None, _unpack_ranges(body[start:])


def _unpack_ranges(data: bytes) -> array[int]:
    ranges = array("Q", data)
    if len(ranges) % 2:
        raise ValueError("a range without its end")
    return ranges
