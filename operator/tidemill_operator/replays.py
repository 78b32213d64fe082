"""Replay: messages of an archive sent again, once. README.md has the states.

What ran is never run again because an object is missing. So an attempt has three moments, each in the status before
the next: its name is written down; then it is made, unless there is one of that name; then it is seen, and counted. An
attempt that was counted and is gone is one of which nobody knows how it ended, and the Replay says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tidemill_operator import declared, marks
from tidemill_operator.conditions import COMPLETE, FAILED, READY, STALLED, SUSPENDED, standing
from tidemill_operator.desired.jobs import archive_spec, place_of, replay_job, replay_spec, run_name
from tidemill_operator.desired.kubeflow import backend_of
from tidemill_operator.desired.wanted import SpecError
from tidemill_operator.kinds import ARCHIVE
from tidemill_operator.marks import moment, timestamp
from tidemill_operator.names import deletion_of
from tidemill_operator.reports import ReplayReport, replay_report
from tidemill_operator.spark import Run, RunState, SparkBackend
from tidemill_operator.steps import Apply, Condition, Create, Event, Manifest, Plan, Seen, Step
from tidemill_wire.declarations import ManifestError
from tidemill_wire.pipeline_specs import ArchiveSpec, ReplaySpec

LOOK_MS = 30_000
BACKOFF_MS, BACKOFF_MS_MAX = 10_000, 300_000
"""Before the second attempt, doubling."""
ERROR_CHARS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass goes by."""

    seen: Seen
    spec: ReplaySpec
    archive: ArchiveSpec | None
    """Of the Archive that is read; None: the spec names a folder."""
    backend: SparkBackend
    now_ms: int
    applications: Mapping[str, Manifest]
    """Of this very Replay, by name."""
    report: ReplayReport

    @property
    def counted(self) -> int:
        """Attempts that were seen."""
        return int(marks.status(self.seen.resource).get("attempts", 0))

    @property
    def noted(self) -> str:
        """The name of the attempt that was last written down."""
        return str(marks.status(self.seen.resource).get("sparkApplication", ""))

    @property
    def run(self) -> Run | None:
        found = self.applications.get(self.noted)
        return None if found is None else self.backend.run_of(found)

    def name_of(self, attempt: int) -> str:
        return f"{run_name(self.seen.resource)}-{attempt}"

    def status(self, **more: object) -> dict[str, Any]:
        return {**declared.kept(self.seen), **self.report.status(), **more}


def plan(seen: Seen, now_ms: int) -> Plan:
    """The next steps for a Replay."""
    resource, backend = seen.resource, backend_of(seen.served)
    if marks.goes(resource):
        return Plan(steps=declared.released(seen))  # what runs it goes with it
    why = marks.stopped(resource)
    if why:
        return _of_replay(declared.paused(seen) if why == "Paused" else declared.unmanaged(seen))
    try:
        spec = replay_spec(resource)
    except ManifestError as error:
        return _of_replay(declared.unreadable(seen, str(error)))
    report = replay_report(seen.meta.get(path_of(resource)) if seen.meta is not None else None)
    applications = _applications(seen, backend) if backend is not None else {}
    if is_over(resource):
        return _over(seen, spec, backend, applications, report, now_ms)
    held_up = declared.held_up(seen)
    if held_up is not None:
        return _of_replay(held_up)
    if backend is None:
        return _waits(
            seen,
            "SparkOperatorMissing",
            "nobody here runs Spark: install kubeflow's spark-operator, which has SparkApplications",
        )
    archive, missing = _archive(seen, spec)
    if missing:
        return _waits(seen, "ReferenceNotFound", missing)
    return _under_way(Pass(seen, spec, archive, backend, now_ms, applications, report))


def asks(resource: Manifest, _objects: tuple[Manifest, ...] = ()) -> tuple[str, ...]:
    """The paths at meta that a plan wants to see."""
    return (path_of(resource),)


def path_of(resource: Manifest) -> str:
    return f"/v1/replays/{run_name(resource)}"


def is_over(resource: Manifest) -> bool:
    """Whether it has been done, or given up: then nothing of it is ever done again."""
    return any(marks.condition_of(resource, kind).get("status") == "True" for kind in (COMPLETE, FAILED))


def _applications(seen: Seen, backend: SparkBackend) -> dict[str, Manifest]:
    prefix = f"{run_name(seen.resource)}-"
    found = {str(one["metadata"]["name"]): one for one in seen.of(backend.kinds[0].kind)}
    return {name: one for name, one in found.items() if name.startswith(prefix)}


