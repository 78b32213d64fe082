"""The index: which batch has an id, which batches have a key. In memory for the open segment, in a file for each other.

A batch's id and the hashes of its keys are kept as they come, 24 bytes a batch, 16 more for one with keys, and 8 a
message of such a batch; nothing is sorted on the way in. When a segment is sealed, its pieces go to the function that
makes the file, off the loop, and are let go when the file is written. A segment is also sealed when
``INDEX_KEYS_MAX`` hashes have been gathered, so the open one's take 64 MiB and one batch's more at most.

    open: gathered in memory  ──seal──▶  sealed: in memory, being made  ──written──▶  sealed: in its file

Queries work in another thread, on a ``view``: pieces that are full never change, those that are not are copied.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tidemill_host.machine import Buffer
from tidemill_journal.index import Numbers, SealedIndex, encode_index

PIECE_BYTES = 64 * 1024
_MIX_ONE = 0x9E3779B97F4A7C15
_MIX_TWO = 0xC2B2AE3D27D4EB4F
_TIME_MASK = 0xFFFF_FFFF_FFFF_0000
_WORD = 0xFFFF_FFFF_FFFF_FFFF


def hash_id(batch_id: bytes) -> int:
    """A batch id as the index has it: its 48 bits of time, so that ids of one time lie together, and 16 of the rest."""
    high, low = int.from_bytes(batch_id[:8], "big"), int.from_bytes(batch_id[8:], "big")
    mixed = (high ^ low * _MIX_ONE & _WORD) * _MIX_TWO & _WORD
    return high & _TIME_MASK | mixed >> 48


def hash_ids(ids: Buffer) -> Numbers:
    """``hash_id`` of ids that lie back to back."""
    pairs = np.frombuffer(ids, ">u8").astype(np.uint64).reshape(-1, 2)
    high, low = pairs[:, 0], pairs[:, 1]
    mixed = (high ^ low * np.uint64(_MIX_ONE)) * np.uint64(_MIX_TWO)
    return (high & np.uint64(_TIME_MASK)) | (mixed >> np.uint64(48))


@dataclass(frozen=True, slots=True)
class IdPiece:
    """Ids of consecutive batches, and their positions."""

    ids: bytearray
    places: array[int]

    def find(self, batch_id: bytes) -> list[int]:
        pairs = np.frombuffer(self.ids, "<u8").reshape(-1, 2)
        high, low = np.frombuffer(batch_id, "<u8")
        return [self.places[index] for index in np.flatnonzero((pairs[:, 0] == high) & (pairs[:, 1] == low))]


@dataclass(frozen=True, slots=True)
class KeyPiece:
    """Key hashes of consecutive batches with keys, how many each has, and where it is. 0 is no key."""

    hashes: bytearray
    counts: array[int]
    places: array[int]

    def find(self, value: int) -> list[int]:
        """The positions of batches that have the hash."""
        found = np.flatnonzero(np.frombuffer(self.hashes, "<u8") == np.uint64(value))
        batches = np.searchsorted(np.cumsum(np.array(self.counts, np.int64)), found, "right")
        return [self.places[batch] for batch in np.unique(batches)]

    def entries(self) -> tuple[Numbers, Numbers]:
        hashes = np.frombuffer(self.hashes, "<u8")
        places = np.repeat(np.array(self.places, np.uint64), np.array(self.counts, np.int64))
        keyed = hashes != 0
        return (hashes, places) if keyed.all() else (hashes[keyed], places[keyed])


@dataclass(frozen=True, slots=True)
class Pieces:
    """What was gathered of one segment, in the order of its coming."""

    ids: tuple[IdPiece, ...]
    keys: tuple[KeyPiece, ...]

    def find_id(self, batch_id: bytes) -> list[int]:
        """The positions of batches with that id, in their order."""
        return [place for piece in self.ids for place in piece.find(batch_id)]

    def find_key(self, value: int) -> list[int]:
        """The positions of batches with a key of that hash, in their order."""
        return [place for piece in self.keys for place in piece.find(value)]

    def encode(self, base: int, end: int) -> bytearray:
        """The index file of the segment."""
        empty = np.empty(0, np.uint64)
        ids = [hash_ids(piece.ids) for piece in self.ids]
        places = [np.array(piece.places, np.uint64) for piece in self.ids]
        keyed = [piece.entries() for piece in self.keys]
        return encode_index(
            base,
            end,
            (np.concatenate([empty, *ids]), np.concatenate([empty, *places])),
            (
                np.concatenate([empty, *(hashes for hashes, _ in keyed)]),
                np.concatenate([empty, *(at for _, at in keyed)]),
            ),
        )


class OpenIndex:
    """What is gathered of the open segment."""

    __slots__ = ("_counts", "_full_ids", "_full_keys", "_hashes", "_ids", "_key_places", "_places", "keys")

    def __init__(self) -> None:
        self._full_ids: list[IdPiece] = []
        self._full_keys: list[KeyPiece] = []
        self.keys = 0
        """Hashes that were gathered."""
        self._begin_ids()
        self._begin_keys()

    def _begin_ids(self) -> None:
        self._ids = bytearray()
        self._places = array("Q")

    def _begin_keys(self) -> None:
        self._hashes = bytearray()
        self._counts = array("Q")
        self._key_places = array("Q")

    def note(self, batch_id: bytes, position: int) -> None:
        """A batch. On the hot path: two C calls, and no look at how much there is."""
        self._ids += batch_id
        self._places.append(position)

    def note_many(self, batch_ids: bytes, positions: list[int]) -> None:
        """Batches that were stored together."""
        self._ids += batch_ids
        self._places.extend(positions)

    def note_keys(self, hashes: memoryview, position: int) -> None:
        """A batch's key hashes; the bytes are copied, for the batch's own go as soon as they are written."""
        self._hashes += hashes
        self._counts.append(len(hashes) // 8)
        self._key_places.append(position)
        self.keys += len(hashes) // 8
        if len(self._hashes) >= PIECE_BYTES:
            self._full_keys.append(KeyPiece(self._hashes, self._counts, self._key_places))
            self._begin_keys()

    def view(self) -> Pieces:
        """What there is now, for another thread. A piece that has grown large enough is not copied but ended."""
        if len(self._ids) >= PIECE_BYTES:
            self._full_ids.append(IdPiece(self._ids, self._places))
            self._begin_ids()
        ids = IdPiece(self._ids[:], self._places[:])
        keys = KeyPiece(self._hashes[:], self._counts[:], self._key_places[:])
        return Pieces((*self._full_ids, ids), (*self._full_keys, keys))

    def end(self) -> Pieces | None:
        """All of it, and begin anew; ``None`` when there is none."""
        if not (self._full_ids or self._ids):
            return None
        ids, keys = self._full_ids, self._full_keys
        if self._ids:
            ids.append(IdPiece(self._ids, self._places))
        if self._hashes:
            keys.append(KeyPiece(self._hashes, self._counts, self._key_places))
        self._full_ids, self._full_keys, self.keys = [], [], 0
        self._begin_ids()
        self._begin_keys()
        return Pieces(tuple(ids), tuple(keys))


@dataclass(slots=True, eq=False)
class SegmentIndex:
    """The index of one sealed segment."""

    base: int
    end: int
    pieces: Pieces | None = None
    """Until the file is written."""
    number: int | None = None
    """The ``Ready`` that writes the file, once it is made."""
    head: SealedIndex | None = None
    """The file's head, once somebody has looked."""


