"""Archived messages -> batches that are sent again. Values in, values out.

Whatever a message had it has again, but for its id, its dedup key (it would be taken for itself) and its due time,
which is over; the id that it had goes along as its origin. A chunk of rows makes the same bytes each time, and its
producer is made of the run and of its first row: who sends it once more is recognised.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import msgpack
import numpy as np

from tidemill_spark.arrow import pa, pc
from tidemill_wire.batch import SINGLES_FROM, BatchIds, Flags, Origin, encode_batch
from tidemill_wire.columns import Column, Columns, Content, columns_of_tags, hash_text, lay_out
from tidemill_wire.fields import AGAIN, REPLAYED_PROPERTY
from tidemill_wire.limits import MIB, PROPERTIES_BYTES_MAX
from tidemill_wire.ordering import logical_partition
from tidemill_wire.routes import LOGICAL_PARTITIONS, Partition

CHUNK_ROWS = 1000
CHUNK_BYTES = MIB
CREATED_SPAN_MS = 1 << 30
"""Within a batch, messages say when they were made as 32 bits of difference."""
NEEDED = (
    "id", "broker_group", "partition", "sequence", "key", "order_key", "tags", "properties", "body", "priority",
    "created_at", "origin",
)  # fmt: skip
_FIXMAP, _FIXMAP_MAX = 0x80, 15
_NAMED = cast("bytes", msgpack.packb(REPLAYED_PROPERTY))


def places_of(table: Any, places: Sequence[Partition]) -> Any:
    """For each row the index of the partition that it goes to: its order key's, or one by its sequence."""
    if len(places) == 1:
        return np.zeros(table.num_rows, np.int64)
    found = np.asarray(table["sequence"]) // CHUNK_ROWS % len(places)
    keys = table["order_key"]
    if keys.null_count == len(keys):
        return found
    owner = np.zeros(LOGICAL_PARTITIONS, np.int64)
    for index, place in enumerate(places):
        for first, end in place.ranges:
            owner[first:end] = index
    encoded = pc.dictionary_encode(keys).combine_chunks()
    logical = np.array([logical_partition(key) for key in encoded.dictionary.to_pylist()], np.int64)
    has = np.asarray(pc.is_valid(keys))
    indices = np.asarray(pc.fill_null(encoded.indices, 0))
    return np.where(has, owner[logical][indices], found)


def chunks(table: Any) -> Iterator[Any]:
    """Rows of one partition in their order, cut into what makes a batch."""
    count = table.num_rows
    if count == 0:
        return
    sizes = np.cumsum(sizes_of(table))
    created = _ms(table["created_at"])
    begin = 0
    while begin < count:
        before = int(sizes[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(sizes, before + CHUNK_BYTES, side="right")))
        end = min(end, begin + CHUNK_ROWS, count)
        far = np.flatnonzero(np.abs(created[begin:end] - created[begin]) > CREATED_SPAN_MS)
        end = begin + int(far[0]) if len(far) else end
        yield table.slice(begin, end - begin)
        begin = end


def sizes_of(table: Any) -> Any:
    """How many bytes each row adds to a batch, about: a map of properties may be larger than the body."""
    found = np.zeros(table.num_rows, np.int64)
    for name in ("body", "properties", "key", "order_key"):
        found += np.asarray(pc.fill_null(pc.binary_length(table[name]), 0))
    return found


def encode(chunk: Any, run: str, name: str, *, marked: bool) -> bytearray:
    """The batch of a chunk, for a partition of that name. ``marked``: its messages say that they were sent again."""
    created = _ms(chunk["created_at"])
    created_ms = int(created.min())
    producer = producer_of(chunk, run, name)
    ids = pc.coalesce(chunk["origin"], chunk["id"])
    properties = chunk["properties"]
    if marked:
        properties = with_properties(properties, ids)
    ordered = chunk["order_key"].null_count < chunk.num_rows
    alone = AGAIN.fullmatch(name) is not None  # for one group
    flags = (Flags.REPLAYED if marked or alone else Flags(0)) | (Flags.ORDERED if ordered else Flags(0))
    batch_id = BatchIds(producer).next(created_ms)
    priority = chunk["priority"][0].as_py()
    origin = Origin(name.encode(), producer, 1, batch_id, created_ms, flags=flags, priority=priority)
    bodies = Values(chunk["body"])
    columns: Columns = [(Column.BODY_OFFSETS, [bodies.offsets]), (Column.BODIES, [bodies.data])]
    keys = Values(chunk["key"])
    if keys.some:
        columns += [
            (Column.KEY_HASHES, [keys.hashes()]), (Column.KEY_OFFSETS, [keys.offsets]), (Column.KEYS, [keys.data])
        ]  # fmt: skip
    packed = Values(properties)
    tags = chunk["tags"]
    if tags.null_count < len(tags):
        said, bloom = tag_columns(batch_id, bodies, keys, tags.to_pylist(), packed)
        columns += said
        origin = replace(origin, bloom=bloom)
    for offsets, kind, values in (
        (Column.ORDER_KEY_OFFSETS, Column.ORDER_KEYS, Values(chunk["order_key"])),
        (Column.PROPERTY_OFFSETS, Column.PROPERTIES, packed),
    ):
        if values.some:
            columns += [(offsets, [values.offsets]), (kind, [values.data])]
    if created.max() > created_ms:
        columns.append((Column.CREATED_DELTAS, [(created - created_ms).astype("<i4").tobytes()]))
    origins = Values(ids)
    columns += [(Column.ORIGIN_OFFSETS, [origins.offsets]), (Column.ORIGINS, [origins.data])]
    return encode_batch(origin, chunk.num_rows, len(columns), lay_out(columns, origin.codec))