def _archive(seen: Seen, spec: ReplaySpec) -> tuple[ArchiveSpec | None, str]:
    """The spec of the Archive that it names; or what is wrong, in a sentence."""
    reference = spec.source.archive_ref
    if reference is None:
        return None, ""
    found = next((one for one in seen.of(ARCHIVE.kind) if one["metadata"]["name"] == reference.name), None)
    if found is None:
        return None, f"there is no Archive {reference.name} of this cluster: apply it, or write source.uri"
    try:
        return archive_spec(found), ""
    except ManifestError as error:
        return None, f"the Archive {reference.name} cannot be read: {error}"


# -- a Replay that is not over ---------------------------------------------------------------------------------------


def _under_way(this: Pass) -> Plan:
    if this.run is None and this.name_of(this.counted) == this.noted and this.counted:
        sentence = f"{this.noted} is gone before it said how it ended; make a new Replay for what is missing"
        return _failed(this, "Vanished", sentence)
    run = this.run
    if run is None:
        return _begin(this, this.counted + 1)
    if this.name_of(this.counted) != this.noted:
        return _counted(this, run)
    late = _is_late(this)
    match run.state:
        case RunState.SUCCEEDED:
            return _succeeded(this, run)
        case RunState.FAILED:
            return _again(this, run)
        case _ if late:
            sentence = f"{run.name} was not done after {this.spec.active_deadline_seconds} s, and is ended"
            return _failed(this, "DeadlineExceeded", sentence)
        case _:
            return _goes_on(this, run)


def _begin(this: Pass, attempt: int) -> Plan:
    """The name first, then the thing."""
    if this.spec.state == "Suspended":
        said = (_complete("Unknown", "Suspended", "its spec says that it is to wait"), _suspended())
        return Plan(conditions=said, status=this.status())
    name = this.name_of(attempt)
    try:
        job = replay_job(this.seen.resource, this.spec, this.archive, attempt, place_of(this.seen))
        wanted = this.backend.application(job)
    except SpecError as error:
        return _of_replay(Plan(conditions=(_false("InvalidSpec", str(error)),), status=this.status()))
    pending = _complete("Unknown", "Pending", f"attempt {attempt} is about to begin")
    if this.noted != name:
        return Plan(conditions=(pending,), status=this.status(sparkApplication=name), again_ms=0)
    event = Event("AttemptStarted", f"{name} runs attempt {attempt}")
    return Plan((Create(wanted),), (pending,), this.status(), (event,), LOOK_MS)


def _counted(this: Pass, run: Run) -> Plan:
    """It is there: from now on it has begun."""
    said = _complete("Unknown", "Progressing", f"{run.name} has begun")
    status = this.status(attempts=this.counted + 1)
    status.setdefault("startTime", timestamp(this.now_ms))
    return Plan(conditions=(said,), status=status, again_ms=0)


def _goes_on(this: Pass, run: Run) -> Plan:
    wanted = this.spec.state == "Suspended"
    status, steps = this.status(), list[Step]()
    if run.suspended != wanted:
        application = this.applications[run.name]
        steps.append(Apply(this.backend.suspension(application, suspended=wanted)))
        if not wanted:
            status["startTime"] = timestamp(this.now_ms)  # the time that it waited is nobody's fault
    if wanted:
        said = (_complete("Unknown", "Suspended", f"{run.name} waits"), _suspended())
        return Plan(tuple(steps), said, status, (), LOOK_MS)
    if this.report.lost and run.state is not RunState.WAITING:
        sentence = f"{this.report.lost}; it is ended after {this.spec.active_deadline_seconds} s"
        return Plan(tuple(steps), (_complete("Unknown", "RunLost", sentence),), status, (), LOOK_MS)
    what = {
        RunState.WAITING: f"the driver of {run.name} is on its way",
        RunState.UNKNOWN: f"Spark's operator has lost sight of {run.name}",
    }.get(run.state, f"{run.name} runs")
    return Plan(tuple(steps), (_complete("Unknown", "Progressing", what),), status, (), LOOK_MS)


def _is_late(this: Pass) -> bool:
    begun_ms = moment(marks.status(this.seen.resource).get("startTime"))
    deadline_ms = this.spec.active_deadline_seconds * 1000
    suspended = this.spec.state == "Suspended" or (this.run is not None and this.run.suspended)
    return not suspended and begun_ms is not None and this.now_ms - begun_ms > deadline_ms


