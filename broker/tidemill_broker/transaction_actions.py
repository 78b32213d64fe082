"""The words of the action log that speak of transactions, and their bytes. Format: docs/format.md, "The action log"."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias, assert_never, cast

import msgpack

from tidemill_broker.action_kinds import ActionKind

_ENDED = struct.Struct("<QQQ")
_CHECKED = struct.Struct("<QIIq")
_pack = cast("Callable[[Any], bytes]", msgpack.Packer(autoreset=True).pack)


class Why(IntEnum):
    """Why a transaction was rolled back."""

    SAID = 1
    SILENCE = 2
    """Nobody answered for its producer group, however often it was asked."""
    LOST = 3
    """A power cut took a half message, before its producer was told that it is kept."""


class Part(NamedTuple):
    """A half message as it lies in the log: one batch of a transaction, ``place`` being its own there."""

    place: int
    position: int
    length: int
    subject: str
    messages: int


@dataclass(frozen=True, slots=True)
class OfTransaction:
    """What all of them have."""

    transaction: int


@dataclass(frozen=True, slots=True)
class HalfKept(OfTransaction):
    """A half message is in the log; if nobody decides, its producer group is asked at ``due_ms``."""

    group: str
    part: Part
    at_ms: int
    due_ms: int


@dataclass(frozen=True, slots=True)
class Checked(OfTransaction):
    """It was asked about for the ``checks``-th time, and is again at ``due_ms``."""

    checks: int
    due_ms: int


@dataclass(frozen=True, slots=True)
class Committed(OfTransaction):
    """Its messages were copied, from ``position`` in the message log on."""

    position: int
    messages: int


@dataclass(frozen=True, slots=True)
class RolledBack(OfTransaction):
    """Nobody will ever see its messages."""

    why: int


@dataclass(frozen=True, slots=True)
class Reopened(OfTransaction):
    """It is committed, and these parts of it are not copied yet: a power cut took the copies, or came before them."""

    group: str
    at_ms: int
    parts: Sequence[Part]


TransactionAction: TypeAlias = HalfKept | Checked | Committed | RolledBack | Reopened


def encode_transaction(action: TransactionAction) -> tuple[int, bytes]:
    """Kind and body."""
    number = action.transaction
    match action:
        case HalfKept(_, group, part, at_ms, due_ms):
            return ActionKind.HALF, _pack([number, group, at_ms, due_ms, *part])
        case Checked(_, checks, due_ms):
            return ActionKind.CHECK, _CHECKED.pack(number, checks, 0, due_ms)
        case Committed(_, position, messages):
            return ActionKind.COMMIT, _ENDED.pack(number, position, messages)
        case RolledBack(_, why):
            return ActionKind.ROLLBACK, _ENDED.pack(number, why, 0)
        case Reopened(_, group, at_ms, parts):
            return ActionKind.REOPEN, _pack([number, group, at_ms, [list(part) for part in parts]])
        case _:
            assert_never(action)


def decode_transaction(kind: int, body: bytes) -> TransactionAction:
    """The action of a record of one of these kinds; any ``ValueError`` or ``TypeError`` says that it is none."""
    match kind:
        case ActionKind.HALF:
            number, group, at_ms, due_ms, *part = _unpack(body)
            return HalfKept(number, group, Part(*part), at_ms, due_ms)
        case ActionKind.CHECK:
            number, checks, _, due_ms = _CHECKED.unpack(body)
            return Checked(number, checks, due_ms)
        case ActionKind.COMMIT:
            return Committed(*_ENDED.unpack(body))
        case ActionKind.ROLLBACK:
            number, why, _ = _ENDED.unpack(body)
            return RolledBack(number, why)
        case _:
            number, group, at_ms, parts = _unpack(body)
            return Reopened(number, group, at_ms, [Part(*part) for part in parts])


def _unpack(body: bytes) -> list[Any]:
    return list(cast("list[Any]", msgpack.unpackb(body)))
