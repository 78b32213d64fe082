"""Archived messages -> batches that are sent again. Values in, values out.

Whatever a message had it has again, but for its id, its dedup key (it would be taken for itself) and its due time,
which is over; the id that it had goes along as its origin. A chunk of rows makes the same bytes each time, and its
producer is made of the run and of its first row: who sends it once more is recognised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgpack
import numpy as np

from tidemill_spark.arrow import pa, pc
from tidemill_wire.batch import SINGLES_FROM, BatchIds, Flags, Origin
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.fields import AGAIN, REPLAYED_PROPERTY
from tidemill_wire.limits import MIB
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
    sizes = np.cumsum(np.asarray(pc.fill_null(pc.binary_length(table["body"]), 0)).astype(np.int64))
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


def encode(chunk: Any, run: str, name: str, *, marked: bool) -> bytearray:
    """The batch of a chunk, for a partition of that name. ``marked``: its messages say that they were sent again."""
    created = _ms(chunk["created_at"])
    created_ms = int(created.min())
    producer = producer_of(chunk, run, name)
    ids = pc.coalesce(chunk["origin"], chunk["id"]).to_pylist()
    properties = _texts(chunk["properties"])
    if marked:
        mark = zip(properties or [None] * len(ids), ids, strict=True)
        properties = [with_property(packed, one) for packed, one in mark]
    order_keys = _texts(chunk["order_key"])
    tags = _texts(chunk["tags"])
    content = Content(
        chunk["body"].to_pylist(),
        _texts(chunk["key"]),
        None if tags is None else [one or () for one in tags],
        order_keys,
        None if properties is None else [one or b"" for one in properties],
        created_deltas=(created - created_ms).tolist() if created.max() > created_ms else None,
        origins=ids,
    )
    alone = AGAIN.fullmatch(name) is not None  # for one group
    flags = (Flags.REPLAYED if marked or alone else Flags(0)) | (
        Flags(0) if order_keys is None else Flags.ORDERED
    )
    batch_id = BatchIds(producer).next(created_ms)
    priority = chunk["priority"][0].as_py()
    origin = Origin(name.encode(), producer, 1, batch_id, created_ms, flags=flags, priority=priority)
    return build_batch(origin, content)


def producer_of(chunk: Any, run: str, name: str) -> int:
    """One that sends this chunk in this run, and nothing else: another cut of the same rows is another one."""
    first = [chunk[column][0].as_py() for column in ("broker_group", "partition", "sequence")]
    last = chunk["sequence"][chunk.num_rows - 1].as_py()
    text = "\0".join(map(str, (run, name, *first, last, chunk.num_rows)))
    return SINGLES_FROM | int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def with_property(packed: bytes | None, identity: str) -> bytes:
    """The same map of properties with one more; nothing of a small one is unpacked for it."""
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


def _texts(column: Any) -> list[Any] | None:
    return None if column.null_count == len(column) else cast("list[Any]", column.to_pylist())


def _ms(column: Any) -> Any:
    return np.asarray(column.cast(pa.int64())) // 1000
