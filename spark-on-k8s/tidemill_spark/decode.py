"""Batches as they lie in a log -> one Arrow record batch. No message is touched: Python's work is per batch, all that
is per message is numpy's and Arrow's.

A text column of a batch is offsets and bytes, as Arrow's are: bytes are joined, offsets moved, and what is empty is
null. Ids are prefixes of batches and numbers, joined by Arrow. Both sums of each batch are checked.

Bodies that are long may stay where they lie (``in_place``): see ``views.py``. How much batches are when they are
unpacked says nothing but their directories, so who has many decodes them in portions (``portioned``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tidemill_spark.arrow import numbers_of, pa, pc, text_of
from tidemill_spark.schema import COLUMNS, TIME, schema_of
from tidemill_spark.views import views_of
from tidemill_wire.batch import Flags, check_stamp, read_header
from tidemill_wire.columns import Batch, Column, read_directory
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.limits import MIB

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

DAY_MS, HOUR_MS = 86_400_000, 3_600_000
AN_ID = "^[0-9a-f]{32}-[0-9]{1,7}$"
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""Years 1 to 9999: no reader of tables knows others. Producers may say any number of milliseconds."""
BYTES_MAX = 0x7FFF_FFFF  # what 32-bit offsets reach
UNPACKED_BYTES = 512 * MIB
"""Of batches that are decoded at once. Logs that repeat themselves are packed to a hundredth: 64 MiB become 6 GiB."""
LONG_BYTES = 64
"""Of a body, on average: shorter ones are copied as fast as pointed to."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where messages lie: what their batches do not say, or say of their subject only."""

    subject: str
    broker_group: str
    partition: str


def decode(
    batches: Iterable[bytes | memoryview],
    place: Place,
    columns: Sequence[str] = COLUMNS,
    first_sequence: int = 0,
    next_sequence: int | None = None,
    *,
    in_place: bool = False,
) -> Any:
    """The messages of these batches, one after the other, without those below ``first_sequence`` and those from
    ``next_sequence`` on. ``CorruptBatch``: what is there is not what was stored. ``in_place``: bodies may be views of
    the batches, which are not changed then as long as the rows live.
    """
    rows = _Rows([_opened(data) for data in batches], place)
    made = [rows.bodies_in_place() if in_place and name == "body" else rows.make(name) for name in columns]
    fields = [pa.field(name, column.type) for name, column in zip(columns, made, strict=True)]
    table = pa.RecordBatch.from_arrays(made, schema=pa.schema(fields) if in_place else schema_of(columns))
    if rows.count == 0:
        return table
    sequences = rows.sequences
    begin = int(np.searchsorted(sequences, first_sequence))
    end = rows.count if next_sequence is None else int(np.searchsorted(sequences, next_sequence))
    return table if (begin, end) == (0, rows.count) else table.slice(begin, max(0, end - begin))


def split(data: bytes | bytearray | memoryview) -> tuple[list[memoryview], int]:
    """The whole batches at the beginning of ``data``, and how many bytes they are."""
    view, at, found = memoryview(data), 0, list[memoryview]()
    while at + 8 <= len(view):
        length = int.from_bytes(view[at + 4 : at + 8], "little")
        if length < 8:
            raise CorruptBatch(f"a batch of {length} bytes")
        if at + length > len(view):
            break
        found.append(view[at : at + length])
        at += length
    return found, at


def portioned(
    batches: Iterable[memoryview], unpacked_max: int = UNPACKED_BYTES
) -> Iterator[list[memoryview]]:
    """Batches in their order, as many at once as unpack to no more than so many bytes; one at least."""
    held, size = list[memoryview](), 0
    for data in batches:
        entries = read_directory(data, 0, read_header(data)).values()
        own = sum(raw_size for _, _, _, raw_size in entries)
        if held and size + own > unpacked_max:
            yield held
            held, size = [], 0
        held.append(data)
        size += own
    if held:
        yield held


def _opened(data: bytes | memoryview) -> Batch:
    batch = Batch(data)
    check_stamp(data, 0, batch.header)
    batch.check()
    return batch


