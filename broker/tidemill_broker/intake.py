"""What a batch must be to enter, and its entry: sequence, stamp, place, row. The hot path in.

One pass over the batches of a SEND, with work per batch only. Batches that are accepted one after the other stay one
piece of memory: they are stamped where the socket put them and written from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from tidemill_broker.actions import SubjectNamed
from tidemill_broker.duplicates import Duplicates, Look, check_told
from tidemill_broker.further import Further, subject_of
from tidemill_broker.gate import Gate
from tidemill_broker.lanes import Lane, base_of
from tidemill_broker.logs import Logs
from tidemill_broker.partitions import Partition, SubjectSettings
from tidemill_broker.quotas import Quotas
from tidemill_broker.singles import Run, find_runs
from tidemill_broker.state import State
from tidemill_journal.entries import pack_size
from tidemill_ledger.columns import check_bodies, place_of_key_hashes
from tidemill_wire import limits
from tidemill_wire.batch import (
    DEDUPLICATED,
    GATHERED,
    HEADER_BYTES,
    NOT_TAKEN,
    Flags,
    Header,
    check_said,
    read_header,
    stamp,
)
from tidemill_wire.counted import counted
from tidemill_wire.errors import CorruptBatch, Refused, WireError
from tidemill_wire.fields import living_subject, parse_stored
from tidemill_wire.lanes import lane_name, parse_priority
from tidemill_wire.quotas import Meter

AGAIN = b"%again%"
NO_DUPLICATES = Look(None)
OWN = b"%"
"""Subjects whose name begins with it are the broker's own: nobody else sends to them."""


class Sealer(Protocol):
    """Told when a message segment is sealed."""

    def seal(self, base: int) -> None: ...


class Taken:
    """What became of the batches of one SEND."""

    __slots__ = (
        "duplicates", "first_sequences", "messages", "payer", "refused", "repeated", "synced", "touched", "waits",
    )  # fmt: skip

    def __init__(self, payer: Meter | None = None) -> None:
        self.payer = payer
        self.first_sequences: list[int] = []
        self.duplicates: list[tuple[int, bytes]] = []
        self.refused: list[tuple[int, int, str]] = []
        self.waits: list[int] = []
        self.messages = 0
        self.synced = False
        self.repeated = False
        self.touched: dict[int, Partition] = {}

    def answer(self, partition: Partition, first: int, rows: bytes) -> None:
        """Of a batch that was stored before, or some of it."""
        if rows:
            self.duplicates.append((len(self.first_sequences), rows))
        self.first_sequences.append(first)
        self.synced |= partition.synced
        self.repeated = True


