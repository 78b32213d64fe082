"""Long values where they lie: columns of Arrow that point into the bytes of batches. Pure.

Most of what an archive moves are bodies. Joined into a column, and taken into another order, each is copied twice into
memory that is new, which costs as much as compressing it. A view is 16 bytes, which say where a value lies: these are
sorted, and Parquet is written from what the network brought.

     0  length       i32
     4  the value, when it has at most 12 bytes; or else
     4  its first 4 bytes
     8  index of its buffer       i32
    12  position in that buffer   i32
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from tidemill_spark.arrow import numbers_of, pa

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

INLINE_BYTES = 12
PREFIX_BYTES = 4
VIEW_BYTES = 16
BUFFERS_MAX = 1024
"""Of a column; more than that, and small, are joined first."""
BUFFER_BYTES_MAX = 0x7FFF_FFFF
"""What a position within a buffer reaches."""


def views_of(lengths: Array, data: Sequence[memoryview]) -> Any:
    """A column of bytes, none of them null, from how long each value is and all of them back to back. Pieces that are
    of one memory, as batches of one answer are, are looked at together.
    """
    if _objects(data) > BUFFERS_MAX:
        step = -(-len(data) // BUFFERS_MAX)
        data = [memoryview(b"".join(data[at : at + step])) for at in range(0, len(data), step)]
    wholes, owners, places = _wholes(data)
    assert all(len(whole) <= BUFFER_BYTES_MAX for whole in wholes), (
        "the caller bounds what is decoded at once"
    )
    sizes = np.array([len(piece) for piece in data], np.int64)
    pieces = np.cumsum(sizes) - sizes
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    made = np.zeros((len(lengths), VIEW_BYTES), np.uint8)
    words = made.view("<i4")
    words[:, 0] = lengths
    if data:
        piece = np.maximum(np.searchsorted(pieces, starts, side="right") - 1, 0)
        buffer, at = owners[piece], starts - pieces[piece] + places[piece]
        is_long = lengths > INLINE_BYTES
        words[is_long, 2] = buffer[is_long]
        words[is_long, 3] = at[is_long]
        firsts = np.searchsorted(buffer, range(len(wholes) + 1))
        _begin(made, at, np.where(is_long, PREFIX_BYTES, lengths), firsts, wholes)
    return pa.Array.from_buffers(
        pa.binary_view(), len(lengths), [None, pa.py_buffer(made), *map(pa.py_buffer, wholes)]
    )


def _objects(data: Sequence[memoryview]) -> int:
    """How many buffers it takes."""
    return sum(one.obj is not other.obj for one, other in pairwise(data)) + bool(data)


def _wholes(data: Sequence[memoryview]) -> tuple[list[Any], Array, Array]:
    """The memory that pieces are of; of each piece which one that is, and where in it the piece begins."""
    wholes: list[Any] = []
    owners, places = np.zeros(len(data), np.int64), np.zeros(len(data), np.int64)
    last: Any = None
    base = 0
    for number, piece in enumerate(data):
        if last is None or piece.obj is not last:
            last = piece.obj
            wholes.append(np.frombuffer(last, np.uint8))
            base = _address(wholes[-1])
        owners[number] = len(wholes) - 1
        places[number] = _address(np.frombuffer(piece, np.uint8)) - base if piece else 0
    return wholes, owners, places


def _address(of: Array) -> int:
    return int(of.__array_interface__["data"][0])


def _begin(made: Array, at: Array, sizes: Array, firsts: Array, wholes: Sequence[Array]) -> None:
    """The first ``sizes`` bytes of each value; the values of a buffer are those from ``firsts`` on."""
    for number, source in enumerate(wholes):
        rows = slice(int(firsts[number]), int(firsts[number + 1]))
        own, places = sizes[rows], at[rows]
        for byte in range(int(own.max(initial=0))):
            has = own > byte
            made[rows, PREFIX_BYTES + byte][has] = source[places[has] + byte]


def taken(table: Any, rows: Any) -> Any:
    """These rows of a table, in this order, of views, too, which Arrow does not take itself."""
    made = [
        _viewed(column, rows) if pa.types.is_binary_view(column.type) else column.take(numbers_of(rows))
        for column in table.columns
    ]
    return pa.Table.from_arrays(made, schema=table.schema)


def _viewed(column: Any, rows: Any) -> Any:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    validity, _, *data = whole.buffers()
    assert validity is None, "views are made of values that are there"
    made = np.ascontiguousarray(_raw(whole)[np.asarray(rows)])
    return pa.Array.from_buffers(whole.type, len(made), [None, pa.py_buffer(made), *data])


def sizes_of(column: Any) -> Array:
    """How long each value is."""
    return np.concatenate(
        [_raw(chunk).view("<i4")[:, 0] for chunk in column.chunks] or [np.zeros(0, np.int32)]
    )


def _raw(whole: Any) -> Array:
    every = np.frombuffer(whole.buffers()[1], np.uint8).reshape(-1, VIEW_BYTES)
    return every[whole.offset : whole.offset + len(whole)]
