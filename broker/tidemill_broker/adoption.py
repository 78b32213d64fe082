"""Failures of another broker's messages, which cannot be told there: taken with the whole messages.

A message that is adopted is a dead letter that is redriven from the beginning: it is copied into the dead letters of
its group, with the reason, its attempts and the id of the original, and due again when a NACK here would have made it
due. So it is given to this group alone, and dies here if it goes on failing. One that was rejected is not redriven.

    copy and action   it is due again
    copy alone        a power cut took the action: when it is said again, that is done; else it waits among the dead
                      letters, for a person
    action alone      a power cut took the copy: the failure of a message that does not exist is voided

So are those of any broker that were to wait for longer than one keeps failures: their consumer gave them to the delay
service, which sends them here when they are due, as a batch that names the group.

And messages that are replayed for one group only: the same batch with the flag REPLAYED. Nothing failed, so nothing is
noted; they are as new as any, and of nobody else.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import NamedTuple

from tidemill_broker.actions import FailureDetail, Purged, Reason, Redriven
from tidemill_broker.copies import Adopted, Copy
from tidemill_broker.dead_letters import DeadLetters
from tidemill_broker.desk import Desk
from tidemill_broker.failures import Failure, due_after
from tidemill_broker.groups import Group
from tidemill_broker.intake import Intake
from tidemill_broker.lanes import base_of
from tidemill_broker.partitions import Partition
from tidemill_broker.ranges import covers
from tidemill_broker.serving import Serving
from tidemill_ledger.columns import check_bodies
from tidemill_wire import limits
from tidemill_wire.adopting import Adopt
from tidemill_wire.batch import (
    HEADER_BYTES,
    NOT_TAKEN,
    SINGLES_FROM,
    Flags,
    Header,
    Origin,
    aligned,
    encode_batch,
    origin_of,
)
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Column, build_batch
from tidemill_wire.errors import CorruptBatch, Refused
from tidemill_wire.fields import DEAD_PROPERTY, parse_again, read_properties
from tidemill_wire.fingerprints import fingerprint_of
from tidemill_wire.lanes import parse_priority
from tidemill_wire.limits import DETAIL_CHARS_MAX, DOOMED_MS


class Adoption:
    """See the module."""

    def __init__(self, desk: Desk, intake: Intake, dead_letters: DeadLetters, serving: Serving) -> None:
        self._desk = desk
        self._state = desk.state
        self._intake = intake
        self._dead_letters = dead_letters
        self._serving = serving

    def adopt(self, command: Adopt, now_ms: int) -> tuple[Partition, int]:
        """Where they lie now, and how many they are."""
        group = self._group_of(command)
        try:
            batch = Batch(bytearray(command.batch))
            batch.check()
            header = batch.header
            if header.flags & NOT_TAKEN:
                raise Refused("unsupported_flag", "messages are adopted as a producer's batch has them")
            if self._intake.refusal is not None:
                raise self._intake.refusal
            mark = fingerprint_of(command.reason, command.error, command.place)
            detail = FailureDetail(command.reason, command.error, command.place, mark)
            failure = Failure(
                header.first_sequence, header.messages, command.attempts + 1, now_ms, now_ms, mark
            )
            due = None if command.reject else due_of(group, command, now_ms)
            return self._bring(group, batch, command.batch, (failure, detail, due), now_ms), header.messages
        except CorruptBatch as error:
            raise Refused("corrupt_batch", str(error)) from error

    def again(self, data: memoryview, now_ms: int) -> Partition:
        """Messages that failed here or at another broker and were kept for later, of which that later is now: where
        they lie. What had failed as often as its group's policy allows is not given out once more.
        """
        batch = Batch(bytearray(data))
        if batch.flags & Flags.REPLAYED:
            return self._replayed(batch, data, now_ms)
        said = said_of(batch)
        group = self._group_of(said)
        mark = fingerprint_of(said.detail.reason, said.detail.error, said.detail.place)
        detail = said.detail._replace(fingerprint=mark)
        attempts, since_ms = said.attempts, min(said.since_ms, now_ms)
        due_ms = due_after(group.settings, (attempts, since_ms), Reason.NACK, 0, now_ms)
        failure = Failure(said.sequence, batch.header.messages, attempts + 1, now_ms, since_ms, mark)
        due = None if due_ms == DOOMED_MS else (due_ms, attempts + 1)
        return self._bring(group, batch, data, (failure, detail, due), now_ms)

    def _replayed(self, batch: Batch, data: memoryview, now_ms: int) -> Partition:
        """Messages out of an archive that are for one group: they never failed here, so nothing is counted against
        them. Their batch lies among the dead letters as it came, but for the name, and is given from there at once.
        """
        found = parse_again(batch.partition)
        if found is None:
            raise CorruptBatch("a batch for one group that does not name it")
        header = batch.header
        parse_priority(header.priority)
        check_bodies(data, 0, header, limits.MESSAGE_BYTES_MAX)
        group = self._group_of(Addressed(*found))
        grave = self._dead_letters.grave(group, now_ms)
        first = grave.repeated(header.producer_id, header.producer_sequence)
        if first is None:
            self._check_open(group)
            first = grave.next_sequence
            columns = bytes(data[HEADER_BYTES + aligned(header.name_length) :])
            origin = replace(origin_of(header, grave.raw_name), codec=Codec(header.codec))
            copy = encode_batch(origin, header.messages, header.column_count, [columns])
            self._intake.place(copy, grave, now_ms)
            self._desk.stored(grave)
            self._give(grave, group, (first, header.messages), (now_ms, 0), now_ms)
        else:
            self._give_stored(grave, group, first, (now_ms, 0), now_ms)
        return grave

    def _bring(
        self,
        group: Group,
        batch: Batch,
        data: memoryview,
        what: tuple[Failure, FailureDetail, tuple[int, int] | None],
        now_ms: int,
    ) -> Partition:
        """Copy them into the dead letters, once, and give them again from there, when and after how many attempts. What
        is said again has been given already; unless a power cut took that, and left the copy, or some pieces of it.
        """
        header = batch.header
        failure, detail, due = what
        parse_priority(header.priority)
        check_bodies(data, 0, header, limits.MESSAGE_BYTES_MAX, limits.DEAD_PROPERTIES_BYTES_MAX)
        adopted = Adopted(batch, failure, (base_of(self._partition(group)).name, group.name), detail)
        grave = self._dead_letters.grave(group, now_ms)
        found = [(row, count, grave.repeated(*_producer_of(header, row))) for row, count in adopted.pieces()]
        # All that are new are made before the first is written: what cannot be copied leaves nothing behind.
        copies = {row: adopted.copy(row, count) for row, count, first in found if first is None}
        if copies:
            self._check_open(group)
        for row, count, known in found:
            if known is None:
                first = self._place(grave, header, row, copies[row], now_ms)
                group.errors.note(detail, count, now_ms)
                if due is not None:
                    self._give(grave, group, (first, count), due, now_ms)
                elif not self._dead_letters.keeps(group):
                    self._drop(grave, group, (first, count), now_ms)
            elif due is not None:
                self._give_stored(grave, group, known, due, now_ms)
        return grave

    def _give_stored(
        self, grave: Partition, group: Group, first: int, due: tuple[int, int], now_ms: int
    ) -> None:
        """What has been stored before: as much as lies there, whatever is said of it now."""
        if first >= 0 and not covers(self._twin(grave, group).handled, first):
            messages = self._dead_letters.messages_at(grave, first)
            if messages:
                self._give(grave, group, (first, messages), due, now_ms)

    def _give(
        self, grave: Partition, group: Group, where: tuple[int, int], due: tuple[int, int], now_ms: int
    ) -> None:
        """To the group's twin."""
        first, messages = where
        due_ms, attempts = due
        twin = self._twin(grave, group)
        self._desk.act(Redriven(twin.identity, due_ms, [first, first + messages - 1], attempts), now_ms)
        self._serving.adopt(twin, now_ms)
        self._desk.wake(due_ms)

    def _drop(self, grave: Partition, group: Group, where: tuple[int, int], now_ms: int) -> None:
        """Nobody keeps what is given up; the copy is there only to be known when it is said again."""
        first, messages = where
        self._desk.counters.dead_dropped += messages
        self._desk.act(Purged(self._twin(grave, group).identity, [first, first + messages - 1]), now_ms)

    def _place(self, grave: Partition, header: Header, row: int, copy: Copy, now_ms: int) -> int:
        """Where the copies begin of a piece that begins at a row."""
        batch_id = header.batch_id if not row else header.batch_id[:8] + _drawn(header, row)
        origin = Origin(
            grave.raw_name, *_producer_of(header, row), batch_id, copy.created_at_ms, copy.codec, copy.flags,
            copy.priority,
        )  # fmt: skip
        first = grave.next_sequence
        self._intake.place(build_batch(origin, copy.content), grave, now_ms)
        self._desk.stored(grave)
        return first

    def _check_open(self, group: Group) -> None:
        if self._intake.refusal is not None:
            raise self._intake.refusal
        self._intake.gate.check_adopted(self._partition(group).name)

    def _twin(self, grave: Partition, group: Group) -> Group:
        return self._state.groups[grave.groups[group.name]]

    def _partition(self, group: Group) -> Partition:
        return self._state.partitions[group.partition]

    def _group_of(self, command: Adopt | Said | Addressed) -> Group:
        for partition in self._intake.further.whole(command.subject):
            group = self._state.group_of(partition.name, command.group)
            if group is not None and not group.ordered:
                return group
        raise Refused(
            "not_found", f"group {command.group!r} shares no messages of subject {command.subject!r} here"
        )


