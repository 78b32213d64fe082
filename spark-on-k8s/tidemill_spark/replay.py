"""Archived messages sent again: to a subject, or to one group of it. Through the client, by batches.

A replay has a name, and a plan that is written once beside the lake: which partitions it reads, up to which sequence,
and what was asked for. Each partition is a task of its own, in the order of sequences.

    state of a partition     seen by                             then
    not begun                no progress                         from its first message
    begun                    progress: a sequence, and counts    from there, with the same chunks
    done                     progress at the plan's end          nothing

Progress is written when all before it was answered. What was on its way when a run died is sent again with the same
bytes, and brokers recognise it: fewer chunks are on their way, or answered and not noted, than they remember. Messages
with order keys have one chunk a target partition on its way, so no key is overtaken.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from tidemill.prepared import Prepared
from tidemill_spark.arrow import numbers_of, pa, pc
from tidemill_spark.commits import File, Partition
from tidemill_spark.encode import CHUNK_BYTES, CHUNK_ROWS, NEEDED, chunks, encode, places_of, sizes_of
from tidemill_spark.errors import WrongRequest
from tidemill_spark.finding import files_for, in_file
from tidemill_spark.lake import Lake
from tidemill_spark.layout import OWN
from tidemill_spark.queries import Query
from tidemill_spark.tables import in_order
from tidemill_spark.workers import Workers
from tidemill_wire.routes import Partition as Place

WINDOW_CHUNKS = 64
"""Between two notes of a task, about."""
TASKS_MAX = 12
"""At once. Of single batches a broker remembers 1,024 of each partition: fewer are answered and not noted."""
IN_FLIGHT = 16
"""Chunks of a task, to each partition of the target."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is sent again, and where to."""

    server: str
    uri: str
    query: Query
    target: str
    group: str | None = None
    run: str = ""
    rate: int = 0
    """Messages a second, of all tasks; 0: as fast as they go."""
    marked: bool = True
    by_key: bool = True
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """A partition of the lake, up to a sequence that does not change."""

    wanted: Wanted
    partition: Partition
    end: int
    index: int
    share: float
    """Of the rate."""


@dataclass(slots=True)
class Counts:
    """Of a task, or of all of them."""

    rows: int = 0
    bytes: int = 0
    """Of bodies."""
    next: int = 0
    """From where to go on; of a task alone."""
    subjects: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, other: Counts) -> None:
        self.rows += other.rows
        self.bytes += other.bytes
        for subject, rows in other.subjects.items():
            self.subjects[subject] = self.subjects.get(subject, 0) + rows


Tell = Callable[[Counts], None]


def run(wanted: Wanted, workers: Workers, tell: Tell) -> Counts:
    """Send what is left of it. ``tell`` is called after each partition."""
    lake = Lake.at(wanted.uri)
    tasks = plan(lake, wanted, workers.width)
    total = Counts()
    for at in range(0, len(tasks), TASKS_MAX):
        for _, counts in workers.each(counted if wanted.dry_run else resent, tasks[at : at + TASKS_MAX]):
            total.add(counts)
            tell(total)
    return total


def plan(lake: Lake, wanted: Wanted, width: int) -> list[Task]:
    """One task a partition; those of an earlier run of that name again."""
    marks = sorted(lake.archived(wanted.query.subjects).items())
    if not wanted.dry_run:
        marks = _written_once(lake, wanted, marks)
    busy = max(1, min(width, len(marks), TASKS_MAX))
    return [Task(wanted, place, end, index, 1 / busy) for index, (place, end) in enumerate(marks)]


def _written_once(
    lake: Lake, wanted: Wanted, marks: list[tuple[Partition, int]]
) -> list[tuple[Partition, int]]:
    if not wanted.run or "/" in wanted.run or wanted.run.startswith("."):
        raise WrongRequest(
            f"a replay needs a name of letters and digits, {wanted.run!r} is none: give it one with --run"
        )
    asked = asdict(replace(wanted, server="", rate=0, uri=""))
    said = {"asked": asked, "partitions": [[*place, end] for place, end in marks]}
    name = f"{OWN}/replays/{wanted.run}/plan.json"
    data = json.dumps(said, sort_keys=True).encode()
    if not lake.store.create(name, data):
        found: dict[str, Any] = json.loads(lake.store.read(name))
        if found["asked"] != json.loads(json.dumps(asked)):
            raise WrongRequest(
                f"the replay {wanted.run} was begun with something else to do: take the same options, or another --run"
            )
        return [(Partition(*row[:3]), row[3]) for row in found["partitions"]]
    return marks


# -- a task ----------------------------------------------------------------------------------------------------------


def blocks(lake: Lake, task: Task, start: int) -> Iterator[Any]:
    """The messages that are meant, from a sequence on, in order: tables of files that overlap in nothing."""
    query = replace(task.wanted.query, subjects=(task.partition.subject,))
    for files in _clusters(files_for(lake, query), task.partition):
        parts = [
            _within(in_file(lake, query, NEEDED, one), task, start)
            for one in files
            if _span(one, task.partition)[1] > start
        ]
        if parts and (table := pa.concat_tables(parts)).num_rows:
            yield in_order(table)


