"""Transactions: half messages are kept, decided, and asked about when nobody decides.

A half message is a batch as its producer made it, in the body of another one in a partition that nobody is shown. Its
commit is a copy: the batch is read, and stored as if it came now, with its flag TRANSACTIONAL, and with the number of
its transaction as its producer. Copies and COMMIT are of one ``Ready``; which of them count after a power cut,
``commits.py`` says. What each state and event becomes is in ``pending.py``.

    kept     --DECIDE commit-->    reading   --all was read-->     copied, COMMIT written, answered
                                             --the disk refuses--> kept; who decided is told
    kept     --DECIDE rollback-->  ROLLBACK written
    kept     --silence-->          asked (CHECK), by whoever of its producer group waits for that; at last rolled back
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush

from tidemill_broker.desk import Desk
from tidemill_broker.intake import Intake
from tidemill_broker.partitions import Partition, SubjectSettings
from tidemill_broker.pending import Decision, Pending
from tidemill_broker.settings import BrokerSettings
from tidemill_broker.transaction_actions import Checked, Committed, HalfKept, Part, RolledBack, Why
from tidemill_host.machine import Buffer, Durability, Peer, Slice, Unread
from tidemill_ledger.columns import check_bodies
from tidemill_wire import limits
from tidemill_wire.batch import (
    NOT_TAKEN,
    SINGLES_FROM,
    BatchIds,
    Flags,
    Header,
    Origin,
    check_said,
    partition_name,
    read_header,
)
from tidemill_wire.columns import Batch, Column, Content, build_batch, read_directory
from tidemill_wire.commands import Done
from tidemill_wire.counted import counted
from tidemill_wire.errors import CorruptBatch, Refused, Unavailable, WireError
from tidemill_wire.transacting import HALF_PARTITION, Decide, Half, Verdict, transaction_id

PRODUCER = 3 << 61
"""The producer id of what holds half messages, with the number of the broker's life."""
REFUSED = NOT_TAKEN & ~int(Flags.TRANSACTIONAL) | int(Flags.ORDERED | Flags.DEDUPLICATED)
KEPT = SubjectSettings("high", 0, 0, limits.BATCH_BYTES_MAX)
"""What holds half messages is kept while one of them is pending (``keeping.py``), and no longer."""
HOW = {
    Why.SAID: "by its producer",
    Why.SILENCE: "because nobody of its producer group said in time what becomes of it",
    Why.LOST: "because a power cut took a half message of it, before its producer was told that it is kept",
}


class Copying:
    """A commit whose half messages are being read."""

    def __init__(self) -> None:
        self.read: dict[int, bytearray] = {}
        self.asked: list[tuple[Peer, int]] = []
        """Who waits for the answer."""
        self.problem = ""