class Values:
    """A column of texts or bytes as batches have it: where each begins, and all of them back to back."""

    def __init__(self, column: Any) -> None:
        self.some = column.null_count < len(column)
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if whole.null_count:
            whole = pc.fill_null(whole, "" if pa.types.is_string(whole.type) else b"")
        _, offsets, data = whole.buffers()
        self._places = np.frombuffer(offsets, np.int32)[whole.offset : whole.offset + len(whole) + 1]
        first, end = int(self._places[0]), int(self._places[-1])
        self.data = data[first:end].to_pybytes() if data is not None else b""
        self.offsets: bytes = (self._places - first).tobytes()

    def each(self) -> list[bytes]:
        """One by one."""
        data, places = self.data, (self._places - self._places[0]).tolist()
        return [data[begin:end] for begin, end in pairwise(places)]

    def hashes(self) -> bytes:
        """Of keys."""
        return array("Q", [hash_text(text) if text else 0 for text in self.each()]).tobytes()


def tag_columns(
    batch_id: bytes, bodies: Values, keys: Values, tags: Sequence[Sequence[str] | None], packed: Values
) -> tuple[Columns, int]:
    """Of a batch with tags: each of its messages has a sum of its own."""
    content = Content(
        bodies.each(),
        [key.decode() for key in keys.each()] if keys.some else None,
        [one or () for one in tags],
        properties=packed.each() if packed.some else None,
    )
    return columns_of_tags(content, batch_id)


def producer_of(chunk: Any, run: str, name: str) -> int:
    """One that sends this chunk in this run, and nothing else: another cut of the same rows is another one."""
    first = [chunk[column][0].as_py() for column in ("broker_group", "partition", "sequence")]
    last = chunk["sequence"][chunk.num_rows - 1].as_py()
    text = "\0".join(map(str, (run, name, *first, last, chunk.num_rows)))
    return SINGLES_FROM | int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def with_properties(packed: Any, ids: Any) -> Any:
    """The same maps of properties, each with one more that says an id. Where there was none, nothing is looked at."""
    known = _bytes(packed)
    made = pc.binary_join_element_wise(bytes((_FIXMAP + 1,)), _named(_bytes(ids)), b"")
    some = np.asarray(pc.fill_null(pc.binary_length(known), 0)) > 0
    if some.any():
        has = pa.array(some)
        theirs = zip(known.filter(has).to_pylist(), ids.filter(has).to_pylist(), strict=True)
        singles = pa.array([with_property(one, identity) for one, identity in theirs], pa.binary())
        made = pc.replace_with_mask(made, has, singles)
    return made


def with_property(packed: bytes | None, identity: str) -> bytes:
    """The same map of properties with one more, where brokers leave room for that."""
    made = _with_property(packed, identity)
    return made if len(made) <= PROPERTIES_BYTES_MAX else packed or b""


def _with_property(packed: bytes | None, identity: str) -> bytes:
    """Nothing of a small map is unpacked for it."""
    added = _NAMED + cast("bytes", msgpack.packb(identity))
    if not packed:
        return bytes((_FIXMAP + 1,)) + added
    if _FIXMAP <= packed[0] < _FIXMAP + _FIXMAP_MAX and REPLAYED_PROPERTY.encode() not in packed:
        return bytes((packed[0] + 1,)) + packed[1:] + added
    try:
        known = cast("object", msgpack.unpackb(packed, strict_map_key=False))
    except (ValueError, msgpack.UnpackException, RecursionError):
        return packed  # no map: it is theirs, and stays
    if not isinstance(known, dict):
        return packed
    return cast("bytes", msgpack.packb({**known, REPLAYED_PROPERTY: identity}))


def _named(ids: Any) -> Any:
    """The entry of a map for each id: the property's name, and the id as msgpack has a text of its length."""
    lengths = pc.dictionary_encode(pc.binary_length(ids))
    heads = [_NAMED + _text_head(size) for size in lengths.dictionary.to_pylist()]
    return pc.binary_join_element_wise(pa.array(heads, pa.binary()).take(lengths.indices), ids, b"")


def _text_head(size: int) -> bytes:
    return cast("bytes", msgpack.packb("x" * size))[: -size or None]


def _bytes(column: Any) -> Any:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole.cast(pa.binary())


def _ms(column: Any) -> Any:
    return np.asarray(column.cast(pa.int64())) // 1000
