"""Dedup keys in the broker in memory: each is known for its subject's window, as at a broker."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill_wire.batch import DEDUPLICATED, Header, read_header
from tidemill_wire.columns import Batch
from tidemill_wire.deduplication import NO_KEY, Duplicate, digests_of, packed_rows, some_of
from tidemill_wire.limits import DEDUPLICATION_SECONDS_DEFAULT


@dataclass(slots=True)
class KnownKeys:
    """Those of a subject and its lanes."""

    window_s: float = DEDUPLICATION_SECONDS_DEFAULT
    _stored: dict[bytes, tuple[int, Duplicate]] = field(default_factory=dict[bytes, tuple[int, Duplicate]])
    """Digest -> when it was stored, and where it is."""
    _told: dict[tuple[int, int], bytes] = field(default_factory=dict[tuple[int, int], bytes])
    """What was told of a producer's batch."""

    def told(self, header: Header) -> bytes:
        """Of a batch that comes again."""
        return self._told.get((header.producer_id, header.producer_sequence), b"")

    def sift(self, data: bytearray, next_sequence: int, now_ms: int) -> tuple[bytearray | None, bytes]:
        """What of a batch is to be stored, as a batch, or nothing; and what is told of the rest."""
        if not read_header(data).flags & DEDUPLICATED:
            return data, b""
        batch = Batch(data)
        digests = digests_of(batch) or []
        told: list[Duplicate] = []
        kept: list[int] = []
        for row, digest in enumerate(digests):
            at_ms, known = self._stored.get(digest, (0, None))
            if digest != NO_KEY and known is not None and now_ms - at_ms < 1000 * self.window_s:
                told.append(known._replace(row=row))
                continue
            own = Duplicate(row, row, next_sequence + len(kept), batch.header.batch_id)
            self._stored[digest] = now_ms, own
            kept.append(row)
        if not told:
            return data, b""
        rows = self._told[batch.header.producer_id, batch.header.producer_sequence] = packed_rows(told)
        return (some_of(batch, kept) if kept else None), rows
