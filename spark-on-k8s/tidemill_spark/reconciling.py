"""Whether a lake holds what the brokers hold: each message, once, with the same bytes.

Compared is what both should have: from the first sequence that a broker still keeps, and the lake has not expired, to
the watermark. All columns are compared. What is not equal is named by its partition and sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tidemill_spark.archive import decoded
from tidemill_spark.arrow import pa, pc
from tidemill_spark.commits import File, Partition, State
from tidemill_spark.errors import LakeDamaged
from tidemill_spark.lake import Lake
from tidemill_spark.ranges import Range, RangeGone, ranges_of, standings
from tidemill_spark.schema import COLUMNS
from tidemill_spark.stores import open_store
from tidemill_spark.tables import in_order, read_from
from tidemill_spark.workers import Workers
from tidemill_wire.limits import MIB

TASK_BYTES = 64 * MIB
EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class Task:
    """A range of the logs, and the files of the lake that may have messages of it."""

    range: Range
    files: tuple[File, ...]
    uri: str


@dataclass(slots=True)
class Compared:
    """Of a partition, or a part of it: sequences of the messages that are not in both, once."""

    partition: Partition
    logs: int = 0
    lake: int = 0
    lost: list[int] = field(default_factory=list[int])
    """In the logs and not in the lake."""
    strange: list[int] = field(default_factory=list[int])
    """In the lake and not in the logs."""
    doubled: list[int] = field(default_factory=list[int])
    different: list[int] = field(default_factory=list[int])
    """In both, with other columns."""
    damaged: list[str] = field(default_factory=list[str])
    """Files of the lake that are not there, or cannot be read: what they had is among the lost."""

    @property
    def equal(self) -> bool:
        return not (self.lost or self.strange or self.doubled or self.different or self.damaged)

    def add(self, other: Compared) -> None:
        """Another part of the same partition."""
        self.logs += other.logs
        self.lake += other.lake
        for name in ("lost", "strange", "doubled", "different"):
            getattr(self, name).extend(getattr(other, name))
        self.damaged += (name for name in other.damaged if name not in self.damaged)

    def row(self) -> dict[str, Any]:
        """As JSON has it, with a few examples."""
        differing: dict[str, Any] = {
            name: {"messages": len(found), "sequences": sorted(found)[:EXAMPLES]}
            for name in ("lost", "strange", "doubled", "different")
            if (found := getattr(self, name))
        }
        differing |= {"damaged": {"files": self.damaged}} if self.damaged else {}
        return {
            "subject": self.partition.subject, "broker_group": self.partition.broker_group,
            "partition": self.partition.name, "logs": self.logs, "lake": self.lake, "equal": self.equal, **differing,
        }  # fmt: skip


def reconcile(server: str, lake: Lake, workers: Workers, subjects: Sequence[str] = ()) -> list[Compared]:
    """One result a partition that has been archived."""
    found = {place: Compared(place) for place in lake.archived(subjects)}
    for _, part in workers.each(compared, tasks(server, lake, sorted({one.subject for one in found}))):
        found[part.partition].add(part)
    return [found[place] for place in sorted(found)]


def tasks(server: str, lake: Lake, subjects: Sequence[str]) -> list[Task]:
    """What is to be compared, in parts."""
    if not subjects:
        return []
    state = lake.state
    there = standings(server, subjects)
    spans: dict[tuple[str, str], tuple[int, int]] = {}
    for one in there:
        place = Partition(one.subject, one.broker_group, one.partition)
        mark, first = state.watermarks.get(place), _first_kept(state, place)
        if mark is not None and first is not None:
            spans[one.key] = max(one.first, first), min(mark, one.next)
    return [
        Task(one, tuple(_files_of(state, one)), lake.store.uri)
        for one in ranges_of(server, there, spans, target_bytes=TASK_BYTES)
    ]


def _first_kept(state: State, place: Partition) -> int | None:
    """The first sequence that the lake should have: what expired was the oldest."""
    if not state.expired.get(place):
        return state.begins[place]
    firsts = [
        span.first
        for file in state.files.values()
        if file.subject == place.subject
        for span in file.spans
        if (span.broker_group, span.partition) == place[1:]
    ]
    return min(firsts, default=None)


def _files_of(state: State, one: Range) -> Iterator[File]:
    for file in state.files.values():
        for span in file.spans:
            same = (file.subject, span.broker_group, span.partition) == (
                one.subject, one.broker_group, one.partition,
            )  # fmt: skip
            if same and span.first < one.next_sequence and span.next > one.first_sequence:
                yield file
                break


def compared(task: Task) -> Compared:
    """The logs and the lake, side by side."""
    one = task.range
    try:
        logs = pa.concat_tables([table for table, _ in decoded(one)])
    except RangeGone as gone:  # retention was faster: what is left is compared
        if gone.first is None or gone.first >= one.next_sequence:
            return Compared(Partition(one.subject, one.broker_group, one.partition))
        return compared(replace(task, range=replace(one, first_sequence=gone.first)))
    store = open_store(task.uri)
    parts: list[Any] = []
    damaged: list[str] = []
    for file in task.files:
        try:
            parts.append(_within(read_from(store, file), one))
        except LakeDamaged:
            damaged.append(file.name)
    lake = in_order(pa.concat_tables([logs.slice(0, 0), *parts], promote_options="permissive"))
    found = judged(Partition(one.subject, one.broker_group, one.partition), logs, lake)
    found.damaged = damaged
    return found


def _within(table: Any, one: Range) -> Any:
    mask = pc.and_(
        pc.and_(
            pc.equal(table["broker_group"], one.broker_group), pc.equal(table["partition"], one.partition)
        ),
        pc.and_(
            pc.greater_equal(table["sequence"], one.first_sequence),
            pc.less(table["sequence"], one.next_sequence),
        ),
    )
    return table.filter(mask)


def judged(place: Partition, logs: Any, lake: Any) -> Compared:
    """Both sorted by sequence, and the logs have each once."""
    found = Compared(place, logs.num_rows, lake.num_rows)
    ours, theirs = lake["sequence"].to_numpy(), logs["sequence"].to_numpy()
    again = np.zeros(len(ours), bool)
    again[1:] = ours[1:] == ours[:-1]
    found.doubled = ours[again].tolist()
    lake, ours = lake.filter(pa.array(~again)), ours[~again]
    found.lost = np.setdiff1d(theirs, ours, assume_unique=True).tolist()
    found.strange = np.setdiff1d(ours, theirs, assume_unique=True).tolist()
    both = np.intersect1d(ours, theirs, assume_unique=True)
    mine, other = (
        table.filter(pa.array(np.isin(sequences, both)))
        for table, sequences in ((lake, ours), (logs, theirs))
    )
    differs = np.zeros(len(both), bool)
    for name in COLUMNS:
        if not mine[name].equals(other[name].cast(mine[name].type)):
            differs |= _differs(mine[name], other[name])
    found.different = both[differs].tolist()
    return found


def _differs(mine: Any, other: Any) -> Any:
    pairs = zip(mine.to_pylist(), other.to_pylist(), strict=True)
    return np.fromiter((one != two for one, two in pairs), bool, len(mine))


def by_partition(found: Sequence[Compared]) -> list[dict[str, Any]]:
    """Rows for people and programs."""
    return [one.row() for one in found]