class Transactions:
    """See the module."""

    def __init__(self, desk: Desk, intake: Intake, settings: BrokerSettings, now_ms: int) -> None:
        self._desk = desk
        self._intake = intake
        self._settings = settings
        self._transactions = desk.state.transactions
        self._ids = BatchIds(PRODUCER | desk.state.boot)
        self._sequence = 0
        self._copying: dict[int, Copying] = {}
        self._queue: deque[int] = deque()
        """Commits that wait until there is memory for reading them."""
        self._bytes_read = 0
        self._again_at_ms = now_ms
        """When commits that a start found half done are tried next."""
        self._due = [(one.due_ms, number) for number, one in self._transactions.pending.items()]
        heapify(self._due)
        self.due: dict[str, dict[int, None]] = {}
        """Of each producer group those that are to be asked about, and nobody was there to be asked."""

    # -- half messages -----------------------------------------------------------------------------------------

    def keep(self, half: Half, now_ms: int) -> None:
        """Put it into the log, unless it is there."""
        batch = bytearray(half.batch)
        header, subject = self._admit(batch, now_ms)
        number, index = header.producer_id, header.producer_sequence
        known = self._check(number, half.group)
        if known is not None and index in known.parts:
            return
        if self._intake.refusal is not None:
            raise self._intake.refusal
        self._check_bounds(known, len(batch))
        partition = self._intake.found(subject, now_ms)
        self._intake.quotas.charge(partition, (header.messages, header.length), half.payer, now_ms)
        held = self._intake.declare(HALF_PARTITION, KEPT, now_ms)
        self._sequence += 1
        producer = PRODUCER | self._desk.state.boot
        origin = Origin(held.raw_name, producer, self._sequence, self._ids.next(now_ms), header.created_at_ms)
        kept = build_batch(origin, Content([bytes(batch)]))
        position = self._desk.logs.messages.end
        self._intake.place(kept, held, now_ms)
        due_ms = now_ms + self._settings.transaction_check_after_ms
        part = Part(index, position, len(kept), subject, header.messages)
        self._desk.act(HalfKept(number, half.group, part, now_ms, due_ms), now_ms)
        self._desk.counters.halves_kept += header.messages
        self._watch(number, due_ms)

    def _admit(self, batch: bytearray, now_ms: int) -> tuple[Header, str]:
        """The header of a half message that may become a message, and its subject, which is made."""
        try:
            header = read_header(batch)
            if header.length != len(batch):
                raise CorruptBatch(f"a batch of {header.length} bytes in {len(batch)}")
            with memoryview(batch) as view:
                partition = self._intake.admit(view, 0, header, now_ms, REFUSED)
                check_bodies(view, 0, header, partition.settings.message_bytes_max)
                keyed = header.column_count > 2 and Column.ORDER_KEYS in read_directory(view, 0, header)
        except CorruptBatch as error:
            raise Refused("corrupt_batch", str(error)) from error
        if keyed:
            raise Refused("unsupported_flag", "a message of a transaction has an order key")
        if not header.flags & Flags.TRANSACTIONAL or header.producer_id < SINGLES_FROM:
            raise Refused("malformed_command", "a half message does not say of which transaction it is")
        if header.producer_sequence >= limits.TRANSACTION_BATCHES_MAX:
            detail = f"a transaction has {limits.TRANSACTION_BATCHES_MAX} half messages at most"
            raise Refused("limit_exceeded", detail)
        self._intake.gate.check(partition.name)
        return header, partition_name(batch, 0, header).decode()

    def _check(self, number: int, group: str) -> Pending | None:
        """The transaction, if it is there and takes half messages still."""
        known, decided = self._transactions.pending.get(number), self._transactions.decision(number)
        if decided is not None:
            raise already(number, decided)
        if known is None:
            return None
        if known.committing or number in self._copying:
            raise Refused("transaction_decided", f"transaction {transaction_id(number)} is being committed")
        if known.group != group:
            detail = f"transaction {transaction_id(number)} is of producer group {known.group!r}"
            raise Refused("malformed_command", detail)
        return known

    def _check_bounds(self, known: Pending | None, size: int) -> None:
        if known is None and len(self._transactions.pending) >= limits.TRANSACTIONS_PENDING_MAX:
            there = counted(limits.TRANSACTIONS_PENDING_MAX, "transaction")
            raise Unavailable("too_many_transactions", f"{there} of this broker are not decided")
        size += known.size if known is not None else 0
        if size > limits.TRANSACTION_BYTES_MAX:
            detail = f"a transaction of {size} bytes, {limits.TRANSACTION_BYTES_MAX} are allowed"
            raise Refused("limit_exceeded", detail)

    # -- decisions ---------------------------------------------------------------------------------------------

    def decide(self, peer: Peer, correlation: int, command: Decide, now_ms: int) -> None:
        """Do it; who asked is answered when no failure can take it back."""
        number, verdict = command.transaction, command.verdict
        decided = self._transactions.decision(number)
        if decided is not None:
            if (verdict is Verdict.COMMIT and decided.why) or (
                verdict is Verdict.ROLLBACK and not decided.why
            ):
                raise already(number, decided)
            self._desk.say(peer, correlation, Done(count=decided.messages), Durability.SYNCED)
            return
        pending = self._transactions.pending.get(number)
        if pending is None:
            detail = f"transaction {transaction_id(number)} is not here, or was decided long ago"
            raise Refused("unknown_transaction", detail)
        if verdict is Verdict.COMMIT:
            self._commit(number).asked.append((peer, correlation))
            self._read_next()
            return
        if pending.committing or number in self._copying:
            raise Refused("transaction_decided", f"transaction {transaction_id(number)} is being committed")
        if verdict is Verdict.ROLLBACK:
            self._roll_back(number, Why.SAID, now_ms)
        self._desk.say(peer, correlation, Done(), Durability.SYNCED)

    def _roll_back(self, number: int, why: Why, now_ms: int) -> None:
        self._forget_due(number)
        self._desk.act(RolledBack(number, why), now_ms)
        self._desk.counters.transactions_rolled_back += 1
        self._desk.counters.transactions_silent += why is Why.SILENCE

    def _commit(self, number: int) -> Copying:
        """It is under way from now on."""
        copying = self._copying.get(number)
        if copying is None:
            copying = self._copying[number] = Copying()
            self._queue.append(number)
            self._forget_due(number)
        return copying

    def _read_next(self) -> None:
        """Read as many half messages as there is memory for; one transaction at least."""
        while self._queue:
            pending = self._transactions.pending[self._queue[0]]
            if self._bytes_read and self._bytes_read + pending.size > limits.COMMIT_READ_BYTES_MAX:
                return
            number = self._queue.popleft()
            self._bytes_read += pending.size
            for part in pending.parts.values():
                file, place = self._desk.logs.messages.locate(part.position)
                piece = Slice(file, place, part.length)
                self._desk.read(piece, partial(self._loaded, number, part))

    def _loaded(self, number: int, part: Part, data: Buffer | Unread, now_ms: int) -> None:
        copying, pending = self._copying[number], self._transactions.pending[number]
        try:
            copying.read[part.place] = batch_in(data)
        except CorruptBatch as error:
            copying.problem = f"the half message at position {part.position} cannot be read: {error}"
            copying.read[part.place] = bytearray()
        if len(copying.read) < len(pending.parts):
            return
        del self._copying[number]
        self._bytes_read -= pending.size
        try:
            if copying.problem:
                raise Unavailable("read_failed", copying.problem)
            self._copy(number, copying, now_ms)
        except WireError as error:
            for peer, correlation in copying.asked:
                self._desk.refuse(peer, correlation, error)
            if not pending.committing:
                self._watch(number, max(pending.due_ms, now_ms + 1))
        self._read_next()

    def _copy(self, number: int, copying: Copying, now_ms: int) -> None:
        """Write the copies and the COMMIT action."""
        if self._intake.refusal is not None:
            raise self._intake.refusal
        pending, position = self._transactions.pending[number], self._desk.logs.messages.end
        copies = [copying.read[place] for place in sorted(copying.read)]
        targets = [
            self._target(batch, now_ms) for batch in copies
        ]  # who refuses does so before the first copy
        for batch, partition in zip(copies, targets, strict=True):
            if partition is not None:
                self._intake.place(batch, partition, now_ms)
                self._desk.stored(partition)
        messages = pending.messages
        self._desk.act(Committed(number, position, messages), now_ms)
        self._desk.keeping.note(len(copying.read), now_ms)
        self._desk.keeping.copied()
        self._desk.keeping.sync_now = True
        self._desk.counters.transactions_committed += 1
        self._desk.counters.messages_in += messages
        for peer, correlation in copying.asked:
            self._desk.say(peer, correlation, Done(count=messages), Durability.SYNCED)

    def _target(self, batch: bytearray, now_ms: int) -> Partition | None:
        """Where a copy goes; ``None`` when its subject was removed meanwhile, and its messages with it."""
        header = read_header(batch)
        partition = self._desk.state.by_name.get(partition_name(batch, 0, header))
        if partition is not None and header.priority:
            partition = self._intake.lane(partition, header.priority, now_ms)
        return partition

    # -- time --------------------------------------------------------------------------------------------------

    def ticked(self, now_ms: int) -> None:
        """Whom nobody has decided for too long; and what a start found half done."""
        if self._transactions.committing and now_ms >= self._again_at_ms:
            self._again_at_ms = now_ms + self._settings.transaction_check_interval_ms
            for number in self._transactions.committing:
                self._commit(number)
            self._read_next()
        while self._due and self._due[0][0] <= now_ms:
            due_ms, number = heappop(self._due)
            pending = self._transactions.pending.get(number)
            if pending is None or pending.due_ms > due_ms or pending.committing or number in self._copying:
                continue
            if pending.checks >= self._settings.transaction_checks_max:
                self._roll_back(number, Why.SILENCE, now_ms)
                continue
            again_ms = now_ms + max(1, self._settings.transaction_check_interval_ms)
            self._desk.act(Checked(number, pending.checks + 1, again_ms), now_ms)
            self.due.setdefault(pending.group, {})[number] = None
            self._watch(number, again_ms)

    def _watch(self, number: int, due_ms: int) -> None:
        heappush(self._due, (due_ms, number))
        self._desk.wake(due_ms)

    def take_due(self, group: str, may: Callable[[str], bool] | None = None) -> dict[int, Pending]:
        """Some that are to be asked about, as many as fit into one answer, one at least if there is any; only those
        whose subjects somebody may know of.
        """
        chosen: dict[int, Pending] = {}
        size = 0
        for number in list(self.due.get(group, ())):
            pending = self._transactions.pending[number]
            if may is not None and not all(map(may, pending.subjects)):
                continue
            size += pending.size
            if chosen and (size > limits.CHECK_BYTES or len(chosen) >= limits.CHECK_ROWS_MAX):
                break
            self._forget_due(number)
            chosen[number] = pending
        return chosen

    def is_pending(self, number: int) -> bool:
        """Nobody has decided it."""
        return number in self._transactions.pending

    def ask_again(self, number: int) -> str:
        """Who was asked cannot answer any more; the producer group, if there is anything to ask it."""
        pending = self._transactions.pending.get(number)
        if pending is None or number in self._copying:
            return ""
        self.due.setdefault(pending.group, {})[number] = None
        return pending.group

    def _forget_due(self, number: int) -> None:
        group = self._transactions.pending[number].group
        due = self.due.get(group, {})
        due.pop(number, None)
        if not due:
            self.due.pop(group, None)

    def next_wake(self, at_most: int) -> int:
        """When something is to be done, or ``at_most``."""
        wake_at_ms = min(at_most, self._due[0][0]) if self._due else at_most
        return min(wake_at_ms, self._again_at_ms) if self._transactions.committing else wake_at_ms


def already(number: int, decision: Decision) -> Refused:
    """What somebody is told who wants something else."""
    what = f"was rolled back {HOW[Why(decision.why)]}" if decision.why else "was committed"
    return Refused("transaction_decided", f"transaction {transaction_id(number)} {what}")


def batch_in(data: Buffer | Unread) -> bytearray:
    """The half message in what holds it; ``CorruptBatch`` when it is not as it was kept."""
    if isinstance(data, Unread):
        raise CorruptBatch(str(data))
    held = Batch(data)
    held.check()
    [body] = held.bodies()
    batch = bytearray(body)
    check_said(batch, 0, read_header(batch))
    return batch
