"""Sums of single messages, for batches with tags: a part of such a batch can be checked without the rest of it.

The column SUMS has one sum of what a broker looks at to find messages by tags, and then one of each message, over body,
key, tags and properties. The producer makes them, so they hold from end to end, also for what a broker gathered.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from crc32c import crc32c

from tidemill_wire.errors import CorruptBatch


def tag_sum(batch_id: bytes, counts: bytes | memoryview, hashes: bytes | memoryview) -> int:
    """Of the columns TAG_COUNTS and TAG_HASHES, and the id of their batch."""
    return crc32c(hashes, crc32c(counts, crc32c(batch_id)))


def message_sums(
    bodies: Sequence[bytes],
    keys: Sequence[str | None] | None,
    tags: Sequence[Sequence[str]],
    properties: Sequence[bytes] | None,
) -> list[int]:
    """One sum a message."""
    sums = list(map(crc32c, bodies))
    texts: list[Sequence[bytes]] = [["\0".join(row).encode() for row in tags]]
    if keys is not None:
        texts.insert(0, [(key or "").encode() for key in keys])
    if properties is not None:
        texts.append(properties)
    for column in texts:
        sums = list(map(crc32c, column, sums))
    return sums


def pack_sums(first: int, sums: Sequence[int]) -> bytes:
    """The column: the sum of the tags, then those of the messages."""
    return array("I", [first, *sums]).tobytes()


def check_sums(found: Sequence[int], column: bytes | memoryview | None) -> None:
    """The sums of all messages of a batch are those that the column says, or ``CorruptBatch``."""
    if column is None or bytes(column[4:]) != array("I", found).tobytes():
        raise CorruptBatch("the sum of a message that was gathered does not match its bytes")
