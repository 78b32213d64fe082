"""Messages for later at the broker in memory: kept until its clock says that they are due, then stored as any other.

Those of a batch that are due at one time become a batch of their own; they keep their ids. What is asked about them is
answered by ``memory_timers.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, cast

import msgpack

from tidemill.memory_clock import MemoryClock
from tidemill.memory_stores import Lease, StoredSubject
from tidemill.recurring import offset_in
from tidemill_wire.batch import Flags, Header, Origin, message_id
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Column, build_batch, hash_text
from tidemill_wire.commands import Nack
from tidemill_wire.deduplication import picked
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.fields import DEAD_PROPERTY, parse_again
from tidemill_wire.lanes import lane_name
from tidemill_wire.recurrence import MISSED_MS, Recurrence, parse_recurrence


class Fate(Enum):
    """What became of a message."""

    WAITS = "waits"
    GONE = "gone"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    """An occurrence whose time had passed, and that nobody wanted then: the one after it stands for it."""


@dataclass(slots=True, eq=False)
class Kept:
    """A message that was sent for later."""

    batch: Batch
    row: int
    batch_id: bytes
    due_ms: int
    stored_ms: int
    timer_key: str = ""
    recurrence: Recurrence | None = None
    follower: Kept | None = None
    """The occurrence after it."""
    ended: bool = False
    """There shall be none."""
    fate: Fate = Fate.WAITS

    @property
    def id(self) -> str:
        """As its receipt has it."""
        return message_id(self.batch_id, self.row)

    @property
    def subject(self) -> str:
        """Where it goes."""
        return self.batch.partition


class MemoryLater:
    """See the module. ``store`` takes what is due, ``again`` what failed in a group and was to wait so long."""

    def __init__(
        self,
        clock: MemoryClock,
        store: Callable[[bytearray], None],
        again: Callable[[Nack, list[Lease]], None],
    ) -> None:
        self.kept: dict[str, Kept] = {}
        """All there ever were, by their ids, in the order in which they came."""
        self.clock = clock
        self._store = store
        self._fail = again
        self._taken: dict[str, StoredSubject] = {}
        """The last ones of each producer, by lane: it counts in each of them apart. Their batches are not kept."""
        self._count = 0

    def take(self, data: bytes) -> int:
        """Keep a batch: the number of its first message here, as that of a delay service."""
        batch = Batch(data)
        header = batch.header
        taken = self._taken.setdefault(lane_name(batch.partition, header.priority), StoredSubject())
        known = taken.known(header)
        if known is not None:
            return known
        deltas = batch.numbers(Column.DELIVER_DELTAS, "q", header.messages)
        if deltas is None:
            raise CorruptBatch("a batch for later that does not say when")
        found = parse_again(batch.partition)
        if found is not None:
            self.clock.call_at(header.created_at_ms + deltas[0], partial(self._again, batch, *found))
            return self._note(taken, header)
        said = batch.column(Column.CRON)
        recurrence = None if said is None else parse_recurrence(bytes(said))
        keys = batch.timer_keys() or [""] * header.messages
        rows: dict[int, list[Kept]] = {}
        for row, (delta, key) in enumerate(zip(deltas, keys, strict=True)):
            due_ms = header.created_at_ms + delta
            named = (batch, row, header.batch_id, due_ms, self.clock.now_ms(), key, recurrence)
            rows.setdefault(due_ms, []).append(Kept(*named))
        for due_ms, mine in rows.items():
            self._place(mine, due_ms)
        return self._note(taken, header)

    def _note(self, taken: StoredSubject, header: Header) -> int:
        """A new batch is taken: its first number among all."""
        taken.next_sequence = self._count
        self._count += header.messages
        return taken.note(header)

    def move(self, mine: Sequence[Kept], due_ms: int) -> None:
        """They are due at another time."""
        for one in mine:
            one.due_ms = due_ms
        self._place(mine, due_ms)

    def _place(self, mine: Sequence[Kept], due_ms: int) -> None:
        for one in mine:
            self.kept[one.id] = one
        self.clock.call_at(due_ms, partial(self._come, mine, due_ms))

    def _come(self, mine: Sequence[Kept], due_ms: int) -> None:
        """Their time has come, unless they were cancelled or have another one by now."""
        due = [one for one in mine if one.fate is Fate.WAITS and one.due_ms == due_ms]
        leaving = [one for one in due if self._follow(one)]
        for one in due:
            one.fate = Fate.GONE if one in leaving else Fate.SKIPPED
        for run in _runs_of(leaving):
            self._store(_piece(run))

    def _follow(self, one: Kept) -> bool:
        """Place the occurrence after one that is due, as a delay service does; whether the one that is due leaves."""
        said, now_ms = one.recurrence, self.clock.now_ms()
        if said is None:
            return True
        base_ms = max(said.planned_ms, one.due_ms)
        if said.missed != "all":
            base_ms = max(base_ms, now_ms)
        next_ms = said.next_ms(base_ms, offset_in(said.zone))
        late_ms = now_ms - max(one.due_ms, one.stored_ms)
        if next_ms is None:
            one.ended = True
            return True
        series = said.series or hash_text(one.batch_id)
        one.follower = replace(
            one, row=0, batch_id=(next_ms << 16).to_bytes(8, "big") + series.to_bytes(8, "big"), due_ms=next_ms,
            stored_ms=now_ms, recurrence=replace(said, planned_ms=next_ms, series=series),
        )  # fmt: skip
        self._place([one.follower], next_ms)
        return said.missed != "none" or late_ms <= MISSED_MS

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


def _runs_of(leaving: Sequence[Kept]) -> list[list[Kept]]:
    """Those that make one batch: all of one that was sent, and each occurrence for itself."""
    runs: dict[bytes, list[Kept]] = {}
    for one in leaving:
        runs.setdefault(one.batch_id, []).append(one)
    return list(runs.values())


def _piece(mine: Sequence[Kept]) -> bytearray:
    """A batch of these messages, which a producer of its own sends: it is its first and last one. A column says where
    they were in the batch that was sent, so that they keep their ids.
    """
    batch, rows, batch_id = mine[0].batch, [one.row for one in mine], mine[0].batch_id
    header, said = batch.header, mine[0].recurrence
    producer_id = hash_text(batch_id + rows[0].to_bytes(4))
    created_ms = said.planned_ms if said is not None and said.series else header.created_at_ms
    origin = Origin(
        batch.partition.encode(), producer_id, 1, batch_id, created_ms, Codec.NONE,
        batch.flags & ~Flags.DELAYED, header.priority, header.bloom,
    )  # fmt: skip
    content = picked(batch, rows)
    content.sources = rows
    content.timer_keys = [one.timer_key for one in mine] if any(one.timer_key for one in mine) else None
    return build_batch(origin, content)
