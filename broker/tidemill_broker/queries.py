"""Finds stored messages: by id, by key, by subject with time or sequence. Takes nothing from anybody.

A query runs beside the loop, in another thread, and must not look at what the loop changes: it works on a ``View``,
made on the loop, of what never changes again (sealed segments, full pieces) and of copies. The two exceptions are a
partition's ``visible``, a number that only grows, and the open segment's rows below it, which are complete.

An answer is bounded in messages, bytes, and work (``Budget``). When a bound is met before the end, ``Answer.after`` is
where the next question begins; it may come with few messages, or none, when much was looked at in vain.

Order: oldest first is the order of arrival at this broker, which within a subject is that of sequences; a subject
with priorities is browsed lane by lane, which is the order of its sequences, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np

from tidemill_broker.indexes import Pieces, SegmentIndex, hash_id
from tidemill_broker.messages import Found
from tidemill_broker.messages import Rows as Messages
from tidemill_broker.partitions import Partition, StoredRun
from tidemill_broker.state import State
from tidemill_host.machine import Slice
from tidemill_journal.entries import Rows, read_windows, row_count, row_length, run_file
from tidemill_journal.errors import CorruptIndex, CorruptRecord, CorruptRun
from tidemill_journal.index import ReadAt, SealedIndex, decode_head, index_file
from tidemill_journal.segments import Segments
from tidemill_ledger.scanning import HEAD_BYTES
from tidemill_wire import limits
from tidemill_wire.batch import HEADER_BYTES, Header, check_stamp, read_header
from tidemill_wire.columns import hash_text
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.lanes import lane_name, priority_of

SEQUENCE_END = 1 << 64
TIME_END = 1 << 63
WINDOWS_AT_ONCE = 16

ReadSlice = Callable[[Slice], bytes]
SizeOf = Callable[[str], int | None]


@dataclass(frozen=True, slots=True)
class View:
    """What a broker has stored at one moment."""

    by_name: Mapping[bytes, Partition]
    segments: Segments
    """A copy."""
    sealed: tuple[SegmentIndex, ...]
    open: Pieces
    stored: tuple[Stored, ...] = ()
    """The subject's that is browsed, and those of its lanes, the lowest priority first; or all dead letters."""
    floors: Mapping[int, int] = field(default_factory=dict[int, int])


def view_of(
    state: State, messages: Segments, browsed: Partition | None = None, *, letters: bool = False
) -> View:
    """The view of now; made where the state is changed. ``letters``: for all dead letters."""
    lanes = state.lanes.get(browsed.identity, {}) if browsed is not None else {}
    parts = [browsed, *(lanes[priority] for priority in sorted(lanes))] if browsed is not None else []
    if letters:
        parts = [state.partitions[state.groups[twin].partition] for twin in state.dead.values()]
    stored = tuple(Stored(tuple(part.runs), part.recent, part.visible) for part in parts)
    copy = Segments(messages.folder, messages.size_max, messages.bases, messages.end)
    sealed, opened = tuple(state.index.sealed.values()), state.index.open.view()
    return View(state.by_name, copy, sealed, opened, stored, state.tombs.floors)


@dataclass(frozen=True, slots=True)
class Stored:
    """One subject's rows at one moment."""

    runs: tuple[StoredRun, ...]
    recent: Rows
    visible: int


class Missing(Exception):
    """A file is gone: retention took it after the view was made, or somebody else did."""


@dataclass(frozen=True, slots=True)
class Span:
    """Which messages: sequences from ``first`` to before ``end``, stored from ``from_ms`` to before ``to_ms``."""

    first: int = 0
    end: int = SEQUENCE_END
    from_ms: int = 0
    to_ms: int = TIME_END

    def has(self, sequence: int) -> bool:
        return self.first <= sequence < self.end

    def may_have(self, header: Header) -> bool:
        """Whether messages of a batch can be among them."""
        begun = header.first_sequence < self.end and self.first < header.first_sequence + header.messages
        return begun and self.from_ms <= header.stored_at_ms < self.to_ms


