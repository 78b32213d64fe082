"""Archiving the action logs: what was done with messages, as rows beside them, each once.

    plan      of each broker group, subjects that are archived up to the same position are read together
    tasks     each reads on from there, for some ten thousand records, and writes files
    commit    files, positions and what is held there, at once (``commits.py``)

and again, until what was there at the beginning is archived. What lies between the position of a subject and the
beginning of the log is gone: a row of its own says so, and what was held before is not known any more.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tidemill_spark.action_logs import ActionLog, action_logs, told
from tidemill_spark.action_tables import FORMAT, LOG, hours_of, write_actions
from tidemill_spark.actions import Account, Row, missing
from tidemill_spark.archive import Wanted
from tidemill_spark.commits import Commit, Partition, Piece, State
from tidemill_spark.errors import StoreFailed, WrongRequest
from tidemill_spark.lake import COMMIT_WITHIN_MS, Lake
from tidemill_spark.layout import actions_uri
from tidemill_spark.queries import means
from tidemill_spark.ranges import RangeGone, standings
from tidemill_spark.stores import Store, open_store
from tidemill_spark.workers import Workers

TASK_RECORDS = 50_000
"""Of a task, about: a few seconds, and some ten megabytes of rows."""
TASK_BYTES = 64 << 20
"""Of the log, when hardly any of its records are about what is archived."""
TRIES = 5
"""In vain, one after the other: each finds that the log begins later than a moment ago."""


@dataclass(frozen=True, slots=True)
class Task:
    """Subjects whose actions are archived up to one position, and what is to be read for them now."""

    log: ActionLog
    asked: tuple[str, ...]
    after: int | None
    carried: Mapping[str, str]
    """Of each subject what its account holds; empty: it begins."""
    until: int
    uri: str
    compression: str

    @property
    def first(self) -> int:
        return max(self.log.first, self.after or 0)


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a task: a piece for each subject."""

    pieces: tuple[Piece, ...]
    unnamed: int
    read_bytes: int


@dataclass(slots=True)
class ActionTotals:
    """What a run has done with action logs."""

    rows: int = 0
    """Committed, as all that follows."""
    files: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    commits: int = 0
    unnamed: int = 0
    """Records of groups whose names are gone from the log: nobody can say whose they are."""
    missing_bytes: int = 0
    """Of logs, dropped at the brokers before they were archived."""
    late_rows: int = 0
    """Read, and archived by another run meanwhile."""
    positions: dict[Partition, int] = field(default_factory=dict[Partition, int])


def run(wanted: Wanted, workers: Workers, now_ms: Callable[[], int]) -> ActionTotals:
    """Archive what there is at the moment."""
    lake = Lake.at(actions_uri(wanted.uri))
    lake.claim(FORMAT)
    identity = f"{wanted.name}-{secrets.token_hex(6)}"
    totals, vain = ActionTotals(), 0
    logs = action_logs(wanted.server, wanted.prefers)
    ends = {one.broker_group: one.next for one in logs}
    subjects = subjects_of(wanted, lake.state)
    while tasks := plan(wanted, lake.state, logs, ends, subjects):
        began_ms = now_ms()
        results = [one for _, one in workers.each(write_task, tasks)]
        if now_ms() - began_ms > COMMIT_WITHIN_MS:
            raise StoreFailed(
                "the tasks took so long that their files may be swept: nothing of them is committed"
            )
        written = [one for one in results if one is not None]
        vain = 0 if written else vain + 1
        if vain == TRIES:
            raise StoreFailed("brokers drop their action logs faster than they can be read")
        if len(written) < len(results):
            logs = action_logs(wanted.server, wanted.prefers)
        if written:
            _commit(lake, identity, now_ms(), written, totals)
    totals.positions = lake.archived()
    return totals


