"""Many small batches in one SEND, read at once: what can be said of them by columns is not said one by one.

Traffic over thousands of subjects is made of batches of one message with nothing but a body (``plain_single``). A run
of them is checked with numpy where the general way needs two dozen small steps each. Nothing here decides: whatever is
unusual about a batch leaves it out of every run, and the general way (``intake``) says what is wrong with it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from tidemill_wire import limits
from tidemill_wire.batch import (
    CHECKED_FROM,
    HEADER_BYTES,
    MAGIC,
    NOT_TAKEN,
    SINGLES_FROM,
    STAMP_BYTES,
    VERSION,
)
from tidemill_wire.codec import Codec
from tidemill_wire.columns import SINGLE, Column

RUN_LEAST = 16
"""Fewer are faster one by one."""

LENGTH = struct.Struct("<I")
STAMP = np.dtype([
    ("magic", "<u4"), ("length", "<u4"), ("first", "<u8"), ("position", "<u8"), ("stored", "<i8"), ("epoch", "<u4"),
    ("sum", "<u4"),
])  # fmt: skip
HEAD = np.dtype([
    ("stamp", STAMP), ("crc", "<u4"), ("version", "u1"), ("codec", "u1"), ("flags", "<u2"), ("messages", "<u4"),
    ("priority", "u1"), ("name", "u1"), ("columns", "<u2"), ("producer", "<u8"), ("sequence", "<u8"), ("id", "V16"),
    ("created", "<i8"), ("bloom", "<u8"),
])  # fmt: skip
TAIL = np.dtype([
    ("fixed", "<u8", 3), ("size", "<u4"), ("raw", "<u4"), ("zero", "<u4"), ("end", "<u4"),
])  # fmt: skip
FIXED = np.frombuffer(
    SINGLE.pack(Column.BODY_OFFSETS, 0, 0, 8, 8, Column.BODIES, 0, 8, 0, 0, 0, 0)[:24], "<u8"
)
OWN = ord("%")

assert STAMP.itemsize == STAMP_BYTES
assert HEAD.itemsize == HEADER_BYTES
assert TAIL.itemsize == SINGLE.size

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Run:
    """Batches that follow one another, each a plain single whose sum is right."""

    words: Words
    """The whole SEND."""
    places: npt.NDArray[np.int64]
    heads: npt.NDArray[np.void]
    names: list[bytes]
    largest: int
    """The size of the largest body."""

    @property
    def begin(self) -> int:
        return int(self.places[0])

    @property
    def size(self) -> int:
        return int(self.heads["stamp"]["length"].sum())

    def stamp(self, firsts: list[int], position: int, now_ms: int, epoch: int) -> list[int]:
        """Fill the broker's fields of all of them, the first at ``position``; their positions."""
        lengths = self.heads["stamp"]["length"].astype(np.uint64)
        stamps = np.zeros(len(firsts), STAMP)
        stamps["magic"], stamps["length"], stamps["first"] = MAGIC, lengths, firsts
        stamps["position"] = position + np.cumsum(lengths) - lengths
        stamps["stored"], stamps["epoch"] = now_ms, epoch
        said = stamps.tobytes()
        checked = STAMP_BYTES - 4
        stamps["sum"] = [crc32c(said[at : at + checked]) for at in range(0, len(said), STAMP_BYTES)]
        words = STAMP_BYTES // 8
        self.words[(self.places >> 3)[:, None] + np.arange(words)] = stamps.view("<u8").reshape(-1, words)
        found: list[int] = stamps["position"].tolist()
        return found

    def row_sizes(self) -> list[int]:
        """The third column of their rows (``pack_size``)."""
        heads = self.heads
        flags = heads["flags"].astype(np.uint64) & 0xFF
        sizes: list[int] = (heads["stamp"]["length"] | np.uint64(1 << 32) | flags << np.uint64(56)).tolist()
        return sizes


def find_runs(view: memoryview) -> dict[int, Run]:
    """The runs of a SEND by the place where each begins."""
    places = _places(view)
    if len(places) < RUN_LEAST:
        return {}
    words = np.frombuffer(view, "<u8")
    at = np.array(places, np.int64)
    heads = words[(at >> 3)[:, None] + np.arange(HEADER_BYTES // 8)].view(HEAD).ravel()
    good, bodies = _plain(words, at, heads)
    good &= np.frombuffer(view, "u1")[at + HEADER_BYTES] != OWN
    lengths = heads["stamp"]["length"].tolist()
    good &= heads["crc"] == [
        crc32c(view[place + CHECKED_FROM : place + length])
        for place, length in zip(places, lengths, strict=True)
    ]
    edges = np.flatnonzero(np.diff(np.concatenate(([False], good, [False]))))
    runs: dict[int, Run] = {}
    for begin, end in edges.reshape(-1, 2).tolist():
        if end - begin >= RUN_LEAST:
            part = slice(begin, end)
            ends = (at[part] + HEADER_BYTES + heads["name"][part]).tolist()
            names = [
                bytes(view[place + HEADER_BYTES : stop])
                for place, stop in zip(places[part], ends, strict=True)
            ]
            runs[places[begin]] = Run(words, at[part], heads[part], names, int(bodies[part].max()))
    return runs


def _places(view: memoryview) -> list[int]:
    """Where the batches begin; none when their lengths do not add up to the SEND."""
    places: list[int] = []
    at, size, least = 0, len(view), HEADER_BYTES + 8 + SINGLE.size
    while at < size:
        if size - at < least:
            return []
        (length,) = LENGTH.unpack_from(view, at + 4)
        if length % 8 or not least <= length <= size - at:
            return []
        places.append(at)
        at += length
    return places if len(places) <= limits.SEND_BATCHES_MAX else []


def _plain(
    words: Words, at: npt.NDArray[np.int64], heads: npt.NDArray[np.void]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Which of them are plain singles, as far as their fields say; and the sizes of their bodies."""
    padded = heads["name"].astype(np.int64) + 7 & ~7
    room = heads["stamp"]["length"].astype(np.int64) - HEADER_BYTES - padded - SINGLE.size
    good = (
        (room >= 0) & (heads["name"] > 0) & (heads["stamp"]["magic"] == MAGIC) & (heads["version"] == VERSION)
        & (heads["codec"] <= Codec.ZSTD) & (heads["flags"] & NOT_TAKEN == 0) & (heads["messages"] == 1)
        & (heads["columns"] == 2) & (heads["priority"] == 0) & (heads["producer"] < np.uint64(SINGLES_FROM))
    )  # fmt: skip
    directories = np.where(good, at + HEADER_BYTES + padded, at)  # of those that are none, anything
    tails = words[(directories >> 3)[:, None] + np.arange(SINGLE.size // 8)].view(TAIL).ravel()
    bodies = tails["size"].astype(np.int64)
    good &= (
        (tails["fixed"] == FIXED).all(axis=1) & (tails["raw"] == bodies) & (tails["zero"] == 0)
        & (tails["end"] == bodies) & ((bodies + 7 & ~7) == room)
    )  # fmt: skip
    return good, bodies
