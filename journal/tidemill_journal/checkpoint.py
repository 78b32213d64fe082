"""Checkpoints: a state and the positions up to which it holds, in a file of its own that is whole or not there.

    magic "TMCP", version u32, length u64, crc32c u32 of the payload, zero u32, payload

They are numbered; the newest valid one counts, five are kept. A checkpoint is written only after the logs up to its
positions are on the disk, so it never knows more than they do.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from tidemill_journal.errors import CorruptRecord

FOLDER = "checkpoint"
SUFFIX = ".ckpt"
NUMBER_DIGITS = 12
VERSION = 1
ENVELOPE = struct.Struct("<4sIQII")
MAGIC = b"TMCP"


def checkpoint_file(number: int) -> str:
    """The file of a checkpoint."""
    return f"{FOLDER}/{number:0{NUMBER_DIGITS}}{SUFFIX}"


def checkpoint_number(name: str) -> int | None:
    """The number in a file's name (without folder), ``None`` for another file."""
    digits = name.removesuffix(SUFFIX)
    return int(digits) if digits != name and len(digits) == NUMBER_DIGITS and digits.isdigit() else None


def wrap(payload: bytes) -> bytes:
    """The bytes of a checkpoint's file."""
    return ENVELOPE.pack(MAGIC, VERSION, len(payload), crc32c(payload), 0) + payload


def unwrap(data: bytes) -> bytes:
    """The payload, or ``CorruptRecord``: then the one before it is read."""
    if len(data) < ENVELOPE.size:
        raise CorruptRecord("the file is too short for a checkpoint")
    magic, version, length, crc, _ = ENVELOPE.unpack_from(data)
    payload = data[ENVELOPE.size :]
    if magic != MAGIC or version != VERSION or length != len(payload) or crc32c(payload) != crc:
        raise CorruptRecord("the file is no checkpoint of this version, or is damaged")
    return payload