def _commit(lake: Lake, identity: str, at_ms: int, written: Sequence[Written], totals: ActionTotals) -> None:
    pieces = tuple(piece for one in written for piece in one.pieces)
    said, late = lake.commit(Commit(secrets.token_hex(16), identity, at_ms, pieces))
    for piece in said.pieces if said is not None else ():
        totals.rows += sum(one.rows for one in piece.files)
        totals.files += len(piece.files)
        totals.written_bytes += sum(one.size for one in piece.files)
        totals.missing_bytes += piece.first - (piece.after or 0)
    totals.commits += said is not None
    totals.read_bytes += sum(one.read_bytes for one in written)
    totals.unnamed += sum(one.unnamed for one in written) if said is not None else 0
    totals.late_rows += sum(file.rows for piece in late for file in piece.files)
    lake.store.delete([file.name for piece in late for file in piece.files])


# -- the plan --------------------------------------------------------------------------------------------------------


def subjects_of(wanted: Wanted, state: State) -> dict[str, set[str]]:
    """Of each broker group the subjects whose actions are archived: those that are there, and those that were and are
    removed by now, of which the log still tells.
    """
    found: dict[str, set[str]] = {}
    for one in standings(wanted.server, wanted.subjects):
        found.setdefault(one.broker_group, set()).add(one.subject)
    for place in state.watermarks:
        if any(means(name, place.subject) for name in wanted.subjects):
            found.setdefault(place.broker_group, set()).add(place.subject)
    return found


def plan(
    wanted: Wanted,
    state: State,
    logs: Sequence[ActionLog],
    ends: Mapping[str, int],
    subjects: Mapping[str, set[str]],
) -> list[Task]:
    """What is to be read next, a task for all subjects of a broker group that are archived up to the same position."""
    found: list[Task] = []
    for log in logs:
        groups: dict[int | None, dict[str, str]] = {}
        for subject in sorted(subjects.get(log.broker_group, ())):
            place = Partition(subject, log.broker_group, LOG)
            after = state.watermarks.get(place)
            if after is not None and after > log.next and log.complete:
                raise WrongRequest(
                    f"the action log of {log.broker_group} ends at {log.next}, and is archived up to {after}: it was "
                    "made anew, so archive it to another folder"
                )
            groups.setdefault(after, {})[subject] = state.carried.get(place, "")
        tasks = (
            Task(log, wanted.subjects, after, carried, ends[log.broker_group], wanted.uri, wanted.compression)
            for after, carried in groups.items()
        )
        found += (task for task in tasks if task.first < task.until)
    return found


# -- a task ----------------------------------------------------------------------------------------------------------


def write_task(task: Task) -> Written | None:
    """Read, and write the files, which are in no commit yet; ``None`` when the log begins later by now."""
    store = open_store(actions_uri(task.uri))
    rows, accounts = begun(task)
    at, records, unnamed, size = task.first, 0, 0, 0
    try:
        for answer in told(task.log, task.first, task.until, task.asked):
            own: dict[str, list[Mapping[str, object]]] = {}
            for one in answer.records:
                own.setdefault(str(one["subject"]), []).append(one)
            for subject, account in accounts.items():
                rows[subject] += account.rows(own.get(subject, ()))
            at, records = answer.next, records + len(answer.records)
            unnamed, size = unnamed + answer.unnamed, size + answer.bytes
            if records >= TASK_RECORDS or at - task.first >= TASK_BYTES:
                break
    except RangeGone:
        return None
    pieces = tuple(
        _piece(store, task, subject, rows[subject], at, account.carried)
        for subject, account in accounts.items()
    )
    return Written(pieces, unnamed, size)


def begun(task: Task) -> tuple[dict[str, list[Row]], dict[str, Account]]:
    """The accounts that a task goes on with, and the rows of what is missing before it begins."""
    log, rows, accounts = task.log, dict[str, list[Row]](), dict[str, Account]()
    for subject, carried in task.carried.items():
        gap = task.first > (task.after or 0)
        rows[subject] = [missing(subject, log.since_ms, task.after or 0, task.first)] if gap else []
        accounts[subject] = Account.after(carried) if carried and not gap else Account(whole=task.first == 0)
    return rows, accounts


def _piece(store: Store, task: Task, subject: str, rows: Sequence[Row], end: int, carried: str) -> Piece:
    group = task.log.broker_group
    files = tuple(
        write_actions(store, table, hour, f"{group}-{task.first}-{secrets.token_hex(8)}", task.compression)
        for hour, table in hours_of(rows, subject, group)
    )
    return Piece(Partition(subject, group, LOG), task.after, task.first, end, files, carried)
