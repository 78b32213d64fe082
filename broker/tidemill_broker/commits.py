"""Which commits count when logs are replayed. A commit is two writes, copies in the message log and a COMMIT action in
the other, and a power cut may keep either one alone, or some of the copies. Copies say which transaction they came
with, so they decide, as with burials:

    all copies, and the action       committed
    all copies, and no action        committed: the action is written again
    some copies, action or not       committed: the other copies are made (REOPEN)
    no copies, and the action        committed, and nobody was told so: the copies are made (REOPEN)
    neither                          pending as before

A transaction of which a half message is not there is rolled back: its producer was never told that it is kept.
"""

from __future__ import annotations

from tidemill_broker.pending import Pending
from tidemill_broker.state import State
from tidemill_broker.transaction_actions import (
    Committed,
    OfTransaction,
    Part,
    Reopened,
    RolledBack,
    TransactionAction,
    Why,
)
from tidemill_wire.batch import SINGLES_FROM, Flags, Header

TRANSACTIONAL = int(Flags.TRANSACTIONAL)


class Commits:
    """Those of one replay."""

    def __init__(self, state: State) -> None:
        self._transactions = state.transactions
        self._state = state
        self._acted: dict[int, tuple[Committed, Pending | None]] = {}
        """COMMIT actions, and what was pending before."""
        self._copies: dict[int, dict[int, int]] = {}
        """Transaction -> place of a batch in it -> its messages."""

    def note(self, action: OfTransaction) -> None:
        """An action, before it is applied."""
        number = action.transaction
        if isinstance(action, Committed):
            self._acted[number] = (action, self._transactions.pending.get(number))
        else:
            self._acted.pop(number, None)

    def found(self, header: Header) -> None:
        """A batch in the message log."""
        if header.flags & TRANSACTIONAL and header.producer_id >= SINGLES_FROM:
            copies = self._copies.setdefault(header.producer_id, {})
            copies[header.producer_sequence] = header.messages

    def settle(self, start: int, end: int) -> list[TransactionAction]:
        """Do what follows from copies that stand alone, or are missing, in a message log that goes from ``start`` to
        ``end``: applied, and to be written.
        """
        written: list[TransactionAction] = []
        for number, (action, pending) in self._acted.items():
            missing = [] if pending is None else self._missing(number, pending)
            if not missing or action.position < start:
                continue  # copies below the start were there, and went with their segment
            if any(part.position < start or part.position + part.length > end for part in missing):
                continue
            assert pending is not None
            written.append(Reopened(number, pending.group, pending.at_ms, missing))
        for number, copies in self._copies.items():
            if number in self._acted or number in self._transactions.decided:
                continue
            pending = self._transactions.pending.get(number)
            missing = [] if pending is None else self._missing(number, pending)
            if pending is not None and missing:
                written.append(Reopened(number, pending.group, pending.at_ms, missing))
            else:
                written.append(Committed(number, start, sum(copies.values())))
        for number, pending in self._transactions.pending.items():
            if number not in self._copies and any(
                part.position + part.length > end for part in pending.parts.values()
            ):
                written.append(RolledBack(number, Why.LOST))
        for one in written:
            self._state.apply(one)
        return written

    def _missing(self, number: int, pending: Pending) -> list[Part]:
        copies = self._copies.get(number, {})
        return [part for place, part in pending.parts.items() if place not in copies]
