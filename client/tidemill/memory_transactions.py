"""Transactions of the broker in memory: half messages, decisions, and questions to producer groups."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidemill.memory_peer import Peer
from tidemill_wire.batch import Flags, Origin, partition_name, read_header
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Done
from tidemill_wire.transacting import (
    HALF_PARTITION,
    Check,
    CheckRow,
    Checks,
    Decide,
    Half,
    Verdict,
    transaction_id,
)

CHECKS_MAX = 15


@dataclass(slots=True)
class Kept:
    """A transaction that is not decided."""

    group: str
    halves: dict[int, bytes] = field(default_factory=dict[int, bytes])
    checks: int = 0
    at_ms: int = 0
    timer: asyncio.TimerHandle | None = None


class MemoryTransactions:
    """See the module. ``store`` takes batches as a SEND brings them."""

    def __init__(self, store: Callable[[bytearray], object], now_ms: Callable[[], int]) -> None:
        self.check_after_s = 6.0
        """How long a transaction may be silent until its producer group is asked."""
        self.check_interval_s = 30.0
        self.pending: dict[int, Kept] = {}
        self.decided: dict[int, tuple[Verdict, int]] = {}
        self._store = store
        self._now_ms = now_ms
        self._due: dict[str, dict[int, None]] = {}
        self._waiting: dict[str, deque[tuple[Peer, int]]] = {}

    def handle(self, peer: Peer, correlation: int, command: Half | Decide | Check) -> None:
        """Do it and answer."""
        match command:
            case Half():
                self._keep(peer, correlation, command)
            case Decide():
                self._decide(peer, correlation, command)
            case Check():
                self._waiting.setdefault(command.group, deque()).append((peer, correlation))
                later = asyncio.get_running_loop().call_later
                later(command.wait_ms / 1000, self._give_up, command.group, (peer, correlation))
                self._ask(command.group)

    def gone(self, peer: Peer) -> None:
        """Nobody is asked over that connection any more."""
        for group, waiting in self._waiting.items():
            self._waiting[group] = deque(one for one in waiting if one[0] is not peer)

    def rows(self) -> list[dict[str, Any]]:
        """Those that are pending, as a broker's HTTP port says them."""
        return [
            {
                "id": transaction_id(number),
                "group": kept.group,
                "subjects": sorted({partition_name(one, 0, read_header(one)).decode() for one in halves}),
                "messages": sum(read_header(one).messages for one in halves),
                "bytes": sum(map(len, halves)),
                "stored_ms": kept.at_ms,
                "checks": kept.checks,
                "next_check_ms": kept.at_ms + round(1000 * self.check_after_s),
                "committing": False,
            }
            for number, kept in self.pending.items()
            for halves in [list(kept.halves.values())]
        ]

    def _give_up(self, group: str, one: tuple[Peer, int]) -> None:
        """Its wait is over."""
        if one in self._waiting[group]:
            self._waiting[group].remove(one)
            one[0].say(Checks([]), one[1])

    def _keep(self, peer: Peer, correlation: int, half: Half) -> None:
        header = read_header(half.batch)
        number = header.producer_id
        if number in self.decided:
            self._say_decided(peer, correlation, number)
            return
        kept = self.pending.setdefault(number, Kept(half.group))
        kept.halves[header.producer_sequence] = bytes(half.batch)
        kept.at_ms = self._now_ms()
        self._watch(number, self.check_after_s)
        peer.say(Done(), correlation)

    def _decide(self, peer: Peer, correlation: int, command: Decide) -> None:
        number, verdict = command.transaction, command.verdict
        known = self.decided.get(number)
        if known is None and number not in self.pending:
            detail = f"transaction {transaction_id(number)} is not here, or was decided long ago"
            peer.fail(correlation, "unknown_transaction", detail)
        elif known is not None and verdict not in (known[0], Verdict.UNKNOWN):
            self._say_decided(peer, correlation, number)
        elif known is None and verdict is not Verdict.UNKNOWN:
            self._end(number, verdict)
            peer.say(Done(count=self.decided[number][1]), correlation)
        else:
            peer.say(Done(count=known[1] if known is not None else 0), correlation)

    def _say_decided(self, peer: Peer, correlation: int, number: int) -> None:
        what = "committed" if self.decided[number][0] is Verdict.COMMIT else "rolled back"
        peer.fail(correlation, "transaction_decided", f"transaction {transaction_id(number)} was {what}")

    def _end(self, number: int, verdict: Verdict) -> None:
        kept = self.pending.pop(number)
        if kept.timer is not None:
            kept.timer.cancel()
        self._due.get(kept.group, {}).pop(number, None)
        messages = 0
        for _, batch in sorted(kept.halves.items()) if verdict is Verdict.COMMIT else ():
            messages += read_header(batch).messages
            self._store(bytearray(batch))
        self.decided[number] = (verdict, messages)

    def _watch(self, number: int, after_s: float) -> None:
        kept = self.pending[number]
        if kept.timer is not None:
            kept.timer.cancel()
        kept.timer = asyncio.get_running_loop().call_later(after_s, self._check, number)

    def _check(self, number: int) -> None:
        kept = self.pending[number]
        if kept.checks >= CHECKS_MAX:
            self._end(number, Verdict.ROLLBACK)
            return
        kept.checks += 1
        self._due.setdefault(kept.group, {})[number] = None
        self._watch(number, self.check_interval_s)
        self._ask(kept.group)

    def _ask(self, group: str) -> None:
        waiting, due = self._waiting.get(group, deque()), self._due.get(group, {})
        while waiting and due:
            peer, correlation = waiting.popleft()
            number = next(iter(due))
            del due[number]
            kept = self.pending[number]
            halves = [held(batch) for _, batch in sorted(kept.halves.items())]
            row = CheckRow(number, kept.at_ms, kept.checks, len(halves))
            peer.say(Checks([row], memoryview(b"".join(halves))), correlation)


def held(batch: bytes) -> bytes:
    """A half message as a broker keeps it."""
    header = read_header(batch)
    origin = Origin(HALF_PARTITION.encode(), 1, 1, header.batch_id, header.created_at_ms, flags=Flags(0))
    return bytes(build_batch(origin, Content([batch])))
