"""The columns of a batch: the directory, building them, reading them.

A directory entry is 16 bytes: kind u16, flags u16 (bit 0: compressed by the batch's codec), place u32 (from the end of
the directory), stored size u32, raw size u32. Body offsets and bodies together are an Arrow binary array; text columns
come as such a pair, too. A column that no message needs is absent. Columns lie in the directory's order, and apart.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Literal, TypeAlias

from crc32c import crc32c

from tidemill_wire.batch import (
    HEADER_BYTES,
    Flags,
    Header,
    Origin,
    aligned,
    check_said,
    encode_batch,
    message_id,
    read_header,
)
from tidemill_wire.codec import Codec, compress, decompress
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.limits import BATCH_BYTES_MAX, TAGS_MAX
from tidemill_wire.sums import message_sums, pack_sums, tag_sum

ENTRY = struct.Struct("<HHIII")
COMPRESSED = 1
SLICE_FROM_BYTES = 256  # smaller values are cut faster out of a bytes object than out of a view
COMPRESS_FROM_BYTES = 512  # less is not worth the call
TWO_OFFSETS = struct.Struct("<ii")
SINGLE = struct.Struct("<HHIIIHHIIIii")  # directory and offsets of a batch that is one body
_FORMATS: dict[str, Literal["i", "q", "Q"]] = {"i": "i", "q": "q", "Q": "Q"}
PADDING = tuple(bytes(size) for size in range(8))

assert sys.byteorder == "little"  # columns are the machine's own numbers, written and read without a loop


class Column(IntEnum):
    """What a column holds; the numbers are the format's."""

    BODY_OFFSETS = 1
    BODIES = 2
    KEY_HASHES = 3
    KEY_OFFSETS = 4
    KEYS = 5
    TAG_COUNTS = 6
    TAG_HASHES = 7
    TAG_OFFSETS = 8
    TAGS = 9
    ORDER_KEY_OFFSETS = 10
    ORDER_KEYS = 11
    PROPERTY_OFFSETS = 12
    PROPERTIES = 13
    CREATED_DELTAS = 14
    DELIVER_DELTAS = 15
    ATTEMPTS = 16
    ORIGIN_OFFSETS = 17
    ORIGINS = 18
    INDEXES = 19
    SUMS = 20
    SOURCES = 21
    TIMER_KEY_OFFSETS = 22
    TIMER_KEYS = 23
    REPLACES = 24
    DEDUP_KEYS = 25
    CRON = 26
    FOLLOWS = 27


Entry: TypeAlias = tuple[int, int, int, int]
"""A column's place in the batch: flags, first byte, stored size, raw size."""
Columns: TypeAlias = list[tuple[Column, Sequence[bytes]]]


@dataclass(slots=True)
class Content:
    """The messages of a batch to be, column by column. Lists are as long as ``bodies``, or ``None``."""

    bodies: Sequence[bytes]
    keys: Sequence[str | None] | None = None
    tags: Sequence[Sequence[str]] | None = None
    order_keys: Sequence[str | None] | None = None
    properties: Sequence[bytes] | None = None
    created_deltas: Sequence[int] | None = None
    deliver_deltas: Sequence[int] | None = None
    attempts: Sequence[int] | None = None
    origins: Sequence[str] | None = None
    timer_keys: Sequence[str | None] | None = None
    dedup_keys: Sequence[bytes] | None = None
    sources: Sequence[int] | None = None
    cron: bytes | None = None


def hash_text(text: bytes) -> int:
    """64 bits of a key or tag. Two sums of different polynomials; equality is always checked on the text."""
    return crc32c(text) << 32 | zlib.crc32(text)


def bloom_of(hashes: Iterable[int]) -> int:
    """Two bits of 64 for each tag hash: a batch whose word lacks a tag's bits has no message with that tag."""
    word = 0
    for value in hashes:
        word |= 1 << (value & 63) | 1 << (value >> 6 & 63)
    return word


def offsets_of(parts: Iterable[bytes]) -> bytes:
    """``i32[n + 1]`` of where each part begins and the last one ends."""
    return array("i", accumulate(map(len, parts), initial=0)).tobytes()


