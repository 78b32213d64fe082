"""Messages for later at the broker in memory: kept until its clock says that they are due, then stored as any other.

Each time that a batch names becomes a batch of its own, with the messages that are due then; they keep their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import msgpack

from tidemill.memory_clock import MemoryClock
from tidemill.memory_stores import Lease, StoredSubject
from tidemill_wire.batch import Flags, Header, Origin
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Column, build_batch, hash_text, read_directory
from tidemill_wire.commands import Nack
from tidemill_wire.deduplication import picked
from tidemill_wire.errors import CorruptBatch, Refused
from tidemill_wire.fields import DEAD_PROPERTY, parse_again
from tidemill_wire.lanes import lane_name


class MemoryLater:
    """See the module. ``store`` takes what is due, ``again`` what failed in a group and was to wait so long."""

    def __init__(
        self,
        clock: MemoryClock,
        store: Callable[[bytearray], None],
        again: Callable[[Nack, list[Lease]], None],
    ) -> None:
        self._clock = clock
        self._store = store
        self._fail = again
        self._taken = StoredSubject()
        """How many there were, and the last ones of each producer; its batches are not kept."""

    def take(self, data: bytes) -> int:
        """Keep a batch: the number of its first message here, as that of a delay service."""
        batch = Batch(data)
        header, taken = batch.header, self._taken
        known = taken.known(header)
        if known is not None:
            return known
        deltas = batch.numbers(Column.DELIVER_DELTAS, "q", header.messages)
        if deltas is None:
            raise CorruptBatch("a batch for later that does not say when")
        found = parse_again(batch.partition)
        if found is not None:
            self._clock.call_at(header.created_at_ms + deltas[0], partial(self._again, batch, *found))
            return taken.note(header)
        rows: dict[int, list[int]] = {}
        for row, delta in enumerate(deltas):
            rows.setdefault(header.created_at_ms + delta, []).append(row)
        for due_ms, mine in rows.items():
            self._clock.call_at(due_ms, partial(self._store, _piece(batch, mine)))
        return taken.note(header)

    def _again(self, batch: Batch, subject: str, group: str) -> None:
        """The messages themselves are still here: nothing is copied."""
        priority = batch.header.priority
        attempts = batch.numbers(Column.ATTEMPTS, "i", batch.header.messages) or []
        said = [
            cast("dict[str, Any]", msgpack.unpackb(one))[DEAD_PROPERTY] for one in batch.properties() or []
        ]
        failed = [(int(known["sequence"]), count + 1) for known, count in zip(said, attempts, strict=True)]
        known = said[0]
        why = Nack(
            group, "", lane_name(subject, priority), [], 0, known["reason"], known["error"], known["place"]
        )
        self._fail(why, failed)


def refusal_of(buffer: bytearray, at: int, header: Header) -> Refused | None:
    """Nobody could end a series here."""
    if not header.flags & Flags.DELAYED or Column.CRON not in read_directory(buffer, at, header):
        return None
    return Refused("unsupported_flag", "the queue in memory has no messages that recur, a delay service has")


def _piece(batch: Batch, rows: Sequence[int]) -> bytearray:
    """A batch of these messages, which a producer of its own sends: it is its first and last one. A column says where
    they were in the batch that was sent, so that they keep their ids.
    """
    header = batch.header
    producer_id = hash_text(header.batch_id + rows[0].to_bytes(4))
    origin = Origin(
        batch.partition.encode(), producer_id, 1, header.batch_id, header.created_at_ms, Codec.NONE,
        batch.flags & ~Flags.DELAYED, header.priority, header.bloom,
    )  # fmt: skip
    content = picked(batch, rows)
    content.sources = rows
    return build_batch(origin, content)
