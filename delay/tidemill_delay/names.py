"""What messages of an hour are found by: a file beside its pieces, with a row for each piece and for each timer key.

A row is 32 bytes: a hash, of the batch's id or of the key; the piece, as ``rows.py`` packs it; the number of its first
message, or of the one with the key; a hash of the subject; and which of the two it is. A hash only says where to look:
whoever follows it compares the id, or the text, in the piece.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from tidemill_wire.columns import hash_text

NAME_BYTES = 32
BATCH, KEY = 1, 2
"""What a row is of."""
NAME_ROW = np.dtype(
    [("hash", "<u8"), ("piece", "<u8"), ("number", "<u8"), ("subject", "<u4"), ("kind", "<u4")]
)
Names = npt.NDArray[np.void]

assert NAME_ROW.itemsize == NAME_BYTES


def encode_names(
    said: tuple[bytes, bytes], keys: Sequence[str] | None, place: tuple[int, int]
) -> tuple[bytes, int]:
    """The rows of a piece, and how many they are. ``said`` are its subject and batch id; ``place`` are its first number
    and where it lies.
    """
    (subject, batch_id), (first, piece) = said, place
    sum_ = crc32c(subject)
    rows = [(hash_text(batch_id), piece, first, sum_, BATCH)]
    for index, key in enumerate(keys or ()):
        if key:
            rows.append((hash_text(key.encode()), piece, first + index, sum_, KEY))
    return np.array(rows, NAME_ROW).tobytes(), len(rows)


def decode_names(data: bytes | bytearray | memoryview) -> Names:
    """Rows as they lie in a file."""
    return np.frombuffer(data, NAME_ROW)