def _again(this: Pass, run: Run) -> Plan:
    """An attempt failed: another one after a pause, unless there were enough."""
    why = this.report.last_error or run.said or this.report.lost or "look at the log of its driver"
    sentence = f"{run.name} failed: {why}"[:ERROR_CHARS_MAX]
    if this.counted > this.spec.backoff_limit:
        return _failed(this, "BackoffLimitExceeded", sentence)
    if _is_late(this):
        return _failed(this, "DeadlineExceeded", sentence)
    pause_ms = min(BACKOFF_MS << min(this.counted - 1, 10), BACKOFF_MS_MAX)
    left_ms = (run.ended_ms or run.begun_ms) + pause_ms - this.now_ms
    event = Event("RunFailed", sentence, warning=True)
    if left_ms > 0:
        said = _complete("Unknown", "Progressing", f"{sentence}; it is tried again")
        return Plan((), (said,), this.status(lastError=why[:ERROR_CHARS_MAX]), (event,), left_ms)
    return replace(_begin(this, this.counted + 1), events=(event,))


def _succeeded(this: Pass, run: Run) -> Plan:
    status = this.status(completionTime=timestamp(run.ended_ms or this.now_ms))
    if not this.report.last_error:
        status.pop("lastError", None)
    sent = this.report.counts.get("sent")
    how = f"{sent} messages sent" if sent is not None else "its counts are not known yet"
    event = Event("ReplayCompleted", f"{run.name} is done: {how}")
    said = (_complete("True", "RunSucceeded", f"done by {run.name}"),)
    return Plan((), said, status, (event,), 0)


def _failed(this: Pass, reason: str, sentence: str) -> Plan:
    said = (_complete("False", reason, sentence), Condition(FAILED, "True", reason, sentence))
    status = this.status(completionTime=timestamp(this.now_ms), lastError=sentence[:ERROR_CHARS_MAX])
    return Plan((), said, status, (Event("ReplayFailed", sentence, warning=True),), 0)


# -- a Replay that is over -------------------------------------------------------------------------------------------


def _over(
    seen: Seen,
    spec: ReplaySpec,
    backend: SparkBackend | None,
    applications: Mapping[str, Manifest],
    report: ReplayReport,
    now_ms: int,
) -> Plan:
    """What ran it is kept for a while, then taken away; what it said stays in the status."""
    status = {**declared.kept(seen), **report.status()}
    if "lastError" not in declared.kept(seen):
        status.pop("lastError", None)
    ended_ms = moment(status.get("completionTime")) or now_ms
    left_ms = ended_ms + spec.ttl_seconds_after_finished * 1000 - now_ms
    stays = tuple(one for one in standing(seen.resource) if one.type in {COMPLETE, FAILED})
    steps: list[Step] = []
    for one in applications.values() if backend is not None else ():
        assert backend is not None
        # One that was given up while it ran is ended.
        if not marks.goes(one) and (left_ms <= 0 or not backend.run_of(one).state.has_ended):
            steps.append(deletion_of(backend.kinds[0], one))
    again_ms = left_ms if applications and left_ms > 0 else None
    return Plan(tuple(steps), stays, status, (), again_ms)


# -- what is said ----------------------------------------------------------------------------------------------------


def _complete(status: Literal["True", "False", "Unknown"], reason: str, message: str) -> Condition:
    return Condition(COMPLETE, status, reason, message)


def _suspended() -> Condition:
    return Condition(SUSPENDED, "True", "Suspended", "state is Suspended; it goes on when that is Active")


def _waits(seen: Seen, reason: str, sentence: str) -> Plan:
    said = (_complete("False", reason, sentence),)
    return Plan(conditions=said, status=declared.kept(seen), again_ms=LOOK_MS)


def _false(reason: str, sentence: str) -> Condition:
    return Condition(READY, "False", reason, sentence)


def _of_replay(plan: Plan) -> Plan:
    """A Replay is done, or it is not: there is nothing that it could be ready for."""
    told: list[Condition] = []
    for one in plan.conditions:
        if one.type == READY and one.status != "True":
            told.append(replace(one, type=COMPLETE))
        elif one.type not in {READY, STALLED}:
            told.append(one)
    return replace(plan, conditions=tuple(told))
