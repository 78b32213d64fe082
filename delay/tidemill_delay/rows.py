"""The index of an hour's file: for each message its due time and the piece that it is in.

A row is 16 bytes: due i64, then the piece: its place in the file / 8 in the low 40 bits, its length / 8 above. Row n is
message n of the hour. So the hour can be sorted by due times without reading a message.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidemill_wire.limits import BATCH_BYTES_MAX

ROW_BYTES = 16
PLACE_BITS = 40
PLACE_MASK = np.uint64((1 << PLACE_BITS) - 1)
"""Pieces by it are in the order of the file."""
PIECE_ROW = np.dtype([("due", "<i8"), ("piece", "<u8")])
Rows = npt.NDArray[np.void]
Times = npt.NDArray[np.int64]
Pieces = npt.NDArray[np.uint64]

assert PIECE_ROW.itemsize == ROW_BYTES
assert BATCH_BYTES_MAX // 8 < 1 << (64 - PLACE_BITS)


def pack_piece(place: int, length: int) -> int:
    """The second column."""
    assert place % 8 == 0 == length % 8
    assert place >> 3 < 1 << PLACE_BITS
    return place >> 3 | length >> 3 << PLACE_BITS


def place_of(piece: int) -> int:
    """Where a piece begins in its hour's file."""
    return (piece & (1 << PLACE_BITS) - 1) << 3


def length_of(piece: int) -> int:
    """How long a piece is."""
    return piece >> PLACE_BITS << 3


def encode_rows(due: Times, piece: int) -> bytes:
    """The rows of the messages of one piece."""
    rows = np.empty(len(due), PIECE_ROW)
    rows["due"] = due
    rows["piece"] = piece
    return rows.tobytes()


def decode_rows(data: bytes | bytearray | memoryview) -> Rows:
    """Rows as they lie in a file."""
    return np.frombuffer(data, PIECE_ROW)
