"""Which messages of a batch are stored already, by their dedup keys; and what is stored of it instead of all.

    none                    the batch is stored as it is
    all                     nothing is stored, and where they are is answered
    some                    a batch of the others is stored, under the same producer's number; where the first ones are
                            is answered

What is answered are rows that are not in what was stored now. A batch that its producer has sent before gets the same
answer again, as far as its keys are still known: one that is not leaves where its messages are unsaid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidemill_broker.deduplication import window_ms_of
from tidemill_broker.known_keys import Known
from tidemill_broker.partitions import Partition
from tidemill_broker.state import State
from tidemill_ledger.columns import place_of_column
from tidemill_wire import limits
from tidemill_wire.batch import Header, aligned
from tidemill_wire.columns import Batch, Column, read_directory
from tidemill_wire.deduplication import DIGEST_BYTES, NO_KEY, ROW, Duplicate, packed_rows, some_of
from tidemill_wire.errors import CorruptBatch, Refused, Unavailable

ROOM_BYTES = 64
"""A column more: its row in the directory, and what it is filled up with."""


class Look(NamedTuple):
    """What becomes of a batch."""

    first: int | None
    """What is answered, as for a batch that came before; ``None``: it is to be stored."""
    part: bytearray | None = None
    """What is to be stored instead of it."""
    rows: bytes = b""
    """What is told of those that are not stored now."""


class Duplicates:
    """Looks at batches with dedup keys."""

    def __init__(self, state: State) -> None:
        self._state = state

    def look(
        self, batch: memoryview, header: Header, partition: Partition, first: int | None, now_ms: int
    ) -> Look:
        """``first``: as ``Remembering.repeated`` says it."""
        digests = _digests(batch, header)
        keyed = [row for row, digest in enumerate(digests) if digest != NO_KEY]
        if first is None:
            self._check(partition, len(keyed), now_ms)
        known = self._state.deduplication.find(partition, [digests[row] for row in keyed], now_ms)
        indexes = _indexes(batch, header)
        if first is not None:
            return _again(first, header, list(zip(keyed, known, strict=True)), indexes)
        rows: list[Duplicate] = []
        kept = dict.fromkeys(range(header.messages))
        earlier: dict[bytes, int] = {}
        for row, one in zip(keyed, known, strict=True):
            if one is not None:
                del kept[row]
                rows.append(Duplicate(row, one.number, one.sequence, one.batch_id))
            elif earlier.setdefault(digests[row], row) != row:
                del kept[row]
        if len(kept) == header.messages:
            return Look(None)
        ranks = {row: rank for rank, row in enumerate(kept)}
        rows += [
            Duplicate(row, indexes[same], partition.next_sequence + ranks[same], header.batch_id)
            for row in keyed
            if row not in kept and (same := earlier.get(digests[row])) is not None
        ]
        if not kept:
            return Look(-1, None, packed_rows(rows))
        return Look(None, _part(batch, header, list(kept)), packed_rows(sorted(rows)))

    def _check(self, partition: Partition, keys: int, now_ms: int) -> None:
        """Whether so many keys more may be known."""
        if not window_ms_of(partition):
            raise Refused("no_dedup_window", f"subject {partition.name!r} has no window for dedup keys")
        if keys > limits.DEDUP_BATCH_KEYS_MAX:
            most = limits.DEDUP_BATCH_KEYS_MAX
            raise Refused("limit_exceeded", f"a batch with {keys} dedup keys, {most} are allowed")
        deduplication = self._state.deduplication
        if deduplication.count + keys > limits.DEDUP_KEYS_MAX:
            deduplication.forget(self._state, now_ms)
        if deduplication.count + keys > limits.DEDUP_KEYS_MAX:
            raise Unavailable(
                "too_many_dedup_keys",
                f"this broker knows {deduplication.count} dedup keys, as many as it may",
            )


def check_told(told: Sequence[tuple[int, bytes]], rows: bytes) -> None:
    """Whether so much more fits the answer. The first batch with duplicates always does."""
    before = sum(len(one) for _, one in told)
    if before and before + len(rows) > ROW.size * limits.DEDUP_ANSWER_ROWS_MAX:
        raise Unavailable(
            "too_many_requests",
            f"a SEND with more than {limits.DEDUP_ANSWER_ROWS_MAX} messages that are known",
        )


def _digests(batch: memoryview, header: Header) -> list[bytes]:
    found = place_of_column(batch, 0, header, Column.DEDUP_KEYS, DIGEST_BYTES)
    if found is None:
        raise CorruptBatch("a batch with the flag DEDUPLICATED, without dedup keys")
    data = bytes(batch[found[0] : found[0] + found[1]])
    return [data[at : at + DIGEST_BYTES] for at in range(0, len(data), DIGEST_BYTES)]


def _indexes(batch: memoryview, header: Header) -> Sequence[int]:
    """By which the messages' ids are made."""
    found = place_of_column(batch, 0, header, Column.SOURCES, 4)
    return range(header.messages) if found is None else batch[found[0] : found[0] + found[1]].cast("i")


def _again(first: int, header: Header, known: list[tuple[int, Known | None]], indexes: Sequence[int]) -> Look:
    rows = [Duplicate(row, one.number, one.sequence, one.batch_id) for row, one in known if one is not None]
    if first < 0:
        return Look(first, None, packed_rows(rows))
    if len(rows) < len(known):
        return Look(-1)
    others = [one for one in rows if (one.batch_id, one.number) != (header.batch_id, indexes[one.row])]
    return Look(first, None, packed_rows(others))


def _part(batch: memoryview, header: Header, rows: list[int]) -> bytearray:
    entries = read_directory(batch, 0, header)
    raw = sum(aligned(raw_size) for _, _, _, raw_size in entries.values()) + 4 * len(rows) + ROOM_BYTES
    if raw + header.length - sum(size for _, _, size, _ in entries.values()) > limits.BATCH_BYTES_MAX:
        raise Refused(
            "batch_too_large",
            f"a batch of {header.length} bytes of which some messages are known leaves no room to say which",
        )
    return some_of(Batch(batch), rows)