@dataclass(slots=True)
class Budget:
    """How much an answer may hold and cost. Used up by one query."""

    messages: int = limits.QUERY_MESSAGES_DEFAULT
    answer_bytes: int = limits.QUERY_ANSWER_BYTES
    read_bytes: int = limits.QUERY_READ_BYTES
    rows: int = limits.QUERY_ROWS

    @property
    def full(self) -> bool:
        return min(self.messages, self.answer_bytes) <= 0

    @property
    def worn(self) -> bool:
        return min(self.read_bytes, self.rows) <= 0

    def take(self, message: Found) -> None:
        self.messages -= 1
        self.answer_bytes -= message.size


@dataclass(slots=True)
class Answer:
    """Messages, and where to go on; ``None`` when that was all."""

    messages: list[Found] = field(default_factory=list[Found])
    after: str | None = None


class Place(NamedTuple):
    """A message's place in the message log: the position of its batch, and its index there."""

    position: int
    row: int

    def __str__(self) -> str:
        return f"{self.position}-{self.row}"


def parse_place(text: str) -> Place:
    """``ValueError`` when it is none."""
    position, dash, index = text.partition("-")
    if dash and all(part.isascii() and part.isdigit() and len(part) < 20 for part in (position, index)):
        return Place(int(position), int(index))
    raise ValueError(f"{text[:60]!r} is no place to go on from")


Step = tuple[object, Messages | None, int]
"""How far a query has come, as text to go on from; and a message, when there is one."""