def build_batch(origin: Origin, content: Content) -> bytearray:
    """The bytes of a batch. The caller has checked its limits (``gather`` in the client)."""
    bodies = content.bodies
    if len(bodies) == 1 and origin.codec is Codec.NONE and content == Content(bodies):
        return _build_single(origin, bodies[0])
    columns: Columns = [(Column.BODY_OFFSETS, [offsets_of(bodies)]), (Column.BODIES, bodies)]
    _add_keys(columns, content.keys)
    tags, bloom = columns_of_tags(content, origin.batch_id)
    columns += tags
    _add_text(columns, Column.ORDER_KEY_OFFSETS, Column.ORDER_KEYS, content.order_keys)
    if content.properties is not None:
        columns += [
            (Column.PROPERTY_OFFSETS, [offsets_of(content.properties)]),
            (Column.PROPERTIES, content.properties),
        ]
    _add_numbers(columns, Column.CREATED_DELTAS, "i", content.created_deltas)
    _add_numbers(columns, Column.DELIVER_DELTAS, "q", content.deliver_deltas)
    _add_numbers(columns, Column.ATTEMPTS, "i", content.attempts)
    _add_text(columns, Column.ORIGIN_OFFSETS, Column.ORIGINS, content.origins)
    _add_text(columns, Column.TIMER_KEY_OFFSETS, Column.TIMER_KEYS, content.timer_keys)
    _add_numbers(columns, Column.SOURCES, "i", content.sources)
    if content.dedup_keys is not None:
        columns.append((Column.DEDUP_KEYS, content.dedup_keys))
    if content.cron is not None:
        columns.append((Column.CRON, [content.cron]))
    if bloom:
        origin = replace(origin, bloom=bloom)
    return encode_batch(origin, len(bodies), len(columns), lay_out(columns, origin.codec))


def _build_single(origin: Origin, body: bytes) -> bytearray:
    """One message with nothing but a body: what a round-robin over many subjects is made of."""
    size = len(body)
    directory = ENTRY.pack(Column.BODY_OFFSETS, 0, 0, 8, 8) + ENTRY.pack(Column.BODIES, 0, 8, size, size)
    return encode_batch(origin, 1, 2, (directory, TWO_OFFSETS.pack(0, size), body, PADDING[-size & 7]))


def _add_keys(columns: Columns, keys: Sequence[str | None] | None) -> None:
    if keys is None:
        return
    texts = [b"" if key is None else key.encode() for key in keys]
    hashes = array("Q", [hash_text(text) if text else 0 for text in texts])
    columns += [
        (Column.KEY_HASHES, [hashes.tobytes()]),
        (Column.KEY_OFFSETS, [offsets_of(texts)]),
        (Column.KEYS, texts),
    ]


def columns_of_tags(content: Content, batch_id: bytes) -> tuple[Columns, int]:
    """What a batch says of the tags of its messages, none when they have none; and its word of tags."""
    if (tags := content.tags) is None:
        return [], 0
    texts = [tag.encode() for row in tags for tag in row]
    hashes = array("Q", map(hash_text, texts))
    counts = array("i", accumulate(map(len, tags), initial=0))
    sums = message_sums(content.bodies, content.keys, tags, content.properties)
    columns: Columns = [
        (Column.TAG_COUNTS, [counts.tobytes()]),
        (Column.TAG_HASHES, [hashes.tobytes()]),
        (Column.SUMS, [pack_sums(tag_sum(batch_id, counts.tobytes(), hashes.tobytes()), sums)]),
        (Column.TAG_OFFSETS, [offsets_of(texts)]),
        (Column.TAGS, texts),
    ]
    return columns, bloom_of(hashes)


def _add_text(columns: Columns, offsets: Column, kind: Column, texts: Sequence[str | None] | None) -> None:
    if texts is not None:
        raw = [(text or "").encode() for text in texts]
        columns += [(offsets, [offsets_of(raw)]), (kind, raw)]


def _add_numbers(columns: Columns, kind: Column, code: str, numbers: Sequence[int] | None) -> None:
    if numbers is not None:
        columns.append((kind, [array(code, numbers).tobytes()]))


_COMPRESSIBLE = frozenset({Column.BODIES, Column.KEYS, Column.TAGS, Column.ORDER_KEYS, Column.PROPERTIES})