class Intake:
    """Takes batches into the message log."""

    def __init__(
        self, state: State, logs: Logs, defaults: SubjectSettings, subjects_max: int, sealer: Sealer
    ) -> None:
        self._state = state
        self._logs = logs
        self._defaults = defaults
        self._subjects_max = subjects_max
        self._sealer = sealer
        self.further = Further(state)
        self._duplicates = Duplicates(state)
        self.create_subjects = True
        self.refusal: WireError | None = None
        """Set while nothing may be written, with the reason."""
        self.gate = Gate()
        self.quotas = Quotas()
        self.again: Callable[[memoryview, int], Partition] = _nobody
        """Takes what failed in a group and was kept for later: where it lies then."""

    def take(
        self,
        buffer: bytearray,
        now_ms: int,
        forbidden: Mapping[int, WireError] | None = None,
        payer: Meter | None = None,
    ) -> Taken:
        """Store what can be stored. A batch that is refused, as some are already, harms no other of the frame."""
        taken = Taken(payer)
        self._take(memoryview(buffer), now_ms, forbidden, taken)
        return taken

    def _take(
        self, view: memoryview, now_ms: int, forbidden: Mapping[int, WireError] | None, taken: Taken
    ) -> None:
        at, size = 0, len(view)
        start, file = 0, ""  # the piece of memory that is accepted and not yet handed on
        runs = {} if forbidden or taken.payer is not None else find_runs(view)
        while at < size:
            run = runs.get(at)
            if run is not None and (place_file := self._take_run(run, taken, now_ms)):
                if place_file != file:
                    self._hand_on(file, view[start:at])
                    start, file = at, place_file
                at += run.size
                continue
            header = self._head(view, at, taken)
            if header is None:
                break  # without a length nobody knows where the next one begins
            stop = at + header.length
            if bytes(view[at + HEADER_BYTES :][:1]) == OWN:
                # It may be stored somewhere else, behind what came before it.
                self._hand_on(file, view[start:at])
                start = at
            look = NO_DUPLICATES
            try:
                if forbidden:
                    _check_forbidden(forbidden, taken)
                partition = self.admit(view, at, header, now_ms)
                first = partition.repeated(header.producer_id, header.producer_sequence, header.flags)
                if first is None:
                    check_bodies(view, at, header, partition.settings.message_bytes_max)
                if header.flags & DEDUPLICATED:
                    look = self._duplicates.look(view[at:stop], header, partition, first, now_ms)
                    check_told(taken.duplicates, look.rows)
                    first = look.first
                if first is None and (self.refusal is not None or self.gate.shut or self._state.fences):
                    self._check_open(view[at:stop], header, partition)
                if first is None and (taken.payer is not None or partition.metered):
                    self._charge(partition, header, taken, now_ms)
                if look.part is not None:
                    self._hand_on(file, view[start:at])
                    start, first = at, self._take_part(look.part, partition, taken, now_ms)
            except (WireError, CorruptBatch) as error:
                self._refuse(taken, error)
                partition, first = None, -1
            if partition is None or first is not None:
                if partition is not None:
                    taken.answer(partition, first if first is not None else -1, look.rows)
                self._hand_on(file, view[start:at])
                start = at = stop
                continue
            place_file = self._store(view, at, header, partition, now_ms)
            taken.first_sequences.append(partition.next_sequence - header.messages)
            taken.messages += header.messages
            taken.synced |= partition.synced
            taken.touched[partition.identity] = partition
            if place_file != file:
                self._hand_on(file, view[start:at])
                start, file = at, place_file
            at = stop
        self._hand_on(file, view[start:at])

    def _head(self, view: memoryview, at: int, taken: Taken) -> Header | None:
        """Of the next batch, when that is there."""
        try:
            header = read_header(view, at)
            if len(taken.first_sequences) >= limits.SEND_BATCHES_MAX:
                raise CorruptBatch(f"a SEND of more than {limits.SEND_BATCHES_MAX} batches")
            if header.length > len(view) - at:
                raise CorruptBatch(f"a batch of {header.length} bytes of which {len(view) - at} are there")
        except CorruptBatch as error:
            self._refuse(taken, error)
            return None
        return header

    def _take_run(self, run: Run, taken: Taken, now_ms: int) -> str:
        """Store a run of plain singles; the file it goes to, or nothing when one of them needs a closer look."""
        producers, sequences = run.heads["producer"].tolist(), run.heads["sequence"].tolist()
        partitions: list[Partition] = []
        for name, producer, sequence in zip(run.names, producers, sequences, strict=True):
            partition = self._state.by_name.get(name)
            if partition is None or partition.settings.message_bytes_max < run.largest or partition.metered:
                return ""
            seen = partition.producers.get(producer)
            if seen is not None and sequence <= seen[-2]:
                return ""
            partitions.append(partition)
        touched = {partition.identity: partition for partition in partitions}
        place = (
            self._logs.place_batches(run.size, len(partitions)) if len(touched) == len(partitions) else None
        )
        if place is None or self.refusal is not None or self.gate.shut:
            return ""
        firsts = [partition.next_sequence for partition in partitions]
        positions = run.stamp(firsts, place.position, now_ms, self._logs.epoch)
        columns = zip(
            partitions, firsts, positions, run.row_sizes(), run.heads["bloom"].tolist(), producers, sequences,
            strict=True,
        )  # fmt: skip
        for partition, first, position, size, bloom, producer, sequence in columns:
            partition.stored(first, position, size, now_ms, bloom)
            partition.remember(producer, sequence, first)
        self._state.index.open.note_many(run.heads["id"].tobytes(), positions)
        taken.first_sequences += firsts
        taken.messages += len(firsts)
        taken.synced = taken.synced or any(partition.synced for partition in partitions)
        taken.touched.update(touched)
        return place.file

    def _store(self, view: memoryview, at: int, header: Header, partition: Partition, now_ms: int) -> str:
        """Give the batch its place and sequence; the file it goes to."""
        logs = self._logs
        length, messages = header.length, header.messages
        sealed = logs.messages.open_base
        place = logs.place_batch(length)
        if place.opened and sealed != place.position:
            self._sealer.seal(sealed)
        first = partition.next_sequence
        stamp(view, at, length, first, place.position, now_ms, logs.epoch)
        size = pack_size(length, messages, header.flags & 0xFF)
        partition.stored(first, place.position, size, now_ms, header.bloom)
        partition.remember(header.producer_id, header.producer_sequence, first)
        self._state.index.open.note(header.batch_id, place.position)
        if header.column_count > 2:
            self._note_keys(view, at, header, partition, place.position)
        return place.file

    def _take_part(self, part: bytearray, partition: Partition, taken: Taken, now_ms: int) -> int:
        """Store what is new of a batch; its first sequence."""
        self.place(part, partition, now_ms)
        messages = read_header(part).messages
        taken.messages += messages
        taken.touched[partition.identity] = partition
        return partition.next_sequence - messages

    def place(self, batch: bytearray, partition: Partition, now_ms: int) -> None:
        """Store a batch of the broker's own making."""
        if self.refusal is not None:
            raise self.refusal
        file = self._store(memoryview(batch), 0, read_header(batch), partition, now_ms)
        self._logs.append(file, batch, len(batch))

    def _note_keys(
        self, view: memoryview, at: int, header: Header, partition: Partition, position: int
    ) -> None:
        """For the index of the open segment; one that has gathered its share of keys is sealed before its time."""
        found = place_of_key_hashes(view, at, header)
        if found is not None:
            start, size = at + found[0], found[1]
            index = self._state.index.open
            index.note_keys(view[start : start + size], position)
            if index.keys >= limits.INDEX_KEYS_MAX:
                self._logs.messages.close()
        if header.flags & DEDUPLICATED:
            self._state.deduplication.note_in(partition, read_header(view, at), view, at)

    def _hand_on(self, file: str, piece: memoryview) -> None:
        if piece:
            self._logs.append(file, piece, len(piece))

    def _refuse(self, taken: Taken, error: WireError | CorruptBatch) -> None:
        if isinstance(error, CorruptBatch):
            error = Refused("corrupt_batch", str(error))
        taken.refused.append((len(taken.first_sequences), error.kind.number, error.detail))
        if error.wait_ms:
            taken.waits += (len(taken.first_sequences), error.wait_ms)
        taken.first_sequences.append(-1)

    def admit(
        self, view: memoryview, at: int, header: Header, now_ms: int, not_taken: int = NOT_TAKEN
    ) -> Partition:
        """The partition of a batch that arrived as it was said. What it holds is looked at only when it is new: what
        was taken once is taken again, whatever the limits are by now.
        """
        check_said(view, at, header)
        if header.flags & not_taken:
            _refuse_flags(header.flags)
        name = bytes(view[at + HEADER_BYTES : at + HEADER_BYTES + header.name_length])
        partition = self._state.by_name.get(name)
        if name.startswith(AGAIN) and not_taken == NOT_TAKEN:
            return self.again(view[at : at + header.length], now_ms)
        if partition is None or name.startswith(OWN):
            partition = self.create(name, now_ms)
        return self.lane(partition, header.priority, now_ms) if header.priority else partition

    def _check_open(self, batch: memoryview, header: Header, partition: Partition) -> None:
        """Whether it takes messages now, and these order keys; what it has taken before it answers again."""
        if self.refusal is not None:
            raise self.refusal
        self.gate.check(partition.name)
        if header.flags & Flags.ORDERED or header.column_count > 2:
            self._state.fences.check(base_of(partition), batch)

    def _charge(self, partition: Partition, header: Header, taken: Taken, now_ms: int) -> None:
        """What is stored for the first time; failures that come back were."""
        if partition.raw_name[:1] != OWN or isinstance(partition, Lane):
            self.quotas.charge(partition, (header.messages, header.length), taken.payer, now_ms)

    def lane(self, partition: Partition, priority: int, now_ms: int) -> Partition:
        """The lane of a subject, made by its first message."""
        parse_priority(priority)
        lane = self._state.lanes.get(partition.identity, {}).get(priority)
        return lane or self.declare(lane_name(partition.name, priority), partition.settings, now_ms)

    def create(self, raw_name: bytes, now_ms: int) -> Partition:
        """A subject on first use; or a further partition of one, which is as the subject is."""
        name = parse_stored(raw_name.decode("ascii", "replace"))
        base = subject_of(self._state, name)
        if base is None:
            self._state.tombs.check_subject(living_subject(name))
        if base is None and not self.create_subjects:
            raise Refused("unknown_subject", f"subject {name!r} is not declared")
        return self.declare(name, self._defaults if base is None else base.settings, now_ms)

    def found(self, name: str, now_ms: int) -> Partition:
        """A partition that meta named: it is there from now on, whether subjects are made here or not."""
        base = subject_of(self._state, name)
        known = self._state.by_name.get(name.encode())
        return known or self.declare(name, self._defaults if base is None else base.settings, now_ms)

    def declare(self, name: str, settings: SubjectSettings, now_ms: int) -> Partition:
        """A subject with these settings, new or known. What is there as it is to be needs no room on the disk."""
        state = self._state
        known = state.by_name.get(name.encode())
        wanted = settings.having(None if known is None else known.settings.archived)
        if known is not None and known.settings == wanted:
            return known
        if self.refusal is not None:
            raise self.refusal
        if known is None and len(state.by_name) >= self._subjects_max:
            raise Refused("too_many_subjects", f"this broker has {counted(self._subjects_max, 'subject')}")
        there = known or state.tombs.by_name.get(name.encode())
        identity = there.identity if there is not None else len(state.partitions) + 1
        action = SubjectNamed(identity, name, wanted.to_map())
        self._logs.act(action, now_ms)
        state.apply(action)
        if known is None:
            self.further.note(state.partitions[identity])
        for partition in self.further.of(name):
            self.declare(partition.name, settings, now_ms)
        return state.partitions[identity]


def _check_forbidden(forbidden: Mapping[int, WireError], taken: Taken) -> None:
    error = forbidden.get(len(taken.first_sequences))
    if error is not None:
        raise error


def _nobody(_batch: memoryview, _now_ms: int) -> Partition:
    raise Refused("invalid_subject", "a batch for one group of a subject")


def _refuse_flags(flags: int) -> None:
    if flags & GATHERED:
        raise CorruptBatch("a batch that a broker gathered for a consumer, and no producer made")
    names = [flag.name or "" for flag in Flags if flag & flags & NOT_TAKEN]
    said = " and ".join(names) or f"{flags & NOT_TAKEN:#x}"
    raise Refused(
        "unsupported_flag", f"a batch with the flag {said}, which this broker does not know to obey"
    )