@dataclass(slots=True)
class Index:
    """All segments'."""

    open: OpenIndex = field(default_factory=OpenIndex)
    sealed: dict[int, SegmentIndex] = field(default_factory=dict[int, SegmentIndex])
    """By base, in their order."""
    _unwritten: list[SegmentIndex] = field(default_factory=list[SegmentIndex])

    def seal(self, base: int, end: int) -> Callable[[], bytearray] | None:
        """The segment is full: a function that makes its index; ``None`` when nothing was gathered of it."""
        pieces = self.open.end()
        if pieces is None:
            return None
        self.sealed[base] = SegmentIndex(base, end, pieces)
        self._unwritten.append(self.sealed[base])
        return lambda: pieces.encode(base, end)

    def encoded(self, base: int, number: int) -> bool:
        """The index is made and goes into its file with that ``Ready``; ``False`` when its segment is gone."""
        segment = self.sealed.get(base)
        if segment is not None:
            segment.number = number
        return segment is not None

    def let_go(self, written: int) -> None:
        """Forget what is in its file by now."""
        for segment in list(self._unwritten):
            if segment.number is not None and segment.number <= written:
                segment.pieces = None
                self._unwritten.remove(segment)

    def drop(self, base: int) -> None:
        """The segment is gone."""
        segment = self.sealed.pop(base, None)
        if segment in self._unwritten:
            self._unwritten.remove(segment)