class _Rows:
    """The messages of some batches, column by column."""

    def __init__(self, batches: Sequence[Batch], place: Place) -> None:
        self._batches = batches
        self._place = place
        self._headers = [batch.header for batch in batches]
        self._counts = np.array([header.messages for header in self._headers], np.int64)
        self.count = int(self._counts.sum())
        starts = np.cumsum(self._counts) - self._counts
        self._row = np.arange(self.count, dtype=np.int64) - np.repeat(starts, self._counts)
        self._special: dict[str, Callable[[], Any]] = {
            "id": self._ids,
            "tags": self._tags,
            "dedup_key": self._dedup_keys,
            "deliver_at": self._deliver_at,
            "properties": lambda: self._binary(Column.PROPERTY_OFFSETS, Column.PROPERTIES, pa.binary()),
            "body": lambda: self._binary(Column.BODY_OFFSETS, Column.BODIES, pa.binary(), nullable=False),
            "key": lambda: self._text(Column.KEY_OFFSETS, Column.KEYS),
            "order_key": lambda: self._text(Column.ORDER_KEY_OFFSETS, Column.ORDER_KEYS),
            "timer_key": lambda: self._text(Column.TIMER_KEY_OFFSETS, Column.TIMER_KEYS),
            "origin": lambda: self._text(Column.ORIGIN_OFFSETS, Column.ORIGINS),
            "producer": self._producers,
        }

    def make(self, name: str) -> Any:
        """One column."""
        if name in self._special:
            return self._special[name]()
        same = {
            "subject": self._place.subject,
            "broker_group": self._place.broker_group,
            "partition": self._place.partition,
        }
        if name in same:
            return _repeated(same[name], self.count)
        return self._number(name)

    def bodies_in_place(self) -> Any:
        """The column of bodies, as views when they are long."""
        lengths, data = self._pairs(Column.BODY_OFFSETS, Column.BODIES, self._counts)
        total = sum(map(len, data))
        if total < LONG_BYTES * self.count:
            return _from_lengths(lengths, data, pa.binary(), nullable=False)
        return views_of(lengths, data)

    # -- numbers -----------------------------------------------------------------------------------------------

    @property
    def sequences(self) -> Array:
        return self._each([header.first_sequence for header in self._headers]) + self._row

    def _number(self, name: str) -> Any:
        headers = self._headers
        match name:
            case "sequence":
                return numbers_of(self.sequences)
            case "priority":
                return numbers_of(self._each([header.priority for header in headers]).astype(np.int8))
            case "attempts":
                return numbers_of(self._deltas(Column.ATTEMPTS, np.dtype("<i4")).astype(np.int32))
            case "created_at":
                return _times(self._created())
            case "stored_at":
                return _times(self._stored())
            case "producer_sequence":
                return numbers_of(self._each([_signed(header.producer_sequence) for header in headers]))
            case "replayed" | "ordered":
                flag = Flags.REPLAYED if name == "replayed" else Flags.ORDERED
                return numbers_of(self._each([header.flags & int(flag) for header in headers]) != 0)
            case "epoch":
                epochs = np.array([header.epoch for header in headers], np.int64).astype(np.uint32)
                return numbers_of(np.repeat(epochs, self._counts).view(np.int32))
            case "position":
                return numbers_of(self._each([header.position for header in headers]))
            case "date":
                return numbers_of((self._stored() // DAY_MS).astype(np.int32)).cast(pa.date32())
            case "hour":
                return numbers_of((self._stored() % DAY_MS // HOUR_MS).astype(np.int8))
            case _:
                raise KeyError(f"there is no column {name!r}; there are {', '.join(COLUMNS)}")

    def _each(self, values: Sequence[int]) -> Array:
        """What a batch has, for each of its messages."""
        return np.repeat(np.array(values, np.int64), self._counts)

    def _stored(self) -> Array:
        return self._each([header.stored_at_ms for header in self._headers])

    def _created(self) -> Array:
        created = self._each([header.created_at_ms for header in self._headers])
        return created + self._deltas(Column.CREATED_DELTAS, np.dtype("<i4"))

    def _deltas(self, kind: Column, code: np.dtype[Any]) -> Array:
        """A column of numbers, 0 in batches without it."""
        found = [_numbers(batch, kind, code, batch.header.messages) for batch in self._batches]
        if all(one is None for one in found):
            return np.zeros(self.count, np.int64)
        parts = [
            np.zeros(count, np.int64) if one is None else one.astype(np.int64)
            for one, count in zip(found, self._counts.tolist(), strict=True)
        ]
        return np.concatenate(parts)

    def _deliver_at(self) -> Any:
        has = [batch.column(Column.DELIVER_DELTAS) is not None for batch in self._batches]
        if not any(has):
            return pa.nulls(self.count, TIME)
        headers = self._headers
        created = self._each(
            [header.created_at_ms for header in headers]
        )  # deltas count from the batch's own
        times = created + self._deltas(Column.DELIVER_DELTAS, np.dtype("<i8"))
        return _times(times, missing=~np.repeat(np.array(has), self._counts))

    # -- texts -------------------------------------------------------------------------------------------------

    def _binary(self, offsets: Column, kind: Column, made: Any, *, nullable: bool = True) -> Any:
        """A pair of columns as one Arrow array; what is empty is null."""
        lengths, data = self._pairs(offsets, kind, self._counts)
        return _from_lengths(lengths, data, made, nullable=nullable)

    def _text(self, offsets: Column, kind: Column) -> Any:
        return _as_text(self._binary(offsets, kind, pa.binary()))

    def _pairs(self, offsets: Column, kind: Column, counts: Array) -> tuple[Array, list[memoryview]]:
        """The length of each value, and the bytes of all. Numpy looks at all batches at once: some are small."""
        found: list[Array] = []
        data: list[memoryview] = []
        ends: list[int] = []
        for batch, count in zip(self._batches, counts.tolist(), strict=True):
            places = _numbers(batch, offsets, np.dtype("<i4"), count + 1)
            stored = batch.column(kind)
            if places is None or stored is None:
                if places is not None or stored is not None or kind is Column.BODIES:
                    raise CorruptBatch(f"column {kind.name} has no bytes or no offsets")
                found.append(np.zeros(count + 1, np.int32))
                ends.append(0)
                continue
            found.append(places)
            data.append(stored)
            ends.append(len(stored))
        if not data:
            return np.zeros(int(counts.sum()), np.int32), data
        every = np.concatenate(found).astype(np.int64)
        behind = np.cumsum(counts + 1)
        lengths = np.delete(np.diff(every), behind[:-1] - 1)
        if every[behind - counts - 1].any() or (every[behind - 1] != ends).any() or (lengths < 0).any():
            raise CorruptBatch(f"the offsets of column {kind.name} do not grow, or do not span it")
        return lengths.astype(np.int32), data

    def _tags(self) -> Any:
        if all(batch.column(Column.TAG_COUNTS) is None for batch in self._batches):
            return pa.nulls(self.count, schema_of(["tags"]).field(0).type)
        counts: list[Array] = []
        for batch in self._batches:
            messages = batch.header.messages
            places = _numbers(batch, Column.TAG_COUNTS, np.dtype("<i4"), messages + 1)
            own = np.zeros(messages, np.int32) if places is None else np.diff(places)
            if (own < 0).any() or (places is not None and places[0] != 0):
                raise CorruptBatch("the tag counts of a batch do not grow")
            counts.append(own)
        if not any(own.any() for own in counts):
            return pa.nulls(self.count, schema_of(["tags"]).field(0).type)
        totals = np.array([int(own.sum()) for own in counts], np.int64)
        lengths, data = self._pairs(Column.TAG_OFFSETS, Column.TAGS, totals)
        values = _as_text(_from_lengths(lengths, data, pa.binary(), nullable=False))
        each = np.concatenate(counts)
        places = pa.py_buffer(_offsets(each))
        kind = schema_of(["tags"]).field(0).type
        return pa.Array.from_buffers(kind, self.count, [_validity(each > 0), places], children=[values])

    def _dedup_keys(self) -> Any:
        found = [batch.column(Column.DEDUP_KEYS) for batch in self._batches]
        if all(one is None for one in found):
            return pa.nulls(self.count, pa.binary())
        lengths: list[Array] = []
        data: list[memoryview] = []
        for column, count in zip(found, self._counts.tolist(), strict=True):
            if column is None:
                lengths.append(np.zeros(count, np.int32))
                continue
            if len(column) != 16 * count:
                raise CorruptBatch(f"column DEDUP_KEYS has {len(column)} bytes for {count} keys")
            has = np.frombuffer(column, np.uint8).reshape(count, 16).any(axis=1)
            lengths.append(np.where(has, 16, 0).astype(np.int32))
            data.append(memoryview(np.frombuffer(column, np.uint8).reshape(count, 16)[has].tobytes()))
        return _from_lengths(np.concatenate(lengths), data, pa.binary())

    # -- names -------------------------------------------------------------------------------------------------

    def _ids(self) -> Any:
        """``<32 hex digits>-<number>``; of a copy the id of what it is a copy of, unless its origin is none: whoever
        sends says what that is.
        """
        if not self._batches:
            return pa.array([], pa.string())
        own = self._own_ids()
        copies = [bool(header.flags & Flags.REDELIVERED) for header in self._headers]
        if not any(copies):
            return own
        origins = self._text(Column.ORIGIN_OFFSETS, Column.ORIGINS)
        copied = numbers_of(np.repeat(np.array(copies), self._counts))
        copied = pc.and_(copied, pc.match_substring_regex(origins, AN_ID))
        return pc.coalesce(pc.if_else(copied, origins, None), own)

    def _own_ids(self) -> Any:
        prefixes = [header.batch_id.hex() + "-" for header in self._headers]
        numbers = self._row.copy()
        at = 0
        for batch, count in zip(self._batches, self._counts.tolist(), strict=True):
            sources = _numbers(batch, Column.SOURCES, np.dtype("<i4"), count)
            if sources is not None:
                numbers[at : at + count] = sources
            at += count
        return pc.binary_join_element_wise(
            self._named(prefixes), numbers_of(numbers).cast(pa.string()), text_of("")
        )

    def _producers(self) -> Any:
        """16 hex digits."""
        return self._named([f"{header.producer_id:016x}" for header in self._headers])

    def _named(self, texts: Sequence[str]) -> Any:
        """A text of each batch, for each of its messages."""
        names = _from_lengths(
            np.array([len(text) for text in texts], np.int32), [memoryview("".join(texts).encode())], pa.string(),
            nullable=False,
        )  # fmt: skip
        return names.take(numbers_of(np.repeat(np.arange(len(texts)), self._counts)))


def _numbers(batch: Batch, kind: Column, code: np.dtype[Any], count: int) -> Array | None:
    column = batch.column(kind)
    if column is None:
        return None
    if len(column) != count * code.itemsize:
        raise CorruptBatch(f"column {kind.name} has {len(column)} bytes for {count} numbers")
    return np.frombuffer(column, code)


def _from_lengths(lengths: Array, data: Sequence[memoryview], made: Any, *, nullable: bool = True) -> Any:
    """An array of bytes or text from how long each value is, and all of them back to back."""
    total = sum(len(piece) for piece in data)
    assert total <= BYTES_MAX, "the caller bounds what is decoded at once"
    joined = data[0] if len(data) == 1 else b"".join(data)
    validity = _validity(lengths > 0) if nullable else None
    buffers = [validity, pa.py_buffer(_offsets(lengths)), pa.py_buffer(joined)]
    return pa.Array.from_buffers(made, len(lengths), buffers)


def _offsets(lengths: Array) -> Array:
    places = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=places[1:])
    return places


def _validity(has: Array) -> Any:
    """Arrow's bitmap; ``None`` when all are there."""
    return None if has.all() else pa.py_buffer(np.packbits(has, bitorder="little"))


def _as_text(raw: Any) -> Any:
    """Bytes as text. No broker looks into keys and tags: what is not UTF-8 is shown as well as it can be."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if one is None else one.decode(errors="replace") for one in raw.to_pylist()]
        return pa.array(texts, pa.string())


def _times(ms: Array, missing: Array | None = None) -> Any:
    return numbers_of(np.clip(ms, FIRST_MS, LAST_MS) * 1000, missing).cast(TIME)


def _repeated(text: str, count: int) -> Any:
    return pa.repeat(text_of(text), count)


def _signed(number: int) -> int:
    """64 bits as Spark's ``BIGINT`` has them."""
    return number - (1 << 64) if number >> 63 else number
