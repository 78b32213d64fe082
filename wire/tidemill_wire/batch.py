r"""The columnar batch: built once by the producer, stored, replicated and handed out as the same bytes.

     0  magic "TMB1"            u32     \
     4  length of the batch     u32      |  the producer leaves 8 to 40 zero;
     8  first sequence          u64      |  the broker stamps them, and nothing else, when it stores the batch
    16  position in the log     u64      |
    24  stored at, ms           i64      |
    32  epoch                   u32      |
    36  crc32c of 0..36         u32     /
    40  crc32c of 44..length    u32     what the producer said, end to end
    44  version u8, codec u8, flags u16
    48  message count           u32
    52  priority u8, length of the partition's name u8, column count u16
    56  producer id             u64
    64  producer sequence       u64
    72  batch id                16 bytes, time-ordered
    88  created at, ms          i64
    96  tag bloom word          u64
    104 partition name, zeros to a multiple of 8
    then the directory (16 bytes a column) and the columns, each at a multiple of 8: ``columns.py``

Little-endian. The length is a multiple of 8. A message's id is the batch id and its index.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import NamedTuple

from crc32c import crc32c

from tidemill_wire.codec import Codec
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, COLUMNS_MAX

MAGIC = 0x31424D54  # "TMB1" read as a little-endian number
VERSION = 1
HEADER_BYTES = 104
STAMP_BYTES = 40
CHECKED_FROM = 44

PREFIX = struct.Struct("<II")
STAMPED = struct.Struct("<IIQQqI")
STAMP_CRC = struct.Struct("<I")
SAID = struct.Struct("<IBBHIBBHQQ16sqQ")
HEADER = struct.Struct("<IIQQqII" + "IBBHIBBHQQ16sqQ")

SINGLES_FROM = 1 << 63
"""A producer with an id from here on sends one batch and never another; clients draw theirs below it."""

MESSAGE_ID = re.compile(r"([0-9a-fA-F]{32})-([0-9]{1,7})")

_BLANK = bytes(HEADER_BYTES)

assert STAMPED.size == 36
assert HEADER.size == HEADER_BYTES
assert STAMP_BYTES + SAID.size == HEADER_BYTES


class Flags(IntFlag):
    """What is special about a batch."""

    ORDERED = 1
    TRANSACTIONAL = 2
    DELAYED = 4
    REDELIVERED = 8
    REPLAYED = 16
    GATHERED = 32
    DEDUPLICATED = 64


GATHERED = int(Flags.GATHERED)  # a plain number: it is looked at for each batch
DEDUPLICATED = int(Flags.DEDUPLICATED)
NOT_TAKEN = 0xFFFF & ~int(Flags.ORDERED | Flags.REDELIVERED | Flags.REPLAYED | Flags.DEDUPLICATED)
"""Flags with which no broker takes a batch: those that it does not know, too, for they would be given out as if they
said nothing.
"""


class Header(NamedTuple):
    """The fixed part of a batch, in the order of the bytes."""

    magic: int
    length: int
    first_sequence: int
    position: int
    stored_at_ms: int
    epoch: int
    stamp_crc: int
    crc: int
    version: int
    codec: int
    flags: int
    messages: int
    priority: int
    name_length: int
    column_count: int
    producer_id: int
    producer_sequence: int
    batch_id: bytes
    created_at_ms: int
    bloom: int


@dataclass(frozen=True, slots=True)
class Origin:
    """What a producer says about a batch besides its messages."""

    partition: bytes
    producer_id: int
    producer_sequence: int
    batch_id: bytes
    created_at_ms: int
    codec: Codec = Codec.NONE
    flags: Flags = Flags(0)
    priority: int = 0
    bloom: int = 0


def origin_of(header: Header, name: bytes) -> Origin:
    """What the producer of a batch said about it, but that nothing is compressed: for a batch made of this one."""
    return Origin(
        name, header.producer_id, header.producer_sequence, header.batch_id, header.created_at_ms, Codec.NONE,
        Flags(header.flags), header.priority, header.bloom,
    )  # fmt: skip


def aligned(size: int) -> int:
    """``size`` rounded up to the next multiple of 8."""
    return (size + 7) & ~7


def encode_batch(origin: Origin, count: int, column_count: int, parts: Sequence[bytes]) -> bytearray:
    """A batch from its directory and columns (``parts``, already padded). Not stamped."""
    name = origin.partition
    batch = bytearray().join((_BLANK, name.ljust(aligned(len(name)), b"\0"), *parts))
    length = len(batch)
    assert length % 8 == 0
    assert length <= BATCH_BYTES_MAX
    assert 0 < count <= BATCH_MESSAGES_MAX
    assert column_count <= COLUMNS_MAX
    assert len(origin.batch_id) == 16  # struct would pad or cut it in silence
    PREFIX.pack_into(batch, 0, MAGIC, length)
    SAID.pack_into(
        batch, STAMP_BYTES, 0, VERSION, origin.codec, origin.flags, count, origin.priority, len(name), column_count,
        origin.producer_id, origin.producer_sequence, origin.batch_id, origin.created_at_ms, origin.bloom,
    )  # fmt: skip
    with memoryview(batch) as view:
        STAMP_CRC.pack_into(batch, STAMP_BYTES, crc32c(view[CHECKED_FROM:]))
    return batch


def stamp(
    batch: bytearray | memoryview,
    at: int,
    length: int,
    first_sequence: int,
    position: int,
    now_ms: int,
    epoch: int,
) -> None:
    """Fill the broker's fields of the batch that begins ``at`` a place of the buffer."""
    batch[at : at + STAMP_BYTES] = stamp_of(length, first_sequence, position, now_ms, epoch)


