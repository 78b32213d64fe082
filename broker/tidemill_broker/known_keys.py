"""The dedup keys that a partition knows: which messages of its subject's window had one, and where they are.

A key is known from the message that had it, which is in the message log; so what is here follows from that log, on a
master, a slave and after a restart alike, and is cut with it. A subject's window says for how long a key counts, by the
clock of the broker that stored the message.

    noted ──▶ fresh (a dict, and records as they came) ──▶ sealed (records by key, in one array) ──▶ forgotten

Each slice is sealed when it is full, or as old as a quarter of the window, and is forgotten as a whole: so a quarter of
a window more is kept than counts. Of a sealed key some 62 bytes are held. A key may be in several slices, after its
window: the newest record counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidemill_wire.deduplication import DIGEST_BYTES, NO_KEY

RECORD = Struct("<16sqQ16s")
RECORDS = np.dtype([("low", "<u8"), ("high", "<u8"), ("sequence", "<i8"), ("place", "<u8"), ("batch", "V16")])
INDEX_BITS = 20
FRESH_MAX = 1 << 16
"""Keys in a slice: sorting them takes some milliseconds, and a fresh one costs a quarter of a kilobyte."""
SLICES = 4
"""Of a window."""
KEY = Struct("<QQ")

assert RECORD.size == RECORDS.itemsize


class Known(NamedTuple):
    """Where the message is that had a key, and when it was stored; its number in its batch, by which its id is made."""

    sequence: int
    stored_at_ms: int
    number: int
    batch_id: bytes


class Slice:
    """Sealed: records sorted by their keys, of one key the newest last; and where each bucket of keys begins."""

    __slots__ = ("_low", "_shift", "_starts", "latest_ms", "records")

    def __init__(self, records: npt.NDArray[np.void]) -> None:
        low = np.ascontiguousarray(records["low"])
        bits = max(1, len(low).bit_length())
        counts = np.bincount((low >> np.uint64(64 - bits)).astype(np.int64), minlength=1 << bits)
        self.records = records
        self._low: memoryview = low.data
        self._shift = 64 - bits
        self._starts: memoryview = np.concatenate(([0], np.cumsum(counts))).astype(np.uint32).data
        self.latest_ms = int(records["place"].max()) >> INDEX_BITS

    def __len__(self) -> int:
        return len(self.records)

    def find(self, low: int, high: int) -> Known | None:
        """The newest record of a key, which is given in halves."""
        bucket = low >> self._shift
        first, at = self._starts[bucket], self._starts[bucket + 1]
        while at > first:
            at -= 1
            if self._low[at] == low and self.records[at]["high"] == high:
                return known_of(self.records[at].tobytes())
        return None


class KnownKeys:
    """Those of one partition and its lanes."""

    __slots__ = ("_begun_ms", "_fresh", "_newest", "_sealed")

    def __init__(self) -> None:
        self._fresh = bytearray()
        self._newest: dict[bytes, int] = {}
        """Digest -> place of its record."""
        self._begun_ms = 0
        self._sealed: list[Slice] = []

    def __len__(self) -> int:
        return len(self._fresh) // RECORD.size + sum(map(len, self._sealed))

    def note(
        self,
        digests: bytes | memoryview,
        message: tuple[int, int, bytes],
        sources: Sequence[int] | None,
        window_ms: int,
    ) -> None:
        """A batch was stored: its digests; first sequence, time and id of it; the indexes of its messages, unless they
        are their rows.
        """
        first, now_ms, batch_id = message
        if self._fresh and (len(self._newest) >= FRESH_MAX or now_ms - self._begun_ms >= window_ms // SLICES):
            self.seal()
        if not self._fresh:
            self._begun_ms = now_ms
        self.forget(now_ms - window_ms)
        for row in range(len(digests) // DIGEST_BYTES):
            digest = bytes(digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES])
            if digest != NO_KEY:
                index = sources[row] if sources is not None else row
                self._newest[digest] = len(self._fresh)
                self._fresh += RECORD.pack(digest, first + row, now_ms << INDEX_BITS | index, batch_id)

    def find(self, digests: Sequence[bytes], since_ms: int) -> list[Known | None]:
        """Of each key the message that had it, if it was stored behind that time."""
        found = map(self._find, digests)
        return [one if one is not None and one.stored_at_ms > since_ms else None for one in found]

    def _find(self, digest: bytes) -> Known | None:
        at = self._newest.get(digest)
        if at is not None:
            return known_of(self._fresh[at : at + RECORD.size])
        low, high = KEY.unpack(digest)
        for one in reversed(self._sealed):
            if (known := one.find(low, high)) is not None:
                return known
        return None

    def seal(self) -> None:
        """What is fresh is sorted."""
        if not self._fresh:
            return
        records = np.frombuffer(bytes(self._fresh), RECORDS)
        order = np.argsort(records["low"], kind="stable")
        self._sealed.append(Slice(records[order]))
        self._fresh = bytearray()
        self._newest = {}

    def forget(self, until_ms: int) -> None:
        """Slices of which nothing counts any more: all was stored at that time or before."""
        if self._sealed and any(one.latest_ms <= until_ms for one in self._sealed):
            self._sealed = [one for one in self._sealed if one.latest_ms > until_ms]

    def to_list(self) -> list[bytes]:
        """For the checkpoint: the records of each slice, the fresh ones as they came and last."""
        return [*(one.records.tobytes() for one in self._sealed), bytes(self._fresh)]

    @classmethod
    def from_list(cls, slices: Iterable[bytes]) -> KnownKeys:
        """From the checkpoint."""
        *sealed, fresh = slices
        keys = cls()
        keys._sealed = [Slice(np.frombuffer(one, RECORDS)) for one in sealed]
        for at in range(0, len(fresh), RECORD.size):
            keys._newest[fresh[at : at + DIGEST_BYTES]] = at
        keys._fresh = bytearray(fresh)
        if fresh:
            keys._begun_ms = known_of(fresh[: RECORD.size]).stored_at_ms
        return keys


def known_of(record: bytes | bytearray) -> Known:
    """A record's fields."""
    _, sequence, place, batch_id = RECORD.unpack(record)
    return Known(sequence, place >> INDEX_BITS, place & ((1 << INDEX_BITS) - 1), batch_id)
