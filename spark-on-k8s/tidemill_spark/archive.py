"""One run of an archive: what brokers have and the lake has not, as files, and then as commits.

    plan      from each watermark to what was stored before the safety lag, cut into tasks of some seconds
    tasks     each reads its range, from whichever broker of the group answers, and writes its files
    commit    after every wave of tasks: files and watermarks at once (``commits.py``)

What a task writes is read by nobody before the commit, so a run may die anywhere and be started again, also while it
still runs: of two runs that read the same, the second to commit drops its pieces. A partition that has become shorter
than its watermark is another one of the same name, and refused.

Each piece says when its subject was made, as meta knows it (``Piece.carried``). A subject that was removed and made
again goes on behind its watermark where its brokers are the same; where they are not, it begins with what the watermark
takes for archived, and is refused. Meta is told only of what was archived of the subjects that are there now.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tidemill_spark.arrow import numpy_of, pa
from tidemill_spark.backlogs import backlog_of, begins_ms, check_same, life_of, moment
from tidemill_spark.commits import Commit, File, Partition, Piece, State
from tidemill_spark.decode import UNPACKED_BYTES, Place, decode, portioned, split
from tidemill_spark.errors import StoreFailed
from tidemill_spark.lake import COMMIT_WITHIN_MS, Lake
from tidemill_spark.layout import ids_name
from tidemill_spark.marks import made_of
from tidemill_spark.ranges import Prefers, Range, RangeGone, ranges_of, read, standings
from tidemill_spark.schema import COLUMNS
from tidemill_spark.stores import Store, open_store
from tidemill_spark.tables import hours_of, write_file
from tidemill_spark.together import read_together
from tidemill_spark.workers import Workers
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.limits import MIB, RANGE_SPANS_MAX

FORMAT = "Parquet"
TASK_BYTES = 64 * MIB
"""Of batches as they lie in a log: a task holds them, and at most ``UNPACKED_BYTES`` of them as Arrow, sorted."""
WAVE_TASKS = 4
"""For each worker, from one commit to the next."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is archived, and where to."""

    server: str
    uri: str
    subjects: tuple[str, ...]
    name: str = "archive"
    compression: str = "Zstd"
    safety_lag_ms: int = 300_000
    max_span_ms: int | None = None
    prefers: Prefers = "slave"
    """Which brokers are read, where there are such."""


