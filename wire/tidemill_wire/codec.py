"""Compression of single columns: none, lz4, zstd.

lz4 and zstandard are native packages, so a light client may lack them: then a batch that needs one is answered with a
sentence that says what to install. Sizes are known before anything is unpacked, so no input allocates more than the
directory of its batch says, and that is bounded.
"""

from __future__ import annotations

import importlib
from enum import IntEnum
from typing import Any

from tidemill_wire.errors import CorruptBatch, TidemillError
from tidemill_wire.limits import BATCH_BYTES_MAX


class Codec(IntEnum):
    """How the compressed columns of a batch are compressed."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2


class CodecMissing(TidemillError):
    """The package for a codec is not installed."""


def _load(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise CodecMissing(f"this batch needs the package {package}: run `pip install {package}`") from None


def compress(codec: Codec, data: bytes) -> bytes:
    """``data`` packed by ``codec``; the caller keeps the raw form when that is smaller."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.LZ4:
            return bytes(_load("lz4.block", "lz4").compress(data, store_size=False))
        case Codec.ZSTD:
            return bytes(_load("zstandard", "zstandard").ZstdCompressor(level=3).compress(data))


def decompress(codec: Codec, data: memoryview, size: int) -> bytes:
    """Exactly ``size`` bytes, or ``CorruptBatch``."""
    if size > BATCH_BYTES_MAX:
        raise CorruptBatch(f"a column that unpacks to {size} bytes; {BATCH_BYTES_MAX} are allowed")
    match codec:
        case Codec.NONE:
            raw = bytes(data)
        case Codec.LZ4:
            raw = _unlz4(data, size)
        case Codec.ZSTD:
            raw = _unzstd(data, size)
    if len(raw) != size:
        raise CorruptBatch(f"a compressed column has {len(raw)} bytes where {size} were promised")
    return raw


def _unlz4(data: memoryview, size: int) -> bytes:
    block = _load("lz4.block", "lz4")
    try:
        return bytes(block.decompress(data, uncompressed_size=size))
    except (block.LZ4BlockError, ValueError) as error:
        raise CorruptBatch(f"an lz4 column cannot be unpacked: {error}") from error


def _unzstd(data: memoryview, size: int) -> bytes:
    zstandard = _load("zstandard", "zstandard")
    try:
        # The size in the frame's own header is what is allocated: believe it only when it is the promised one.
        if zstandard.frame_content_size(data) != size:
            raise CorruptBatch("a zstd column does not hold the size it promised")
        unpacker = zstandard.ZstdDecompressor()
        return bytes(unpacker.decompress(data, max_output_size=size, allow_extra_data=False))
    except zstandard.ZstdError as error:
        raise CorruptBatch(f"a zstd column cannot be unpacked: {error}") from error
