"""Whether a lake holds the actions that brokers have: each row, once, with the same columns.

The log is told again from a position at which a piece ended, with what was held there, and folded again; so each row
must be as it was. What of the log is gone, or has expired in the lake, is not compared; which positions were is said.
``letter`` is not compared: retention takes from brokers what it is told from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from tidemill_spark.action_archive import Task, begun
from tidemill_spark.action_logs import ActionLog, action_logs, told
from tidemill_spark.action_tables import LOG, STORED, read_actions, table_of
from tidemill_spark.commits import File, Partition, Piece
from tidemill_spark.errors import LakeDamaged
from tidemill_spark.lake import Lake
from tidemill_spark.layout import actions_uri
from tidemill_spark.reconciling import EXAMPLES
from tidemill_spark.stores import open_store
from tidemill_spark.workers import Workers

COMPARED = tuple(name for name in STORED if name != "letter")


@dataclass(slots=True)
class Compared:
    """Of a subject on a broker group, between two positions: rows that are not in both, once, by their positions."""

    place: Partition
    first: int
    next: int
    logs: int = 0
    lake: int = 0
    differing: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    damaged: Sequence[str] = ()
    """Files of the lake that are not there, or cannot be read: what they had is among the lost."""

    @property
    def equal(self) -> bool:
        return not (any(self.differing.values()) or self.damaged)

    def row(self) -> dict[str, Any]:
        """As JSON has it, with a few examples."""
        differing: dict[str, Any] = {
            name: {"rows": len(found), "positions": sorted(found)[:EXAMPLES]}
            for name, found in self.differing.items()
            if found
        }
        differing |= {"damaged": {"files": list(self.damaged)}} if self.damaged else {}
        return {
            "subject": self.place.subject, "broker_group": self.place.broker_group, "partition": LOG,
            "from": self.first, "until": self.next, "logs": self.logs, "lake": self.lake, "equal": self.equal,
            **differing,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Compare:
    """Of one place, from a position on at which a piece began."""

    task: Task
    files: tuple[File, ...]


def reconcile_actions(
    server: str, uri: str, workers: Workers, subjects: Sequence[str] = ()
) -> list[Compared]:
    """One result for each subject and broker group of which actions are archived, and the brokers have some still."""
    lake = Lake.at(actions_uri(uri))
    places = lake.archived(subjects)
    if not places:
        return []
    logs = {one.broker_group: one for one in action_logs(server)}
    pieces = pieces_of(lake)
    work = [
        Compare(task, tuple(_files_of(lake, place)))
        for place, end in sorted(places.items())
        if place.broker_group in logs
        and (task := _task(lake, place, logs[place.broker_group], pieces.get(place, []), end)) is not None
    ]
    found = [one for _, one in workers.each(compared, work)]
    return sorted(found, key=lambda one: one.place)


def pieces_of(lake: Lake) -> dict[Partition, list[Piece]]:
    """Of each place its pieces, in their order."""
    found: dict[Partition, list[Piece]] = {}
    for commit in lake.commits():
        for piece in commit.pieces:
            found.setdefault(piece.partition, []).append(piece)
    return found


def _task(lake: Lake, place: Partition, log: ActionLog, pieces: Sequence[Piece], end: int) -> Task | None:
    """From the first piece on that both have as a whole."""
    least = max(log.first, _first_kept(lake, place))
    until = min(end, log.next)
    carried, after = "", None
    for piece in pieces:
        if piece.first >= least and piece.first == (piece.after or 0):
            held = {place.subject: carried}
            task = Task(log, (place.subject,), after, held, until, lake.store.uri, "")
            return task if task.first < until else None
        carried, after = piece.carried, piece.next
    return None


def _first_kept(lake: Lake, place: Partition) -> int:
    """The first position of which the lake should have all: what expired was the oldest."""
    if not lake.state.expired.get(place):
        return 0
    firsts = [span.first for file in _files_of(lake, place) for span in file.spans]
    return min(firsts, default=lake.state.watermarks[place])


def _files_of(lake: Lake, place: Partition) -> Iterator[File]:
    own = (place.broker_group, LOG)
    for file in lake.files((place.subject,)):
        if any((span.broker_group, span.partition) == own for span in file.spans):
            yield file


def compared(work: Compare) -> Compared:
    """The log and the lake, side by side."""
    task = work.task
    (subject,) = task.carried
    place = Partition(subject, task.log.broker_group, LOG)
    logs, behind = _told(task, subject)
    lake: dict[tuple[int, int], bytes] = {}
    doubled: list[int] = []
    damaged: list[str] = []
    store = open_store(task.uri)
    for file in work.files:
        try:
            rows = read_actions(store, file)
        except LakeDamaged:
            damaged.append(file.name)
            continue
        for key, sum_ in _sums(rows):
            if key[1] >= 0 and task.first <= key[0] < behind:
                if key in lake:
                    doubled.append(key[0])
                lake[key] = sum_
    differing = {
        "lost": [key[0] for key in logs.keys() - lake.keys()],
        "strange": [key[0] for key in lake.keys() - logs.keys()],
        "doubled": doubled,
        "different": [key[0] for key in logs.keys() & lake.keys() if logs[key] != lake[key]],
    }
    return Compared(place, task.first, behind, len(logs), len(lake) + len(doubled), differing, damaged)


def _told(task: Task, subject: str) -> tuple[dict[tuple[int, int], bytes], int]:
    """The rows of the log, and where they end."""
    accounts = begun(task)[1]
    found: dict[tuple[int, int], bytes] = {}
    at = task.first
    for answer in told(task.log, task.first, task.until, task.asked):
        rows = list(accounts[subject].rows(answer.records))
        if rows:
            found |= _sums(table_of(rows, task.log.broker_group))
        at = answer.next
    return found, at


def _sums(table: Any) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Of each row where it is from, and what it says."""
    rows = table.select(list(COMPARED)).to_pylist()
    for row in rows:
        said = repr([row[name] for name in COMPARED]).encode()
        yield (row["position"], row["row"]), blake2b(said, digest_size=16).digest()