@dataclass(frozen=True, slots=True)
class Task:
    """A range that one worker archives."""

    range: Range
    after: int | None
    uri: str
    compression: str
    made: str = ""
    """When its subject was, where meta says it."""

    @property
    def partition(self) -> Partition:
        return Partition(self.range.subject, self.range.broker_group, self.range.partition)


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a task."""

    piece: Piece
    read_bytes: int


@dataclass(slots=True)
class Totals:
    """What a run has done so far."""

    tasks: int = 0
    tasks_done: int = 0
    rows: int = 0
    """Committed, as the next four."""
    read_bytes: int = 0
    written_bytes: int = 0
    files: int = 0
    missing: int = 0
    late_rows: int = 0
    """Read, and archived by another run meanwhile."""
    commits: int = 0
    rows_read: int = 0
    planned_bytes: int = 0
    through_ms: int = 0
    """All that was stored before is archived."""
    watermarks: dict[Partition, int] = field(default_factory=dict[Partition, int])
    """Of subjects that are there now."""
    made: dict[str, int] | None = None
    """When each of them was made, where meta says it."""


Tell = Callable[[Totals], None]


def run(wanted: Wanted, workers: Workers, now_ms: Callable[[], int], tell: Tell) -> Totals:
    """Archive what there is. ``tell`` is called after each task and each commit."""
    lake = Lake.at(wanted.uri)
    lake.claim(FORMAT)
    identity = f"{wanted.name}-{secrets.token_hex(6)}"
    made = made_of(
        wanted.server
    )  # before it is looked what there is: of a later life nothing is taken for this one's
    tasks, through_ms = plan(wanted, lake.state, now_ms(), made)
    totals = Totals(tasks=len(tasks), planned_bytes=sum(one.range.bytes for one in tasks), made=made)
    tell(totals)
    size = max(1, workers.width * WAVE_TASKS)
    portions = list(portions_of(tasks))
    for at in range(0, len(portions), size):
        began_ms = now_ms()
        wave: list[Written] = []
        for portion, written in workers.each(write_portion, portions[at : at + size]):
            wave += written
            totals.tasks_done += len(portion)
            totals.rows_read += sum(rows(one.piece) for one in written)
            totals.read_bytes += sum(one.read_bytes for one in written)
            tell(totals)
        if now_ms() - began_ms > COMMIT_WITHIN_MS:
            raise StoreFailed(
                "the tasks took so long that their files may be swept: nothing of them is committed"
            )
        commit(lake, Commit(secrets.token_hex(16), identity, now_ms(), tuple(w.piece for w in wave)), totals)
        tell(totals)
    totals.watermarks, totals.through_ms = archived_of(lake.state, made), through_ms
    return totals


def archived_of(state: State, made: Mapping[str, int] | None) -> dict[Partition, int]:
    """The watermarks of what was archived of the subjects that are there now."""
    return {
        place: mark
        for place, mark in state.watermarks.items()
        if made is None or state.carried.get(place, "") == life_of(made, place.subject)
    }


def commit(lake: Lake, wanted: Commit, totals: Totals) -> None:
    """Commit pieces, delete the files of those that came too late, and count both."""
    said, late = lake.commit(wanted)
    for piece in said.pieces if said is not None else ():
        totals.rows += rows(piece)
        totals.files += len(piece.files)
        totals.written_bytes += sum(one.size for one in piece.files)
        totals.missing += piece.missing
    totals.commits += said is not None
    totals.late_rows += sum(map(rows, late))
    names = [one.name for piece in late for one in piece.files]
    lake.store.delete([*names, *map(ids_name, names)])


def rows(piece: Piece) -> int:
    """Messages in a piece."""
    return sum(one.rows for one in piece.files)


# -- the plan --------------------------------------------------------------------------------------------------------


def plan(
    wanted: Wanted, state: State, now_ms: int, made: Mapping[str, int] | None = None
) -> tuple[list[Task], int]:
    """Tasks, those of a partition one behind the other; and the time up to which all is archived then."""
    until_ms = now_ms - wanted.safety_lag_ms
    there = standings(wanted.server, wanted.subjects, moment(until_ms), wanted.prefers, of_all=True)
    if wanted.max_span_ms is not None:
        span_ms = begins_ms(wanted.server, state, there, until_ms, wanted.prefers) + wanted.max_span_ms
        if span_ms < until_ms:
            until_ms = span_ms
            there = standings(wanted.server, wanted.subjects, moment(span_ms), wanted.prefers, of_all=True)
    for standing in there:
        check_same(wanted.server, state, standing, made, wanted.prefers)
    spans = {one.key: backlog for one in there if (backlog := backlog_of(state, one)) is not None}
    found: list[Task] = []
    after: dict[Partition, int] = {}
    for one in ranges_of(wanted.server, there, spans, target_bytes=TASK_BYTES, prefers=wanted.prefers):
        task = Task(one, None, wanted.uri, wanted.compression, life_of(made, one.subject) or "")
        mark = after.get(task.partition, state.watermarks.get(task.partition))
        found.append(replace(task, after=mark))
        after[task.partition] = one.next_sequence
    return found, until_ms


def portions_of(tasks: Sequence[Task]) -> Iterator[tuple[Task, ...]]:
    """Tasks as workers are given them: one by one, and those of small partitions together, which share a request. A
    partition of several tasks is not moved: each of its commits follows the one before.
    """
    counts = Counter(one.partition for one in tasks)
    small: dict[tuple[str, ...], list[Task]] = {}
    for task in tasks:
        if counts[task.partition] > 1 or task.range.bytes > TASK_BYTES // 2:
            yield (task,)
            continue
        portion = small.setdefault((task.range.broker_group, *task.range.urls), [])
        held = sum(one.range.bytes for one in portion)
        if portion and (held + task.range.bytes > TASK_BYTES or len(portion) == RANGE_SPANS_MAX):
            yield tuple(portion)
            portion.clear()
        portion.append(task)
    yield from (tuple(portion) for portion in small.values() if portion)


# -- a task ----------------------------------------------------------------------------------------------------------


def write_portion(portion: Sequence[Task]) -> list[Written]:
    """Read ranges and write their files."""
    if len(portion) == 1:
        return [write_range(portion[0])]
    try:
        found = read_together([task.range for task in portion])
        return [write_batches(task, batches) for task, batches in zip(portion, found, strict=True)]
    except (RangeGone, CorruptBatch):  # of one of them; who is left is found one by one
        return [write_range(task) for task in portion]


def write_range(task: Task) -> Written:
    """Read a range and write its files. They are on the store's disk when this returns, and in no commit. Who gives
    bytes that are not what was stored is passed over, as long as there are others.
    """
    try:
        return _write_range(task)
    except CorruptBatch:
        others = task.range.urls[1:]
        if not others:
            raise
        return write_range(replace(task, range=replace(task.range, urls=others)))


def _write_range(task: Task) -> Written:
    wanted = task.range
    try:
        batches = [batch for some in _batches(wanted) for batch in some]
    except RangeGone as gone:  # retention was faster, also than what this task has read already
        first = wanted.next_sequence if gone.first is None else min(gone.first, wanted.next_sequence)
        if first <= wanted.first_sequence:
            raise
        if first < wanted.next_sequence:
            return write_range(replace(task, range=replace(wanted, first_sequence=first)))
        piece = Piece(task.partition, task.after, first, wanted.next_sequence, carried=task.made)
        return Written(piece, 0)
    return write_batches(task, batches)


def write_batches(task: Task, batches: Sequence[memoryview], unpacked_max: int = UNPACKED_BYTES) -> Written:
    """Files of the messages of a range. A long body is copied only where it is unpacked; and what unpacks to more than
    is good to hold becomes files of its own, portion by portion.
    """
    wanted, store = task.range, open_store(task.uri)
    files: list[File] = []
    at = wanted.first_sequence
    for portion in portioned(batches, unpacked_max):
        made, at = _write(store, task, portion, at)
        files += made
    if at != wanted.next_sequence:
        raise _missing(wanted, at)
    first, behind = wanted.first_sequence, wanted.next_sequence
    piece = Piece(task.partition, task.after, first, behind, tuple(files), task.made)
    return Written(piece, sum(map(len, batches)))


def _write(store: Store, task: Task, portion: Sequence[memoryview], first: int) -> tuple[list[File], int]:
    """Files of these batches, and the sequence behind them."""
    wanted = task.range
    table = _table(wanted, portion, in_place=True)
    behind = _followed(table, first, wanted)
    files = [
        write_file(store, part, hour, f"{first}-{secrets.token_hex(8)}", task.compression)
        for hour, part in hours_of(table, wanted.subject)
    ]
    return files, behind


def decoded(wanted: Range) -> Iterator[tuple[Any, int]]:
    """The messages of a range as tables, and how many bytes were read for each."""
    for batches in _batches(wanted):
        for portion in portioned(batches):
            yield _table(wanted, portion, in_place=False), sum(map(len, portion))


def _batches(wanted: Range) -> Iterator[list[memoryview]]:
    for data in read(wanted):
        batches, used = split(data)
        if used != len(data):
            raise StoreFailed(
                f"a broker gave {len(data) - used} bytes of {wanted.partition} that are no batch"
            )
        yield batches


def _table(wanted: Range, batches: Sequence[memoryview], *, in_place: bool) -> Any:
    place = Place(wanted.subject, wanted.broker_group, wanted.partition)
    span = wanted.first_sequence, wanted.next_sequence
    try:
        return pa.Table.from_batches([decode(batches, place, COLUMNS, *span, in_place=in_place)])
    except CorruptBatch as error:
        where = f"{wanted.partition} on {wanted.broker_group}, between {span[0]} and {span[1]}"
        raise CorruptBatch(f"{where}: {error}") from error


def _followed(table: Any, at: int, wanted: Range) -> int:
    """The sequence behind a table that is to go on from ``at``. A range is archived as a whole: a message that is
    missing in the middle would never be asked for again.
    """
    sequences = numpy_of(table["sequence"])
    gaps = np.flatnonzero(sequences != at + np.arange(len(sequences)))
    if len(gaps):
        raise _missing(wanted, at + int(gaps[0]))
    return at + len(sequences)


def _missing(wanted: Range, at: int) -> StoreFailed:
    return StoreFailed(
        f"brokers gave no {at} of {wanted.partition}, of {wanted.first_sequence} to {wanted.next_sequence}"
    )


def watermark_rows(marks: dict[Partition, int]) -> Sequence[dict[str, Any]]:
    """Watermarks as JSON has them."""
    return [{**place._asdict(), "next": mark} for place, mark in sorted(marks.items())]