def _span(file: File, place: Partition) -> tuple[int, int]:
    for span in file.spans:
        if (span.broker_group, span.partition) == place[1:]:
            return span.first, span.next
    return 0, 0


def _clusters(files: Sequence[File], place: Partition) -> Iterator[list[File]]:
    """Files of a partition by sequence; those that overlap, because a clock went back, together."""
    own = sorted((_span(one, place), one.name, one) for one in files if _span(one, place)[1])
    cluster: list[File] = []
    reach = 0
    for (first, end), _, one in own:
        if cluster and first >= reach:
            yield cluster
            cluster = []
        cluster.append(one)
        reach = max(reach, end)
    if cluster:
        yield cluster


def _within(table: Any, task: Task, start: int) -> Any:
    place = task.partition
    mask = pc.and_(
        pc.equal(table["broker_group"], place.broker_group), pc.equal(table["partition"], place.name)
    )
    sequences = table["sequence"]
    mask = pc.and_(mask, pc.and_(pc.greater_equal(sequences, start), pc.less(sequences, task.end)))
    return table.filter(mask)


def counted(task: Task) -> Counts:
    """What would be sent."""
    total = Counts()
    for table in blocks(Lake.at(task.wanted.uri), task, 0):
        _count(total, task, table)
    return total


def _count(total: Counts, task: Task, table: Any) -> None:
    size = int(pc.sum(pc.binary_length(table["body"])).as_py() or 0)
    total.add(Counts(table.num_rows, size, subjects={task.partition.subject: table.num_rows}))


def resent(task: Task) -> Counts:
    """Send it, from where the last run has noted."""
    return asyncio.run(_resent(task))


async def _resent(task: Task) -> Counts:
    lake = Lake.at(task.wanted.uri)
    name = f"{OWN}/replays/{task.wanted.run}/{task.index}.json"
    try:
        total = Counts(**json.loads(lake.store.read(name)))
    except FileNotFoundError:
        total = Counts()
    if total.next >= task.end:
        return total
    async with Prepared(task.wanted.server) as target:
        sending = Sending(task, target, await target.places(task.wanted.target))
        for table in blocks(lake, task, total.next):
            for window in windows(table):
                await sending.send(window)
                _count(total, task, window)
                total.next = int(window["sequence"][window.num_rows - 1].as_py()) + 1
                lake.store.write(name, json.dumps(asdict(total)).encode())
    total.next = task.end
    lake.store.write(name, json.dumps(asdict(total)).encode())
    return total


def windows(table: Any) -> Iterator[Any]:
    """Rows that make about so many chunks, from the first on."""
    sizes = np.cumsum(sizes_of(table))
    begin = 0
    while begin < table.num_rows:
        before = int(sizes[begin - 1]) if begin else 0
        end = int(np.searchsorted(sizes, before + WINDOW_CHUNKS * CHUNK_BYTES // 2, side="right"))
        end = min(max(begin + 1, end), begin + WINDOW_CHUNKS * CHUNK_ROWS // 2)
        yield table.slice(begin, end - begin)
        begin = end


class Sending:
    """To the partitions of the target, a window at a time."""

    def __init__(self, task: Task, target: Prepared, places: Sequence[Place]) -> None:
        self._task = task
        self._target = target
        self._places = places
        self._began = asyncio.get_running_loop().time()
        self._sent = 0

    async def send(self, window: Any) -> None:
        """All of it is answered when this returns."""
        ordered = self._task.wanted.by_key and window["order_key"].null_count < window.num_rows
        wanted = places_of(window, self._places)
        indices: list[int] = np.unique(wanted).tolist()
        async with asyncio.TaskGroup() as lanes:
            for index in indices:
                rows = window.filter(numbers_of(wanted == index))
                lanes.create_task(
                    self._send_to(self._places[index], chunks(rows), 1 if ordered else IN_FLIGHT)
                )

    async def _send_to(self, place: Place, rest: Iterator[Any], at_once: int) -> None:
        """Chunks of one partition; the next one is made while the last ones are on their way."""

        async def one_after_the_other() -> None:
            for chunk in rest:
                await self._pace(chunk.num_rows)
                await self._give(place, chunk)

        async with asyncio.TaskGroup() as senders:
            for _ in range(at_once):
                senders.create_task(one_after_the_other())

    async def _give(self, place: Place, chunk: Any) -> None:
        wanted = self._task.wanted
        name = place.name if wanted.group is None else f"%again%{wanted.target}%{wanted.group}"
        await self._target.send(place, encode(chunk, wanted.run, name, marked=wanted.marked))

    async def _pace(self, rows: int) -> None:
        """No faster than was said."""
        loop = asyncio.get_running_loop()
        self._sent += rows
        if rate := self._task.wanted.rate * self._task.share:
            due = self._began + (self._sent - rows) / rate
            await asyncio.sleep(max(0.0, due - loop.time()))
