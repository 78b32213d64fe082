"""Compression: exactly the promised bytes, or a named error."""

from __future__ import annotations

import importlib
from typing import Any

import lz4.block
import pytest
import zstandard

from tidemill_wire.codec import Codec, CodecMissing, compress, decompress
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.limits import BATCH_BYTES_MAX

DATA = b"tide" * 1000
SKIPPABLE = b"\x50\x2a\x4d\x18\x00\x00\x00\x00"


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", b"x", DATA])
def test_what_was_packed_is_unpacked(codec: Codec, data: bytes) -> None:
    assert decompress(codec, memoryview(compress(codec, data)), len(data)) == data


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size", [0, 1, len(DATA) - 1, len(DATA) + 1, BATCH_BYTES_MAX + 1, 2**31, 2**32 - 1])
def test_another_size_than_promised_is_corrupt(codec: Codec, size: int) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, memoryview(compress(codec, DATA)), size)


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("data", [b"", b"\xff", b"not compressed at all", bytes(40), SKIPPABLE])
def test_bytes_that_were_never_packed_are_corrupt(codec: Codec, data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, memoryview(data), 100)


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_packed_bytes_that_are_cut_off_are_corrupt(codec: Codec) -> None:
    packed = compress(codec, bytes(range(256)) * 4)
    for size in range(len(packed)):
        with pytest.raises(CorruptBatch):
            decompress(codec, memoryview(packed)[:size], 1024)


def test_zstd_with_something_behind_it_is_corrupt() -> None:
    packed = compress(Codec.ZSTD, DATA)

    for behind in (b"x", SKIPPABLE, packed):
        with pytest.raises(CorruptBatch):
            decompress(Codec.ZSTD, memoryview(packed + behind), len(DATA))


def test_zstd_without_its_size_is_corrupt() -> None:
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(DATA)

    with pytest.raises(CorruptBatch):
        decompress(Codec.ZSTD, memoryview(packed), len(DATA))


def test_lz4_is_a_block_without_a_size_in_front() -> None:
    assert lz4.block.decompress(compress(Codec.LZ4, DATA), uncompressed_size=len(DATA)) == DATA


@pytest.mark.parametrize("codec, package", [(Codec.LZ4, "lz4"), (Codec.ZSTD, "zstandard")])
def test_package_that_is_missing_is_named(
    codec: Codec, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)

    with pytest.raises(CodecMissing, match=f"pip install {package}"):
        compress(codec, b"")
    with pytest.raises(CodecMissing, match=f"pip install {package}"):
        decompress(codec, memoryview(b""), 0)
