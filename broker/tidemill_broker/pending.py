"""Transactions: which are pending, and what became of those that were decided of late. A part of the state.

    -        --HALF-->      pending     its messages are in the log, and nobody sees them
    pending  --HALF-->      pending     with one half message more
    pending  --CHECK-->     pending     its producer group was asked
    pending  --COMMIT-->    committed   its messages are copied, and are messages like any other
    pending  --ROLLBACK-->  rolled back
    pending, committed  --REOPEN-->  committing   a start found some copies, and not all: the others are made
    committing  --COMMIT--> committed

Those that are decided are remembered, the last ``TRANSACTIONS_REMEMBERED_MAX`` of them: who says it again, because an
answer got lost, is told the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, assert_never

from tidemill_broker.transaction_actions import (
    Checked,
    Committed,
    HalfKept,
    Part,
    Reopened,
    RolledBack,
    TransactionAction,
)
from tidemill_wire import limits


class Pending:
    """A transaction that is not decided, or whose copies are not all made."""

    __slots__ = ("at_ms", "checks", "committing", "due_ms", "group", "parts")

    def __init__(self, group: str) -> None:
        self.group = group
        self.parts: dict[int, Part] = {}
        """By their place in the transaction."""
        self.at_ms = 0
        """When the last half message came."""
        self.due_ms = 0
        """When its producer group is asked next."""
        self.checks = 0
        self.committing = False

    @property
    def size(self) -> int:
        """Bytes of its half messages."""
        return sum(part.length for part in self.parts.values())

    @property
    def messages(self) -> int:
        return sum(part.messages for part in self.parts.values())

    def row(self) -> list[Any]:
        """As it stands in a checkpoint."""
        parts = [list(part) for part in self.parts.values()]
        return [self.group, self.at_ms, self.due_ms, self.checks, self.committing, parts]

    @property
    def subjects(self) -> list[str]:
        return sorted({part.subject for part in self.parts.values()})


class Decision(NamedTuple):
    """What became of a transaction: ``why`` it was rolled back, or 0 when ``messages`` were committed."""

    why: int
    messages: int


class Transactions:
    """See the module."""

    def __init__(self) -> None:
        self.pending: dict[int, Pending] = {}
        self.decided: dict[int, Decision] = {}
        """The oldest first."""
        self.committing: set[int] = set()

    def apply(self, action: TransactionAction) -> None:
        """Change the state."""
        number = action.transaction
        match action:
            case HalfKept(_, group, part, at_ms, due_ms):
                pending = self.pending.setdefault(number, Pending(group))
                pending.parts[part.place] = part
                pending.at_ms, pending.due_ms = at_ms, due_ms
            case Checked(_, checks, due_ms):
                self.pending[number].checks, self.pending[number].due_ms = checks, due_ms
            case Committed(_, _, messages):
                self._decide(number, Decision(0, messages))
            case RolledBack(_, why):
                self._decide(number, Decision(why, 0))
            case Reopened(_, group, at_ms, parts):
                self.decided.pop(number, None)
                self._reopen(number, group, at_ms, parts)
            case _:
                assert_never(action)

    def _reopen(self, number: int, group: str, at_ms: int, parts: Sequence[Part]) -> None:
        pending = self.pending[number] = Pending(group)
        pending.parts = {part.place: part for part in parts}
        pending.at_ms, pending.committing = at_ms, True
        self.committing.add(number)

    def _decide(self, number: int, decision: Decision) -> None:
        self.pending.pop(number, None)
        self.committing.discard(number)
        self.decided.pop(number, None)
        self.decided[number] = decision
        if len(self.decided) > limits.TRANSACTIONS_REMEMBERED_MAX:
            del self.decided[next(iter(self.decided))]

    def holds(self, begin: int, end: int) -> bool:
        """Whether a half message that is still needed lies there in the message log."""
        return any(
            begin <= part.position < end
            for pending in self.pending.values()
            for part in pending.parts.values()
        )

    def go_back(self, back_ms: int) -> None:
        """What lies ahead lies as far ahead as before, on a clock that was set back."""
        for pending in self.pending.values():
            pending.due_ms -= back_ms

    def to_list(self) -> list[Any]:
        """As it stands in a checkpoint; empty when there is nothing to say."""
        if not self.pending and not self.decided:
            return []
        return [
            [[number, *one.row()] for number, one in self.pending.items()],
            [[number, *decision] for number, decision in self.decided.items()],
        ]  # fmt: skip

    def restore(self, pending: Iterable[Sequence[Any]], decided: Iterable[Sequence[Any]]) -> None:
        """What ``to_list`` made."""
        for number, group, at_ms, due_ms, checks, committing, parts in pending:
            self._reopen(number, group, at_ms, [Part(*part) for part in parts])
            one = self.pending[number]
            one.due_ms, one.checks, one.committing = due_ms, checks, committing
            if not committing:
                self.committing.discard(number)
        for number, why, messages in decided:
            self.decided[number] = Decision(why, messages)

    def check(self) -> None:
        """Invariants."""
        assert self.committing == {number for number, one in self.pending.items() if one.committing}
        assert not self.pending.keys() & self.decided.keys()
        for number, one in self.pending.items():
            assert one.parts, number
            assert len(one.parts) <= limits.TRANSACTION_BATCHES_MAX, number
