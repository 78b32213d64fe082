"""What the columns of a batch must be to enter: whole, and within the limits that clients are told.

A consumer must be able to read whatever was stored, and a broker of any version must be able to look into it without
fear; so each column has the size that its kind says, and offsets grow and span their texts. The texts are not read.
Per column the work is numpy's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tidemill_wire import limits
from tidemill_wire.batch import HEADER_BYTES, Header, aligned
from tidemill_wire.codec import Codec
from tidemill_wire.columns import COMPRESSED, ENTRY, TWO_OFFSETS, Column, Entry, plain_single, read_directory
from tidemill_wire.errors import CorruptBatch, Refused

_TEXTS = (
    (Column.KEY_OFFSETS, Column.KEYS, limits.KEY_BYTES_MAX, "key"),
    (Column.ORDER_KEY_OFFSETS, Column.ORDER_KEYS, limits.KEY_BYTES_MAX, "order key"),
    (Column.PROPERTY_OFFSETS, Column.PROPERTIES, limits.PROPERTIES_BYTES_MAX, "map of properties"),
    (Column.ORIGIN_OFFSETS, Column.ORIGINS, limits.PARTITION_NAME_BYTES_MAX, "origin"),
    (Column.TIMER_KEY_OFFSETS, Column.TIMER_KEYS, limits.KEY_BYTES_MAX, "timer key"),
)
_NUMBERS = (
    (Column.KEY_HASHES, 8),
    (Column.CREATED_DELTAS, 4),
    (Column.DELIVER_DELTAS, 8),
    (Column.ATTEMPTS, 4),
    (Column.SOURCES, 4),
    (Column.DEDUP_KEYS, 16),
)


def check_bodies(
    view: memoryview,
    at: int,
    header: Header,
    message_bytes_max: int,
    properties_bytes_max: int = limits.PROPERTIES_BYTES_MAX,
) -> None:
    """The columns lie within the batch, the body offsets grow and span the bodies, no message is too large."""
    single = plain_single(view, at, header)
    if single >= 0:
        _check_sizes(single, header, message_bytes_max)
        return
    entries = read_directory(view, at, header)
    offsets = entries.get(Column.BODY_OFFSETS)
    bodies = entries.get(Column.BODIES)
    if offsets is None or bodies is None or offsets[0] or offsets[2] != 4 * header.messages + 4:
        raise CorruptBatch("a batch without bodies, or without an offset for each message")
    if bodies[0] and (bodies[0] != COMPRESSED or header.codec == Codec.NONE):
        raise CorruptBatch("a compressed column in a batch without codec, or one with unknown flags")
    if len(entries) > 2:
        check_columns(view, entries, header.messages, properties_bytes_max)
    total = bodies[3]
    if header.messages == 1:
        first, last = TWO_OFFSETS.unpack_from(view, offsets[1])
        largest, grows = last - first, first == 0
    else:
        places = np.frombuffer(view, "<i4", header.messages + 1, offsets[1])
        first, last = int(places[0]), int(places[-1])
        # Compared, not subtracted: a difference of two i32 may wrap into something plausible.
        grows = first == 0 and bool((places[1:] >= places[:-1]).all())
        largest = int(np.diff(places).max()) if grows and total > message_bytes_max else 0
    if not grows or last != total or largest < 0:
        raise CorruptBatch("the body offsets of a batch do not grow, or do not span its bodies")
    _check_sizes(largest, header, message_bytes_max)


def _check_sizes(largest: int, header: Header, message_bytes_max: int) -> None:
    if largest > message_bytes_max:
        raise Refused("message_too_large", f"a message of {largest} bytes, {message_bytes_max} are allowed")
    if header.length > limits.BATCH_BYTES_MAX:
        raise Refused(
            "batch_too_large", f"a batch of {header.length} bytes, {limits.BATCH_BYTES_MAX} are allowed"
        )


def check_columns(
    view: memoryview,
    entries: Mapping[int, Entry],
    messages: int,
    properties_bytes_max: int = limits.PROPERTIES_BYTES_MAX,
) -> None:
    """``CorruptBatch`` or ``Refused`` with the limit; ``entries`` come from ``read_directory``, so they lie within."""
    for kind, width in _NUMBERS:
        _check_numbers(entries, kind, width * messages)
    for offsets, texts, limit, noun in _TEXTS:
        most = properties_bytes_max if texts is Column.PROPERTIES else limit
        _check_texts(view, entries, (offsets, texts), messages, (most, noun))
    _check_sources(view, entries, messages)
    _check_tags(view, entries, messages)
    if Column.KEYS in entries and Column.KEY_HASHES not in entries:
        raise CorruptBatch("a batch with keys, without their hashes: nobody would find them")


def place_of_key_hashes(head: bytes | memoryview, at: int, header: Header) -> tuple[int, int] | None:
    """Where in its batch the column is, and its size. Only header, name and directory need to be there."""
    return place_of_column(head, at, header, Column.KEY_HASHES, 8)


def place_of_column(
    head: bytes | memoryview, at: int, header: Header, column: Column, width: int
) -> tuple[int, int] | None:
    """The same of any column that has so many bytes for each message, and is never compressed."""
    start = at + HEADER_BYTES + aligned(header.name_length)
    base = start + ENTRY.size * header.column_count
    for place in range(start, base, ENTRY.size):
        kind, _, offset, size, _ = ENTRY.unpack_from(head, place)
        if kind == column:
            if size != width * header.messages or base - at + offset + size > header.length:
                raise CorruptBatch(f"column {column.name} of a batch does not lie within it")
            return base - at + offset, size
    return None


def _check_sources(view: memoryview, entries: Mapping[int, Entry], messages: int) -> None:
    """Which messages they were in the batch that was sent: ids are made of that, and dedup keys are known with it."""
    entry = entries.get(Column.SOURCES)
    if entry is not None:
        sources = np.frombuffer(view, "<i4", messages, entry[1])
        if sources.min() < 0 or sources.max() >= limits.BATCH_MESSAGES_MAX:
            raise CorruptBatch("column SOURCES names messages that no batch can have")


def _check_tags(view: memoryview, entries: Mapping[int, Entry], messages: int) -> None:
    counts = _growing(view, entries, Column.TAG_COUNTS, messages)
    if counts is None:
        if any(kind in entries for kind in (Column.TAG_HASHES, Column.TAG_OFFSETS, Column.TAGS)):
            raise CorruptBatch("a batch with tags, without how many each message has")
        return
    most, total = int(np.diff(counts).max()), int(counts[-1])
    if most > limits.TAGS_MAX:
        raise Refused("limit_exceeded", f"a message with {most} tags, {limits.TAGS_MAX} are allowed")
    _check_numbers(entries, Column.TAG_HASHES, 8 * total)
    _check_numbers(entries, Column.SUMS, 4 * messages + 4)
    if Column.TAG_OFFSETS not in entries:
        raise CorruptBatch("a batch counts tags that it does not hold")
    _check_texts(view, entries, (Column.TAG_OFFSETS, Column.TAGS), total, (limits.TAG_BYTES_MAX, "tag"))


def _check_texts(
    view: memoryview,
    entries: Mapping[int, Entry],
    kinds: tuple[Column, Column],
    count: int,
    most: tuple[int, str],
) -> None:
    places = _growing(view, entries, kinds[0], count)
    texts = entries.get(kinds[1])
    if places is None and texts is None:
        return
    if places is None or texts is None or places[-1] != texts[3]:
        raise CorruptBatch(f"column {kinds[1].name} has no bytes, or offsets that do not span them")
    largest = int(np.diff(places).max(initial=0))
    if largest > most[0]:
        raise Refused("limit_exceeded", f"a {most[1]} of {largest} bytes, {most[0]} are allowed")


def _growing(
    view: memoryview, entries: Mapping[int, Entry], kind: Column, count: int
) -> npt.NDArray[np.int32] | None:
    """A column of ``count + 1`` numbers from 0 on that never go down; ``None`` when it is absent."""
    entry = entries.get(kind)
    if entry is None:
        return None
    _check_numbers(entries, kind, 4 * count + 4)
    places = np.frombuffer(view, "<i4", count + 1, entry[1])
    if places[0] != 0 or not (places[1:] >= places[:-1]).all():  # compared: a difference of two i32 may wrap
        raise CorruptBatch(f"the numbers of column {kind.name} do not grow from 0")
    return places


def _check_numbers(entries: Mapping[int, Entry], kind: Column, size: int) -> None:
    entry = entries.get(kind)
    if entry is not None and (entry[0] or entry[2] != size):
        raise CorruptBatch(f"column {kind.name} has {entry[2]} bytes where {size} must be, not compressed")