class Query:
    """One question to one view. ``read`` blocks; ``size_of`` tells a file's size."""

    def __init__(self, view: View, read: ReadSlice, size_of: SizeOf, budget: Budget | None = None) -> None:
        self._view = view
        self._read = read
        self._size_of = size_of
        self.budget = budget or Budget()

    # -- questions ---------------------------------------------------------------------------------------------

    def by_id(self, batch_id: bytes, index: int) -> Found | None:
        """The message; the older one, should a producer have stored a batch twice. Parts of a batch have its id."""
        for position in self._positions_of_id(batch_id):
            known = self._header(position)
            if known is not None and known[0].batch_id == batch_id:
                messages = self._messages(position, known[0].length)
                row = messages.row_of(index)
                if row is not None and known[0].first_sequence + row < self._visible(known):
                    return messages.message(row)
        return None

    def first_at(self, position: int) -> int | None:
        """The first sequence of the batch at a position that was noted; ``None`` when it is not kept any more."""
        known, segments = None, self._view.segments
        if not segments.start <= position < segments.end:
            return None
        with suppress(FileNotFoundError):
            known = self._header(position)
        return None if known is None else known[0].first_sequence

    def by_key(
        self, key: str, subject: bytes | None, span: Span, start: Place | None, newest: bool
    ) -> Answer:
        """Messages with exactly that key, of one subject or of all, behind ``start`` in the order that is asked for."""
        return self._collect(self._steps_of_key(key, subject, span, start, newest))

    def browse(self, span: Span, newest: bool) -> Answer:
        """The messages of the subject that the view was made for. ``after`` is a sequence."""
        parts = reversed(self._view.stored) if newest else self._view.stored
        steps = (self._steps_of_rows(stored, span, newest) for stored in parts)
        return self._collect(chain.from_iterable(steps))

    def letter_of(self, identity: str) -> Found | None:
        """The newest dead letter of a message, in a view for those. None, and a worn budget: not all were looked at."""
        for stored in self._view.stored:
            for _, messages, index in self._steps_of_rows(stored, Span(), True):
                if messages is not None and messages.buried(index) == identity:
                    return messages.message(index)
                if self.budget.worn:
                    return None
        return None

    def _collect(self, steps: Iterator[Step]) -> Answer:
        answer = Answer()
        come: object = None
        for now, messages, index in steps:
            spent = self.budget.worn or (messages is not None and self.budget.full)
            if spent and come is not None:  # one step at least: else the next question would begin here, too
                answer.after = str(come)
                break
            come = now
            if messages is not None:
                answer.messages.append(messages.message(index))
                self.budget.take(answer.messages[-1])
        return answer

    # -- by key ------------------------------------------------------------------------------------------------

    def _steps_of_key(
        self, key: str, subject: bytes | None, span: Span, start: Place | None, newest: bool
    ) -> Iterator[Step]:
        for position in self._positions_of_key(hash_text(key.encode()), start, newest):
            known = self._header(position)
            if known is not None and (subject is None or known[1] == subject):
                header, visible = known[0], self._visible(known)
                if span.may_have(header):
                    messages = self._messages(position, header.length)
                    found = messages.with_key(key)
                    for index in reversed(found) if newest else found:
                        place, sequence = Place(position, index), header.first_sequence + index
                        passed = start is not None and (place >= start if newest else place <= start)
                        if not passed and sequence < visible and span.has(sequence):
                            yield place, messages, index
            yield Place(position, 0 if newest else limits.BATCH_MESSAGES_MAX), None, 0

    def _positions_of_key(self, value: int, start: Place | None, newest: bool) -> Iterator[int]:
        """Batches that may have it, those at ``start`` included."""
        low = 0 if start is None or newest else start.position
        high = start.position if start is not None and newest else self._view.segments.end
        opened = [place for place in self._view.open.find_key(value) if low <= place <= high]
        if not newest:
            for segment in self._view.sealed:
                if segment.end > low:
                    yield from self._in_segment(segment, value, low, high, newest)
            yield from opened
            return
        yield from reversed(opened)
        for segment in reversed(self._view.sealed):
            if segment.base <= high:
                yield from self._in_segment(segment, value, low, high, newest)

    def _in_segment(
        self, segment: SegmentIndex, value: int, low: int, high: int, newest: bool
    ) -> Iterator[int]:
        pieces = segment.pieces  # the loop lets go of them when the file is written
        if pieces is not None:
            places = [place for place in pieces.find_key(value) if low <= place <= high]
            yield from reversed(places) if newest else places
            return
        table = self._head(segment).keys
        if table.may_hold(value):
            read = self._reader(index_file(segment.base))
            yield from table.downward(read, value, high + 1) if newest else table.upward(read, value, low)

    # -- by id -------------------------------------------------------------------------------------------------

    def _positions_of_id(self, batch_id: bytes) -> Iterator[int]:
        value = hash_id(batch_id)
        for segment in self._view.sealed:
            pieces = segment.pieces
            if pieces is not None:
                yield from pieces.find_id(batch_id)
                continue
            table = self._head(segment).ids
            if table.may_hold(value):
                yield from table.upward(self._reader(index_file(segment.base)), value)
        yield from self._view.open.find_id(batch_id)

    # -- by sequence and time ----------------------------------------------------------------------------------

    def _steps_of_rows(self, stored: Stored, span: Span, newest: bool) -> Iterator[Step]:
        end = min(span.end, stored.visible)
        for rows in self._blocks(stored, span.first, end, newest):
            low, high = rows.find(span.first), bisect_left(rows.firsts, end)
            if low >= high:
                continue
            self.budget.rows -= high - low
            indexes = _stored_between(rows, low, high, span)
            for row in reversed(indexes) if newest else indexes:
                yield from self._steps_of_batch(rows, row, span.first, end, newest)
            come = rows.firsts[low] if newest else rows.firsts[high - 1] + row_count(rows.sizes[high - 1]) - 1
            yield come, None, 0

    def _steps_of_batch(self, rows: Rows, row: int, first: int, end: int, newest: bool) -> Iterator[Step]:
        begin, size = rows.firsts[row], rows.sizes[row]
        messages = self._messages(rows.positions[row], row_length(size))
        sequences = range(max(first, begin), min(end, begin + row_count(size)))
        for sequence in reversed(sequences) if newest else sequences:
            yield sequence, messages, sequence - begin

    def _blocks(self, stored: Stored, first: int, end: int, newest: bool) -> Iterator[Rows]:
        """Rows of the subject that may hold what is between, a bounded number at a time."""
        if newest and stored.recent:
            yield stored.recent
        for one in reversed(stored.runs) if newest else stored.runs:
            run, rows = one.run, one.rows
            if run.end_sequence <= first or run.first_sequence >= end:
                continue
            if rows is not None:
                yield rows
                continue
            windows = range(run.window(first), run.window(end - 1) + 1, WINDOWS_AT_ONCE)
            for window in reversed(windows) if newest else windows:
                file = run_file(run.base)
                try:
                    yield read_windows(self._bytes(file, *run.window_place(window, WINDOWS_AT_ONCE)))
                except CorruptRecord as error:
                    raise CorruptRun(file, str(error)) from None
        if not newest and stored.recent:
            yield stored.recent

    # -- reading -----------------------------------------------------------------------------------------------

    def _visible(self, known: tuple[Header, bytes]) -> int:
        header, name = known
        priority = priority_of(header.first_sequence)
        if priority:
            name = lane_name(name.decode(), priority).encode()
        partition = self._view.by_name.get(name)
        floor = self._view.floors.get(partition.identity, 0) if partition is not None else 0
        return partition.visible if partition is not None and header.first_sequence >= floor else 0

    def _head(self, segment: SegmentIndex) -> SealedIndex:
        if segment.head is None:
            file = index_file(segment.base)
            size = self._size_of(file)
            if size is None:
                raise Missing(file)
            try:
                segment.head = decode_head(self._reader(file), size, segment.base, segment.end)
            except CorruptRecord as error:
                raise CorruptIndex(file, str(error)) from error
        return segment.head

    def _header(self, position: int) -> tuple[Header, bytes] | None:
        """Header and subject of a batch; ``None`` for one that is not written yet, and so visible to nobody."""
        file, place = self._view.segments.locate(position)
        try:
            data = self._read(Slice(file, place, HEAD_BYTES))
        except FileNotFoundError:
            if position >= self._view.segments.open_base:
                return None
            raise
        self.budget.read_bytes -= len(data)
        if len(data) < HEADER_BYTES:
            return None
        header = read_header(data)
        if len(data) < HEADER_BYTES + header.name_length:
            return None
        check_stamp(data, 0, header)
        if header.position != position:
            raise CorruptBatch(f"the batch at position {position} says it stands at {header.position}")
        return header, data[HEADER_BYTES : HEADER_BYTES + header.name_length]

    def _messages(self, position: int, length: int) -> Messages:
        file, place = self._view.segments.locate(position)
        try:
            messages = Messages(self._bytes(file, place, length))
        except CorruptBatch as error:
            raise CorruptBatch(f"{file} at position {position}: {error}") from error
        self.budget.read_bytes -= max(0, messages.batch.unpacked_bytes - length)
        return messages

    def _reader(self, file: str) -> ReadAt:
        return lambda position, size: self._bytes(file, position, size)

    def _bytes(self, file: str, position: int, size: int) -> bytes:
        self.budget.read_bytes -= size
        return self._read(Slice(file, position, size))


def _stored_between(rows: Rows, low: int, high: int, span: Span) -> Sequence[int]:
    """The rows from ``low`` to ``high`` whose time is in the span. All are looked at: a clock may be set back between
    two lives of a broker.
    """
    if span.from_ms == 0 and span.to_ms == TIME_END:
        return range(low, high)
    stamps = np.array(rows.stamps[low:high], np.int64)
    return [low + int(at) for at in np.flatnonzero((stamps >= span.from_ms) & (stamps < span.to_ms))]
