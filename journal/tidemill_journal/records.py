"""Records of a log that is not made of batches: a header with sums around a body.

     0  length       u32   of the whole record, a multiple of 8
     4  crc32c       u32   of 8..length
     8  position     u64   its own place in the log: stale bytes and misplaced pages are recognised
    16  at, ms       i64
    24  epoch        u32
    28  kind         u8
    29  version      u8
    30  padding      u16   zeros after the body
    32  body

Little-endian.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from tidemill_journal.errors import CorruptRecord

HEADER = struct.Struct("<IIQqIBBH")
HEADER_BYTES = HEADER.size
CHECKED_FROM = 8
VERSION = 1
RECORD_BYTES_MAX = 4 * 1024 * 1024
_CHECKED = struct.Struct("<QqIBBH")
_SUMS = struct.Struct("<II")

assert HEADER_BYTES == 32


class Record(NamedTuple):
    """A record as it was read."""

    length: int
    position: int
    at_ms: int
    epoch: int
    kind: int
    body: bytes


def record_size(body_size: int) -> int:
    """Bytes that a record with such a body takes."""
    return HEADER_BYTES + ((body_size + 7) & ~7)


def encode_record(kind: int, body: bytes, position: int, at_ms: int, epoch: int) -> bytes:
    """The record's bytes for its position."""
    padding = -len(body) & 7
    checked = _CHECKED.pack(position, at_ms, epoch, kind, VERSION, padding) + body + bytes(padding)
    assert CHECKED_FROM + len(checked) <= RECORD_BYTES_MAX
    return _SUMS.pack(CHECKED_FROM + len(checked), crc32c(checked)) + checked


def decode_record(data: bytes | memoryview, at: int, position: int) -> Record:
    """The record ``at`` a place of ``data`` that must stand at ``position`` of the log, or ``CorruptRecord``."""
    if len(data) - at < HEADER_BYTES:
        raise CorruptRecord(f"{len(data) - at} bytes are too few for a record")
    length, crc, claimed, at_ms, epoch, kind, version, padding = HEADER.unpack_from(data, at)
    if claimed != position:
        raise CorruptRecord(f"the record says it stands at {claimed}")
    if length % 8 or not HEADER_BYTES <= length <= min(RECORD_BYTES_MAX, len(data) - at) or padding > 7:
        raise CorruptRecord(f"a record of {length} bytes, {len(data) - at} are there")
    if crc32c(data[at + CHECKED_FROM : at + length]) != crc:
        raise CorruptRecord("the checksum of a record does not match")
    if version != VERSION:
        raise CorruptRecord(f"a record of version {version}; this side reads version {VERSION}")
    return Record(
        length, position, at_ms, epoch, kind, bytes(data[at + HEADER_BYTES : at + length - padding])
    )
