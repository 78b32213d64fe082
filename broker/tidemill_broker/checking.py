"""Check-back: producer groups are asked what became of transactions that nobody decides.

Who can answer for a producer group says CHECK and waits. About a transaction whose time has come one of those that wait
is asked, the one that waits for longest; whoever comes next when nobody does. What a connection was asked and did not
answer when it ends is asked of the next one at once. The answer is a DECIDE, from whomever it comes.

    waiting  --a transaction of its group is due-->  answered with CHECKS: transactions, their half messages as slices
    waiting  --its wait is over------------------->  answered with no transaction
    waiting  --its connection ends, the broker drains-->  gone
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tidemill_broker.desk import Desk
from tidemill_broker.pending import Pending
from tidemill_broker.transactions import Transactions
from tidemill_host.machine import Durability, Peer, Send, Slice
from tidemill_wire import limits
from tidemill_wire.commands import encode_command
from tidemill_wire.errors import Unavailable
from tidemill_wire.transacting import Check, CheckRow, Checks


class Waiting(NamedTuple):
    """A CHECK without an answer."""

    peer: Peer
    correlation: int
    until_ms: int
    may: Callable[[str], bool] | None
    """Of which subjects it may know, if not of all: of its producer group's transactions it is asked about those alone
    that are for nothing else.
    """


class Checking:
    """See the module."""

    def __init__(self, desk: Desk, transactions: Transactions) -> None:
        self._desk = desk
        self._transactions = transactions
        self._waiting: dict[str, deque[Waiting]] = {}
        self._counts = Counter[Peer]()
        """How many wait over a connection."""
        self.asked: dict[Peer, dict[int, None]] = {}
        """What was asked over a connection, and may still be answered there."""

    def wait(self, peer: Peer, correlation: int, check: Check, now_ms: int) -> None:
        """Somebody can be asked."""
        if self._counts[peer] >= limits.CORRELATIONS_MAX:
            raise Unavailable("too_many_requests", f"{self._counts[peer]} checks of this connection wait")
        self._counts[peer] += 1
        one = Waiting(peer, correlation, now_ms + check.wait_ms, check.may)
        self._waiting.setdefault(check.group, deque()).append(one)
        self._desk.wake(max(one.until_ms, now_ms + 1))
        self._ask(check.group)

    def left(self, peer: Peer) -> None:
        """A connection ended."""
        del self._counts[peer]
        for group, waiting in list(self._waiting.items()):
            self._keep(group, deque(one for one in waiting if one.peer != peer))
        groups = {self._transactions.ask_again(number) for number in self.asked.pop(peer, ())}
        for group in sorted(groups):
            self._ask(group)

    def ticked(self, now_ms: int) -> None:
        """Whose wait is over, and what is due."""
        for group in list(self._transactions.due):
            self._ask(group)
        for group, waiting in list(self._waiting.items()):
            for one in [one for one in waiting if one.until_ms <= now_ms]:
                waiting.remove(one)
                self._counts[one.peer] -= 1
                self._desk.say(one.peer, one.correlation, Checks([]), Durability.HERE)
            self._keep(group, waiting)

    def next_wake(self, at_most: int) -> int:
        """When the next wait is over, or ``at_most``."""
        return min([at_most, *(one.until_ms for waiting in self._waiting.values() for one in waiting)])

    def drain(self) -> None:
        """Nobody is asked any more."""
        for waiting in self._waiting.values():
            for one in waiting:
                error = Unavailable("shutting_down", "the broker is about to stop")
                self._desk.refuse(one.peer, one.correlation, error)
        self._waiting.clear()
        self._counts.clear()

    def _keep(self, group: str, waiting: deque[Waiting]) -> None:
        if waiting:
            self._waiting[group] = waiting
        else:
            self._waiting.pop(group, None)

    def _ask(self, group: str) -> None:
        """Ask those that wait, as long as there is something to ask."""
        waiting = self._waiting.get(group, deque())
        for one in list(waiting):
            if group not in self._transactions.due:
                break
            chosen = self._transactions.take_due(group, one.may)
            if not chosen:
                continue
            waiting.remove(one)
            self._counts[one.peer] -= 1
            self._note(one.peer, chosen)
            slices = [piece for pending in chosen.values() for piece in self._slices(pending)]
            rows = [
                CheckRow(number, pending.at_ms, pending.checks, len(pending.parts))
                for number, pending in chosen.items()
            ]
            size = sum(piece.size for piece in slices)
            head = encode_command(Checks(rows), one.correlation, trailing=size)
            self._desk.sends.append(Send(one.peer, head, slices))
            self._desk.counters.transactions_checked += len(rows)
        self._keep(group, waiting)

    def _note(self, peer: Peer, chosen: Iterable[int]) -> None:
        """A connection may live for months: what was decided meanwhile is not noted any more."""
        open_still = filter(self._transactions.is_pending, self.asked.get(peer, ()))
        self.asked[peer] = dict.fromkeys((*open_still, *chosen))

    def _slices(self, pending: Pending) -> list[Slice]:
        places = [
            (self._desk.logs.messages.locate(part.position), part.length)
            for _, part in sorted(pending.parts.items())
        ]
        return [Slice(file, place, length) for (file, place), length in places]
