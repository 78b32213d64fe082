"""Which batches a file has messages of: a sorted list of their ids, so that a message is found without reading it.

     0  magic "TMI1"      u32
     4  zero              u32
     8  count n           u64
    16  first halves      u64 x n, sorted     milliseconds and counter, which grow with time
    ..  second halves     u64 x n, sorted within equal first halves

Little-endian. The halves of an id are big-endian numbers, so that they sort as the ids' hex digits do.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from tidemill_spark.arrow import pc
from tidemill_spark.errors import LakeDamaged

HEAD = struct.Struct("<IIQ")
MAGIC = 0x31494D54  # "TMI1" read as a little-endian number
HEX_DIGITS = 32


def build_ids(ids: Any) -> tuple[bytes, tuple[str, str]]:
    """The list for a column of message ids, not empty; and its first and last batch id, as hex digits."""
    batches = pc.unique(pc.utf8_slice_codeunits(ids, 0, HEX_DIGITS))
    raw = np.frombuffer(bytes.fromhex("".join(batches.to_pylist())), ">u8").reshape(-1, 2)
    order = np.lexsort((raw[:, 1], raw[:, 0]))
    halves = raw[order]
    data = HEAD.pack(MAGIC, 0, len(halves)) + b"".join(
        np.ascontiguousarray(halves[:, at]).astype("<u8").tobytes() for at in (0, 1)
    )
    return data, (halves[0].tobytes().hex(), halves[-1].tobytes().hex())


def holds(data: bytes, batch_id: bytes) -> bool:
    """Whether a batch is in the list."""
    if len(data) < HEAD.size:
        raise LakeDamaged(f"a list of ids of {len(data)} bytes")
    magic, _, count = HEAD.unpack_from(data)
    if magic != MAGIC or len(data) != HEAD.size + 16 * count:
        raise LakeDamaged(f"a list of {count} ids in {len(data)} bytes, which begins with {magic:#010x}")
    firsts = np.frombuffer(data, "<u8", count, HEAD.size)
    seconds = np.frombuffer(data, "<u8", count, HEAD.size + 8 * count)
    first, second = (np.uint64(int.from_bytes(batch_id[at : at + 8], "big")) for at in (0, 8))
    start, end = np.searchsorted(firsts, first), np.searchsorted(firsts, first, side="right")
    at = start + np.searchsorted(seconds[start:end], second)
    return bool(at < end and seconds[at] == second)