def _producer_of(header: Header, row: int) -> tuple[int, int]:
    """The producer and its number of a piece that begins at a row: the batch's own for the first. The others have one
    each that is drawn from those, so that all of them are known when the batch is said again.
    """
    if not row:
        return header.producer_id, header.producer_sequence
    return SINGLES_FROM | int.from_bytes(_drawn(header, row), "big"), row


def _drawn(header: Header, row: int) -> bytes:
    said = f"{header.producer_id} {header.producer_sequence} {row}".encode()
    return blake2b(header.batch_id + said, digest_size=8).digest()


class Addressed(NamedTuple):
    """Whom messages are for."""

    subject: str
    group: str


class Said(NamedTuple):
    """What a batch says that comes for one group."""

    subject: str
    group: str
    attempts: int
    """Deliveries before the one that failed."""
    since_ms: int
    """When the messages failed first, as far as anybody knew."""
    sequence: int
    """Of the first one, where it was stored first."""
    detail: FailureDetail


def said_of(batch: Batch) -> Said:
    """A client has written it, and a delay service kept it: it is as much to be proven as any command."""
    found, messages = parse_again(batch.partition), batch.header.messages
    attempts = batch.numbers(Column.ATTEMPTS, "i", messages)
    origins, properties = batch.origins(), batch.properties()
    known = _known((properties or [b""])[0])
    match known:
        case {
            "reason": str(reason),
            "error": str(error),
            "place": str(place),
            "since": int(since),
            "sequence": int(first),
        } if found and attempts and origins and min(attempts) >= 0 and first >= 0:
            if attempts[0] > limits.ATTEMPTS_TOLD_MAX:
                raise CorruptBatch(f"a batch that says {attempts[0]} attempts")
            reason, error, place = (text[:DETAIL_CHARS_MAX] for text in (reason, error, place))
            return Said(*found, attempts[0], max(0, since), first, FailureDetail(reason, error, place, ""))
        case _:
            raise CorruptBatch("a batch for one group that does not say what failed")


def _known(packed: bytes) -> object:
    """What the properties say of the failure, whatever that is."""
    return (read_properties(packed) or {}).get(DEAD_PROPERTY)


def due_of(group: Group, command: Adopt, now_ms: int) -> tuple[int, int]:
    """When it is due, and after how many attempts. This broker does not know when it failed first, so what would be
    given up is tried once more here.
    """
    settings = replace(group.settings, attempts_max=DOOMED_MS)
    due_ms = due_after(settings, (command.attempts, 0), Reason.NACK, command.delay_ms, now_ms)
    return due_ms, command.attempts + 1