def lay_out(columns: Sequence[tuple[Column, Sequence[bytes]]], codec: Codec) -> list[bytes]:
    """The directory, then the columns, each padded to a multiple of 8."""
    directory: list[bytes] = []
    data: list[bytes] = []
    place = 0
    for kind, parts in columns:
        stored: Sequence[bytes] = parts
        raw_size = size = sum(map(len, parts))
        flags = 0
        if codec is not Codec.NONE and kind in _COMPRESSIBLE and raw_size >= COMPRESS_FROM_BYTES:
            packed = compress(codec, b"".join(parts))
            if len(packed) < raw_size:
                stored, size, flags = [packed], len(packed), COMPRESSED
        directory.append(ENTRY.pack(kind, flags, place, size, raw_size))
        data.extend(stored)
        data.append(PADDING[-size & 7])
        place += aligned(size)
    return directory + data


def read_directory(buffer: bytes | bytearray | memoryview, at: int, header: Header) -> dict[int, Entry]:
    """Where each column is, checked against the batch's bounds. Unknown kinds are kept: a newer producer's."""
    if at + header.length > len(buffer):
        raise CorruptBatch(f"a batch of {header.length} bytes of which {len(buffer) - at} are there")
    return read_entries(buffer, at, header)


def read_entries(buffer: bytes | bytearray | memoryview, at: int, header: Header) -> dict[int, Entry]:
    """The same of a batch of which only the beginning is there, up to the end of the directory."""
    start = at + HEADER_BYTES + aligned(header.name_length)
    base = start + ENTRY.size * header.column_count
    room = at + header.length - base
    entries: dict[int, Entry] = {}
    raw_total = end = 0
    for place in range(start, base, ENTRY.size):
        kind, flags, offset, size, raw_size = ENTRY.unpack_from(buffer, place)
        raw_total += raw_size
        if offset % 8 or offset < end or offset + size > room:
            raise CorruptBatch(f"column {kind} does not lie within its batch, or on another column")
        if kind in entries or (not flags & COMPRESSED and size != raw_size):
            raise CorruptBatch(f"column {kind} is there twice, or has two sizes without being compressed")
        end = offset + size
        entries[kind] = (flags, base + offset, size, raw_size)
    if raw_total > BATCH_BYTES_MAX:
        raise CorruptBatch(f"a batch that unpacks to {raw_total} bytes; {BATCH_BYTES_MAX} are allowed")
    return entries


def plain_single(buffer: bytes | bytearray | memoryview, at: int, header: Header) -> int:
    """The size of the body when the batch is one message with nothing but a body, as ``_build_single`` makes it; else
    -1, and ``read_directory`` knows more. Traffic over thousands of subjects is made of nothing else.
    """
    if header.messages != 1 or header.column_count != 2:
        return -1
    start = at + HEADER_BYTES + aligned(header.name_length)
    size = at + header.length - start - SINGLE.size
    if size < 0:
        return -1
    found = SINGLE.unpack_from(buffer, start)
    body = found[8]
    if found != (Column.BODY_OFFSETS, 0, 0, 8, 8, Column.BODIES, 0, 8, body, body, 0, body):
        return -1
    return body if aligned(body) == size else -1


