"""What is said of transactions: a half message is kept, a transaction decided, a producer group asked about one.

A transaction is a number above ``SINGLES_FROM``, drawn by the producer. It is the producer id of its batches, and their
place in it is their producer sequence: so a batch that lies in the log says which transaction it came with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple, TypeAlias

from tidemill_wire import limits
from tidemill_wire.batch import SINGLES_FROM, aligned
from tidemill_wire.fields import Fields, malformed, parse_group
from tidemill_wire.kinds import Kind
from tidemill_wire.quotas import Meter

TRANSACTION_END = 1 << 64
HALF_PARTITION = "%half%"
"""Where half messages lie; no user can name it."""
_SIZE_BYTES = 4
_MS_MAX = 0x7FFF_FFFF_FFFF_FFFF


class Verdict(IntEnum):
    """What becomes of a transaction."""

    COMMIT = 1
    ROLLBACK = 2
    UNKNOWN = 3
    """Who was asked cannot say yet: it is asked again."""


@dataclass(frozen=True, slots=True)
class Half:
    """Keep this batch, and show it to nobody before its transaction is committed. Answered with DONE when no failure
    can take it any more. It may be said twice.
    """

    kind: ClassVar = Kind.HALF
    group: str
    """The producer group, which is asked when nobody decides."""
    batch: memoryview = memoryview(b"")
    payer: Meter | None = None
    """Who pays for it, where that has a quota; nothing that crosses a wire."""

    def fields(self) -> dict[str, Any]:
        return {"group": self.group}


@dataclass(frozen=True, slots=True)
class Decide:
    """This becomes of a transaction. Answered with DONE, whose ``count`` is how many messages were committed. Said
    again, it is answered again.
    """

    kind: ClassVar = Kind.DECIDE
    transaction: int
    verdict: Verdict

    def fields(self) -> dict[str, Any]:
        return {"transaction": self.transaction, "verdict": int(self.verdict)}


@dataclass(frozen=True, slots=True)
class Check:
    """I know what becomes of the transactions of a producer group: ask me, now or until the wait is over."""

    kind: ClassVar = Kind.CHECK
    group: str
    wait_ms: int
    may: Callable[[str], bool] | None = None
    """Of which subjects it may know, if not of all; nothing that crosses a wire."""

    def fields(self) -> dict[str, Any]:
        return {"group": self.group, "wait": self.wait_ms}


class CheckRow(NamedTuple):
    """A transaction whose producer is silent."""

    transaction: int
    stored_ms: int
    """When its last half message came."""
    checks: int
    """How often it was asked about, this time included."""
    batches: int
    """How many of those behind the map are its own."""


@dataclass(frozen=True, slots=True)
class Checks:
    """What becomes of these? Behind the map lie the batches that hold their half messages, one in each."""

    kind: ClassVar = Kind.CHECKS
    rows: Sequence[CheckRow]
    batches: memoryview = memoryview(b"")

    def fields(self) -> dict[str, Any]:
        return {"rows": [list(row) for row in self.rows]}


Transacting: TypeAlias = Half | Decide | Check | Checks


def transaction_id(transaction: int) -> str:
    """The text form: 16 hex digits."""
    return f"{transaction:016x}"


def parse_transaction_id(text: str) -> int:
    """``ValueError`` says what one looks like."""
    if len(text) == 16 and all(digit in "0123456789abcdef" for digit in text):
        number = int(text, 16)
        if number >= SINGLES_FROM:
            return number
    raise ValueError(f"{text[:60]!r} is no transaction: 16 hex digits of which the first is 8 to f are one")


def _raw(body: bytearray) -> memoryview:
    return memoryview(body)[aligned(_SIZE_BYTES + int.from_bytes(body[:_SIZE_BYTES], "little")) :]


def _parse_decide(f: Fields, _body: bytearray) -> Decide:
    verdict = f.number("verdict", min(Verdict), max(Verdict))
    return Decide(f.number("transaction", SINGLES_FROM, TRANSACTION_END - 1), Verdict(verdict))


def _parse_checks(f: Fields, body: bytearray) -> Checks:
    rows: list[CheckRow] = []
    for row in f.items("rows", limits.CHECK_ROWS_MAX):
        match row:
            case [int(transaction), int(stored_ms), int(checks), int(batches)] if (
                SINGLES_FROM <= transaction < TRANSACTION_END
                and 0 <= stored_ms <= _MS_MAX
                and checks >= 0
                and 0 < batches <= limits.TRANSACTION_BATCHES_MAX
            ):
                rows.append(CheckRow(transaction, stored_ms, checks, batches))
            case _:
                raise malformed("field 'rows' holds something else than transactions to be asked about")
    return Checks(rows, _raw(body))


PARSERS: dict[int, Callable[[Fields, bytearray], Transacting]] = {
    Kind.HALF: lambda f, body: Half(parse_group(f.text("group")), _raw(body)),
    Kind.DECIDE: _parse_decide,
    Kind.CHECK: lambda f, _body: Check(
        parse_group(f.text("group")), f.number("wait", 0, limits.PULL_WAIT_MS_MAX)
    ),
    Kind.CHECKS: _parse_checks,
}
