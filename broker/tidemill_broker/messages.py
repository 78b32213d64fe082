"""One message out of a batch, by its index. What a query looks at; nothing is cut out that was not asked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tidemill_wire import limits
from tidemill_wire.batch import Flags
from tidemill_wire.columns import Batch, Column, hash_text
from tidemill_wire.errors import CorruptBatch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found:
    """A message as it was stored."""

    id: str
    subject: str
    sequence: int
    stored_at_ms: int
    created_at_ms: int
    body: bytes
    key: str | None
    tags: tuple[str, ...]
    properties: bytes
    """A msgpack map, or nothing."""
    attempts: int
    origin: str | None
    priority: int = 0
    problem: str | None = None
    """What of it cannot be read, and so is not there."""

    @property
    def size(self) -> int:
        """Its share of an answer, roughly."""
        return len(self.body) + len(self.properties) + 512


class Rows:
    """The messages of a batch whose bytes are all there."""

    def __init__(self, data: bytes) -> None:
        self.batch = Batch(data)
        self.batch.check()
        self._columns: dict[Column, memoryview | None] = {}

    @property
    def first_sequence(self) -> int:
        return self.batch.header.first_sequence

    def __len__(self) -> int:
        return self.batch.header.messages

    def with_key(self, key: str) -> list[int]:
        """The indexes of messages with exactly that key, in their order. A key that cannot be read is none."""
        raw = key.encode()
        with suppress(CorruptBatch):
            hashes = self._numbers(Column.KEY_HASHES, "<u8", len(self))
            if hashes is not None:
                found = np.flatnonzero(hashes == np.uint64(hash_text(raw))).tolist()
                return [index for index in found if self._cut(Column.KEY_OFFSETS, Column.KEYS, index) == raw]
        return []

    def row_of(self, source: int) -> int | None:
        """Where a message is that was the one with this index when its batch was sent; ``None``: in another part."""
        sources = self._sources()
        if sources is None:
            return source if source < len(self) else None
        found = np.flatnonzero(sources == source).tolist()
        return int(found[0]) if found else None

    def _sources(self) -> npt.NDArray[Any] | None:
        with suppress(CorruptBatch):
            return self._numbers(Column.SOURCES, "<i4", len(self))
        return None

    def origin(self, index: int) -> str:
        """The id of what the message is a copy of; nothing when it is none."""
        with suppress(CorruptBatch):
            return self._text(Column.ORIGIN_OFFSETS, Column.ORIGINS, index)
        return ""

    def buried(self, index: int) -> str:
        """The same of what is a copy because the message died; what was replayed for one group did not."""
        return "" if self.batch.flags & Flags.REPLAYED else self.origin(index)

    def message(self, index: int) -> Found:
        """A message with all of it that can be read: nobody looks at texts and at what is packed when a batch is
        stored, and what one producer wrote there is to hide no other message.
        """
        header, sources = self.batch.header, self._sources()
        problems: list[str] = []

        def read(part: Callable[[], T], otherwise: T) -> T:
            try:
                return part()
            except CorruptBatch as error:
                problems.append(str(error))
                return otherwise

        return Found(
            self.batch.message_id(index if sources is None else int(sources[index])),
            self.batch.partition,
            header.first_sequence + index,
            header.stored_at_ms,
            header.created_at_ms + read(lambda: self._number(Column.CREATED_DELTAS, index), 0),
            read(lambda: self._cut(Column.BODY_OFFSETS, Column.BODIES, index), b""),
            read(lambda: self._text(Column.KEY_OFFSETS, Column.KEYS, index), "") or None,
            read(lambda: self._tags(index), ()),
            read(lambda: self._cut(Column.PROPERTY_OFFSETS, Column.PROPERTIES, index), b""),
            read(lambda: self._number(Column.ATTEMPTS, index), 0),
            self.origin(index) or None,
            header.priority,
            "; ".join(problems) or None,
        )

    def _tags(self, index: int) -> tuple[str, ...]:
        counts = self._numbers(Column.TAG_COUNTS, "<i4", len(self) + 1)
        if counts is None:
            return ()
        first, end, count = (int(counts[at]) for at in (index, index + 1, -1))
        if not 0 <= first <= end <= min(count, first + limits.TAGS_MAX):
            raise CorruptBatch("the tag counts of a batch do not grow, or are too many")
        return tuple(self._text(Column.TAG_OFFSETS, Column.TAGS, tag, count) for tag in range(first, end))

    def _number(self, kind: Column, index: int) -> int:
        values = self._numbers(kind, "<i4", len(self))
        return 0 if values is None else int(values[index])

    def _text(self, offsets: Column, kind: Column, index: int, count: int | None = None) -> str:
        try:
            return self._cut(offsets, kind, index, count).decode()
        except UnicodeDecodeError:
            raise CorruptBatch(f"column {kind.name} holds text that is not UTF-8") from None

    def _cut(self, offsets: Column, kind: Column, index: int, count: int | None = None) -> bytes:
        """One value of a column of values; nothing when the column is absent."""
        places = self._numbers(offsets, "<i4", (len(self) if count is None else count) + 1)
        data = self._column(kind)
        if places is None or data is None:
            return b""
        start, stop = int(places[index]), int(places[index + 1])
        if not 0 <= start <= stop <= len(data):
            raise CorruptBatch(f"the offsets of column {kind.name} do not lie within it")
        return bytes(data[start:stop])

    def _numbers(self, kind: Column, code: str, count: int) -> npt.NDArray[Any] | None:
        column = self._column(kind)
        if column is None:
            return None
        number = np.dtype(code)
        if len(column) != count * number.itemsize:
            raise CorruptBatch(f"column {kind.name} has {len(column)} bytes for {count} numbers")
        return np.frombuffer(column, number)

    def _column(self, kind: Column) -> memoryview | None:
        """Unpacked once, however many messages are looked at."""
        if kind not in self._columns:
            self._columns[kind] = self.batch.column(kind)
        return self._columns[kind]