class Batch:
    """A whole batch, read lazily. Every way in ends in ``CorruptBatch`` when the bytes do not hold what they claim."""

    __slots__ = ("_buffer", "_directory", "header")

    def __init__(self, buffer: bytes | bytearray | memoryview) -> None:
        self._buffer = memoryview(buffer)
        self.header = read_header(self._buffer)
        if self.header.length != len(self._buffer):
            raise CorruptBatch(f"{len(self._buffer)} bytes for a batch of {self.header.length}")
        self._directory = read_directory(self._buffer, 0, self.header)

    def check(self) -> None:
        """The producer's checksum."""
        check_said(self._buffer, 0, self.header)

    @property
    def unpacked_bytes(self) -> int:
        """Of all columns; known before any is unpacked."""
        return sum(raw_size for _, _, _, raw_size in self._directory.values())

    @property
    def partition(self) -> str:
        name = bytes(self._buffer[HEADER_BYTES : HEADER_BYTES + self.header.name_length])
        try:
            return name.decode()
        except UnicodeDecodeError:
            raise CorruptBatch("the name of a batch's partition is not UTF-8") from None

    @property
    def flags(self) -> Flags:
        return Flags(self.header.flags)

    def message_id(self, index: int) -> str:
        return message_id(self.header.batch_id, index)

    def column(self, kind: Column) -> memoryview | None:
        """The raw bytes of a column, unpacked when it was compressed; ``None`` when it is absent."""
        entry = self._directory.get(kind)
        if entry is None:
            return None
        flags, start, size, raw_size = entry
        stored = self._buffer[start : start + size]
        if flags & ~COMPRESSED:
            raise CorruptBatch(f"column {kind.name} has flags {flags:#x}, which this side does not know")
        if flags:
            return memoryview(decompress(Codec(self.header.codec), stored, raw_size))
        return stored

    def numbers(self, kind: Column, code: str, count: int) -> list[int] | None:
        """A column of ``count`` numbers."""
        column = self.column(kind)
        if column is None:
            return None
        if len(column) != count * array(code).itemsize:
            raise CorruptBatch(f"column {kind.name} has {len(column)} bytes for {count} numbers")
        return column.cast(_FORMATS[code]).tolist()

    def bodies(self, first: int = 0, last: int | None = None) -> list[bytes]:
        """The bodies of the messages from index ``first`` to ``last``, both included."""
        return self._binary(Column.BODY_OFFSETS, Column.BODIES, self.header.messages, first, last) or []

    def keys(self) -> list[str] | None:
        return self._texts(Column.KEY_OFFSETS, Column.KEYS, self.header.messages)

    def order_keys(self) -> list[str] | None:
        return self._texts(Column.ORDER_KEY_OFFSETS, Column.ORDER_KEYS, self.header.messages)

    def origins(self) -> list[str] | None:
        return self._texts(Column.ORIGIN_OFFSETS, Column.ORIGINS, self.header.messages)

    def timer_keys(self) -> list[str] | None:
        return self._texts(Column.TIMER_KEY_OFFSETS, Column.TIMER_KEYS, self.header.messages)

    def properties(self) -> list[bytes] | None:
        """The msgpack map of each message, or ``b""``."""
        return self._binary(Column.PROPERTY_OFFSETS, Column.PROPERTIES, self.header.messages, 0, None)

    def tags(self) -> list[list[str]] | None:
        counts = self.numbers(Column.TAG_COUNTS, "i", self.header.messages + 1)
        if counts is None:
            return None
        if counts[0] != 0 or sorted(counts) != counts or counts[-1] > TAGS_MAX * self.header.messages:
            raise CorruptBatch("the tag counts of a batch do not grow, or are too many")
        texts = self._texts(Column.TAG_OFFSETS, Column.TAGS, counts[-1]) or []
        if len(texts) != counts[-1]:
            raise CorruptBatch("a batch counts tags that it does not hold")
        return [texts[a:b] for a, b in pairwise(counts)]

    def _texts(self, offsets: Column, kind: Column, count: int) -> list[str] | None:
        raw = self._binary(offsets, kind, count, 0, None)
        if raw is None:
            return None
        try:
            return [text.decode() for text in raw]
        except UnicodeDecodeError:
            raise CorruptBatch(f"column {kind.name} holds text that is not UTF-8") from None

    def _binary(
        self, offsets: Column, kind: Column, count: int, first: int, last: int | None
    ) -> list[bytes] | None:
        places = self.numbers(offsets, "i", count + 1)
        data = self.column(kind)
        if places is None or data is None:
            if places is None and data is None and kind is not Column.BODIES:
                return None
            raise CorruptBatch(f"column {kind.name} has no bytes or no offsets")
        if places[0] != 0 or places[-1] != len(data):
            raise CorruptBatch(f"the offsets of column {kind.name} do not span it")
        if count > 1 and (min(places) < 0 or sorted(places) != places):
            raise CorruptBatch(f"the offsets of column {kind.name} do not grow")
        stop = count if last is None else last + 1
        if not 0 <= first <= stop <= count:
            raise IndexError(f"messages {first} to {stop - 1} of a batch of {count}")
        places = places[first : stop + 1]
        source = data if len(data) >= SLICE_FROM_BYTES * count else bytes(data)
        return [bytes(source[a:b]) for a, b in pairwise(places)]


def split_batches(buffer: bytes | bytearray | memoryview) -> list[Batch]:
    """The batches that lie back to back in ``buffer``."""
    view = memoryview(buffer)
    batches: list[Batch] = []
    at = 0
    while at < len(view):
        length = read_header(view, at).length
        if at + length > len(view):
            raise CorruptBatch(f"a batch of {length} bytes of which {len(view) - at} are there")
        batches.append(Batch(view[at : at + length]))
        at += length
    return batches