def stamp_of(length: int, first_sequence: int, position: int, now_ms: int, epoch: int) -> bytes:
    """The first ``STAMP_BYTES`` of a batch that is stored."""
    said = STAMPED.pack(MAGIC, length, first_sequence, position, now_ms, epoch)
    return said + STAMP_CRC.pack(crc32c(said))


def read_header(buffer: bytes | bytearray | memoryview, at: int = 0) -> Header:
    """The header of the batch ``at`` a place of the buffer, checked for shape but not for its sums."""
    if len(buffer) - at < HEADER_BYTES:
        raise CorruptBatch(f"{len(buffer) - at} bytes are too few for a batch header of {HEADER_BYTES}")
    header = Header._make(HEADER.unpack_from(buffer, at))
    length = header.length
    if header.magic != MAGIC:
        raise CorruptBatch(f"a batch begins with {header.magic:#010x}, not with {MAGIC:#010x}")
    if header.version != VERSION:
        raise CorruptBatch(f"a batch of version {header.version}; this side reads version {VERSION}")
    least = HEADER_BYTES + aligned(header.name_length) + 16 * header.column_count
    if length % 8 or not least <= length <= BATCH_BYTES_MAX:
        raise CorruptBatch(
            f"a batch of {length} bytes where {least} to {BATCH_BYTES_MAX}, a multiple of 8, may be"
        )
    if (
        not 0 < header.messages <= BATCH_MESSAGES_MAX
        or header.column_count > COLUMNS_MAX
        or header.codec > Codec.ZSTD
    ):
        raise CorruptBatch("a batch header with a count, column count or codec out of its range")
    return header


def check_said(buffer: bytes | bytearray | memoryview, at: int, header: Header) -> None:
    """What the producer said arrived as it was said, or ``CorruptBatch``."""
    if at + header.length > len(buffer):
        raise CorruptBatch(f"a batch of {header.length} bytes of which {len(buffer) - at} are there")
    if crc32c(memoryview(buffer)[at + CHECKED_FROM : at + header.length]) != header.crc:
        raise CorruptBatch("the checksum of a batch does not match its bytes")


def check_stamp(buffer: bytes | bytearray | memoryview, at: int, header: Header) -> None:
    """The broker's fields are as it wrote them, or ``CorruptBatch``."""
    if crc32c(memoryview(buffer)[at : at + 36]) != header.stamp_crc:
        raise CorruptBatch("the checksum of a batch's stamp does not match")


def partition_name(buffer: bytes | bytearray | memoryview, at: int, header: Header) -> bytes:
    """The name of the batch's partition, as bytes: the key brokers look it up by."""
    return bytes(buffer[at + HEADER_BYTES : at + HEADER_BYTES + header.name_length])


def message_id(batch_id: bytes, index: int) -> str:
    """The text form of a message's id: ``<32 hex digits>-<index>``."""
    return f"{batch_id.hex()}-{index}"


def parse_message_id(text: str) -> tuple[bytes, int]:
    """The batch id and index of a message's id; ``ValueError`` says what an id looks like."""
    found = MESSAGE_ID.fullmatch(text)  # bytes.fromhex alone would skip blanks
    if found and int(found[2]) < BATCH_MESSAGES_MAX:
        return bytes.fromhex(found[1]), int(found[2])
    raise ValueError(f"{text!r} is no message id: 32 hex digits, a dash and a number are one")


class BatchIds:
    """Batch ids of one producer: milliseconds, a counter within them, the producer id. They grow with time."""

    def __init__(self, producer_id: int) -> None:
        self._tail = producer_id.to_bytes(8, "big")
        self._last = 0

    def next(self, now_ms: int) -> bytes:
        """A new id. When the clock goes back, or 65,536 ids fall into one millisecond, the counter runs on."""
        self._last = max(self._last + 1, now_ms << 16)
        return self._last.to_bytes(8, "big") + self._tail
