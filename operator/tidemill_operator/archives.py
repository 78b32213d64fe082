"""Archive: a schedule that Spark's operator runs jobs by, and what meta knows of them. README.md has the states.

The schedule is all that is made; runs are its own. The finalizer is held before it, because an Archive that ends has to
tell meta, or segments would be kept for it for ever; and meta is told when no run is left that could say otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill_operator import declared, marks, subjects
from tidemill_operator.conditions import LAST_RUN, READY, SCHEDULED, stalled
from tidemill_operator.desired.around import config_map
from tidemill_operator.desired.jobs import archive_job, archive_spec, place_of, timing
from tidemill_operator.desired.kubeflow import backend_of
from tidemill_operator.desired.wanted import SpecError
from tidemill_operator.kinds import SUBJECT
from tidemill_operator.marks import timestamp
from tidemill_operator.names import controller_of, deletion_of, dns_label, labels_of, owner_of
from tidemill_operator.reports import ACTIVE, ENDED, ArchiveReport, archive_report
from tidemill_operator.spark import Run, RunState, SparkBackend, Timer
from tidemill_operator.steps import Apply, Ask, Condition, Event, Hold, Manifest, Plan, Seen, Step
from tidemill_wire.declarations import ManifestError
from tidemill_wire.pipeline_specs import ArchiveSpec

UNSEEN_MS = 60_000
"""After which a schedule that nobody has said anything of is in a namespace that nobody looks at."""
LOOK_MS = 30_000
"""How often meta is asked while a run is under way, or when nothing is as it should be."""
CALM_MS = 300_000
ERROR_CHARS_MAX = 1_000
WATERMARKS_MAX = 256
"""Of a status; more are in a ConfigMap."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass goes by."""

    seen: Seen
    spec: ArchiveSpec
    backend: SparkBackend
    now_ms: int
    names: tuple[str, ...]
    """Of its subjects, at meta."""
    schedules: tuple[Manifest, ...]
    runs: tuple[Run, ...]
    """Those that are still there, the latest first."""

    timer: Timer | None
    """Of the schedule that is wanted; None: it is not there yet."""

    @property
    def active(self) -> tuple[Run, ...]:
        return tuple(one for one in self.runs if not one.state.has_ended)

    @property
    def ended(self) -> Run | None:
        """The latest that has."""
        return next((one for one in self.runs if one.state.has_ended), None)

    @property
    def last_name(self) -> str:
        """Of the last run that began, though it is there no more."""
        told = self.timer.last_run if self.timer is not None else ""
        return told or (self.runs[0].name if self.runs else "")


def plan(seen: Seen, now_ms: int) -> Plan:
    """The next steps for an Archive."""
    resource, backend = seen.resource, backend_of(seen.served)
    if marks.goes(resource):
        return _going(seen, backend)
    held_up = declared.held_up(seen)
    if held_up is not None:
        return held_up
    try:
        spec = archive_spec(resource)
    except ManifestError as error:
        return declared.unreadable(seen, str(error))
    if backend is None:
        return _missing(seen)
    names, absent = _subjects(seen, spec)
    if absent:
        return declared.waiting(seen, "ReferenceNotFound", absent)
    try:
        job = archive_job(resource, spec, names, place_of(seen))
        wanted = backend.schedule(job, timing(spec))
    except SpecError as error:
        return Plan(conditions=stalled("InvalidSpec", str(error)), status=declared.kept(seen))
    own = schedules_of(seen, backend)
    timers = (backend.timer_of(one) for one in own if one["metadata"]["name"] == job.name)
    return _settled(
        Pass(seen, spec, backend, now_ms, names, own, runs_of(seen, backend), next(timers, None)), wanted
    )


def asks(resource: Manifest, _objects: tuple[Manifest, ...] = ()) -> tuple[str, ...]:
    """The paths at meta that a plan wants to see."""
    return (path_of(resource),)


def path_of(resource: Manifest) -> str:
    return f"/v1/archives/{marks.metadata(resource)['name']}"


def schedules_of(seen: Seen, backend: SparkBackend) -> tuple[Manifest, ...]:
    """Those that this very Archive owns."""
    uid = marks.metadata(seen.resource).get("uid")
    return tuple(one for one in seen.of(backend.kinds[1].kind) if controller_of(one) == uid)


def runs_of(seen: Seen, backend: SparkBackend) -> tuple[Run, ...]:
    found = (backend.run_of(one) for one in seen.of(backend.kinds[0].kind))
    return tuple(sorted(found, key=lambda one: (one.begun_ms, one.name), reverse=True))


def _subjects(seen: Seen, spec: ArchiveSpec) -> tuple[tuple[str, ...], str]:
    """The names at meta of what is archived; or what is missing, in a sentence."""
    there = {str(marks.metadata(one)["name"]): one for one in seen.of(SUBJECT.kind) if not marks.goes(one)}
    selector = spec.source.selector
    if selector is not None:
        chosen = [
            one
            for one in there.values()
            if all(marks.label(one, key) == value for key, value in selector.match_labels)
        ]
        if not chosen:
            return (), "no Subject of this cluster has the labels of spec.source.selector: label one"
        return tuple(sorted({subjects.name_of(one) for one in chosen})), ""
    missing = [one.name for one in spec.source.subjects if one.name not in there]
    if missing:
        return (), f"there is no Subject {missing[0]} of this cluster: apply it, or name another"
    return tuple(dict.fromkeys(subjects.name_of(there[one.name]) for one in spec.source.subjects)), ""


# -- an Archive that is there ----------------------------------------------------------------------------------------


def _missing(seen: Seen) -> Plan:
    sentence = "nobody here runs Spark: install kubeflow's spark-operator, which has SparkApplications"
    return Plan(
        conditions=(
            Condition(READY, "False", "SparkOperatorMissing", sentence),
            Condition(SCHEDULED, "False", "SparkOperatorMissing", sentence),
        ),
        status=declared.kept(seen),
        again_ms=LOOK_MS,
    )


def _settled(this: Pass, wanted: Manifest) -> Plan:
    """The pass of an Archive that nothing stands against."""
    resource, backend = this.seen.resource, this.backend
    steps: list[Step] = [] if marks.is_held(resource) else [Hold(True)]
    name = wanted["metadata"]["name"]
    report = _report(this)
    steps += _told(this, report)
    steps.append(Apply(wanted))
    # What is under way goes on without its schedule, and goes when it has been kept for long enough.
    former = [one for one in this.schedules if one["metadata"]["name"] != name and not marks.goes(one)]
    steps += [deletion_of(backend.kinds[1], one, orphan=bool(this.active)) for one in former]
    stuck = _stuck(this)
    events: list[Event] = []
    if stuck is not None:
        found = next(one for one in this.seen.of(backend.kinds[0].kind) if _uid(one) == stuck.uid)
        steps.append(deletion_of(backend.kinds[0], found))
        events.append(Event("RunStuck", _stuck_sentence(this, stuck), warning=True))
    scheduled = _scheduled(this)
    last = _last_run(this, report, stuck)
    if this.ended is not None and this.ended.state is RunState.FAILED:
        events.append(Event("RunFailed", _failure(this.ended, report), warning=True))
    status, more = _status(this, name, report, stuck)
    steps += more
    ready = (
        declared.ready_as(this.seen)
        if scheduled.status != "False" or scheduled.reason == "Suspended"
        else Condition(READY, "False", scheduled.reason, scheduled.message)
    )
    calm = scheduled.status == "True" and not this.active
    return Plan(
        tuple(steps),
        (ready, scheduled, *last),
        status,
        tuple(events),
        CALM_MS if calm else LOOK_MS,
    )


def _told(this: Pass, report: ArchiveReport) -> list[Step]:
    """Meta keeps for it what is not archived, from before its first run."""
    if this.seen.meta is None or (
        report.known and not report.ended and report.subjects == frozenset(this.names)
    ):
        return []
    return [Ask("PUT", path_of(this.seen.resource), {"state": ACTIVE, "subjects": list(this.names)})]


def _uid(resource: Manifest) -> str:
    return str(marks.metadata(resource).get("uid", ""))


def _stuck(this: Pass) -> Run | None:
    """The run whose driver was not there in time: an image that cannot be pulled, or no node with room. Spark's
    operator would wait for ever, and with Forbid nothing else would run.
    """
    deadline_ms = this.spec.start_deadline_seconds * 1000
    late = (
        one
        for one in this.runs
        if one.state is RunState.WAITING and not one.suspended and this.now_ms - one.begun_ms > deadline_ms
    )
    return next(late, None)


def _stuck_sentence(this: Pass, run: Run) -> str:
    why = f": {run.said}" if run.said else ""
    return (
        f"the driver of {run.name} was not there after {this.spec.start_deadline_seconds} s{why}; "
        "look at its pod's image, and whether a node has room for it"
    )


def _scheduled(this: Pass) -> Condition:
    timer = this.timer
    if this.spec.state == "Suspended":
        return Condition(SCHEDULED, "False", "Suspended", "no run begins until state is Active again")
    if timer is None:
        return Condition(SCHEDULED, "Unknown", "Pending", "its schedule is being made")
    if timer.refusal:
        sentence = f"{timer.name} is refused: {timer.refusal}; write another schedule, or delete that object"
        return Condition(SCHEDULED, "False", "ScheduleInvalid", sentence)
    if timer.looked_at:
        return Condition(SCHEDULED, "True", "Reconciled", "as the spec says")
    if this.now_ms - timer.made_ms > UNSEEN_MS:
        sentence = "Spark's operator says nothing of its schedule: have it look after this namespace"
        return Condition(SCHEDULED, "False", "NamespaceNotWatched", sentence)
    return Condition(SCHEDULED, "Unknown", "Pending", "Spark's operator has not looked yet")


def _last_run(this: Pass, report: ArchiveReport, stuck: Run | None) -> tuple[Condition, ...]:
    """Of the last run that ended; while none has, nothing is known."""
    if stuck is not None:
        return (Condition(LAST_RUN, "False", "RunStuck", _stuck_sentence(this, stuck)),)
    ended = this.ended
    if report.lost and not this.active and (ended is None or (ended.ended_ms or 0) < report.lost_ms):
        sentence = f"{report.lost}, and nothing runs it: the next run goes on from what is archived"
        return (Condition(LAST_RUN, "False", "RunLost", sentence),)
    standing = [one for one in declared.standing_of(this.seen, LAST_RUN) if one.status != "Unknown"]
    was_stuck = any(one.reason == "RunStuck" for one in standing)
    if ended is None or (was_stuck and ended.name != this.last_name):
        return tuple(standing) or (Condition(LAST_RUN, "Unknown", "Pending", "no run has ended yet"),)
    if ended.state is RunState.FAILED:
        return (Condition(LAST_RUN, "False", "RunFailed", _failure(ended, report)),)
    return (Condition(LAST_RUN, "True", "RunSucceeded", f"{ended.name} went well"),)


def _failure(run: Run, report: ArchiveReport) -> str:
    why = report.last_error or run.said or report.lost or "look at the log of its driver"
    return f"{run.name} failed: {why}"[:ERROR_CHARS_MAX]


def _report(this: Pass) -> ArchiveReport:
    row = this.seen.meta.get(path_of(this.seen.resource)) if this.seen.meta is not None else None
    return archive_report(row)


def _status(
    this: Pass, schedule: str, report: ArchiveReport, stuck: Run | None
) -> tuple[dict[str, Any], list[Step]]:
    """What is not known stays as it stands: runs are forgotten, and meta may be silent."""
    status: dict[str, Any] = {**declared.kept(this.seen), "scheduledSparkApplication": schedule}
    status |= report.status()
    steps: list[Step] = []
    if len(report.watermarks) > WATERMARKS_MAX:
        found = _watermarks(this.seen.resource, report.watermarks)
        steps.append(Apply(found))
        status.pop("watermarks", None)
        status["watermarksConfigMap"] = found["metadata"]["name"]
    elif report.watermarks:
        status.pop("watermarksConfigMap", None)
    if this.timer is not None:
        times = {"lastScheduleTime": this.timer.last_ms, "nextScheduleTime": this.timer.next_ms}
        status |= {name: timestamp(at_ms) for name, at_ms in times.items() if at_ms is not None}
    if this.spec.state == "Suspended":
        status.pop("nextScheduleTime", None)
    status |= {"lastRunName": this.last_name} if this.last_name else {}
    states = {one.name: one.state.value for one in this.runs} | ({stuck.name: "Stuck"} if stuck else {})
    status |= {"lastRunState": states[this.last_name]} if this.last_name in states else {}
    well = (one for one in this.runs if one.state is RunState.SUCCEEDED and one.ended_ms is not None)
    best = max((one.ended_ms or 0 for one in well), default=0)
    if best:
        status["lastSuccessfulTime"] = timestamp(best)
    ended = this.ended
    if ended is not None and ended.state is RunState.SUCCEEDED:
        status.pop("lastError", None)
    elif ended is not None and "lastError" not in status and ended.said:
        status["lastError"] = ended.said[:ERROR_CHARS_MAX]
    return status, steps


def _watermarks(resource: Manifest, rows: Sequence[Mapping[str, Any]]) -> Manifest:
    """A name that no workload's ConfigMap has."""
    metadata = marks.metadata(resource)
    name = dns_label(f"ar-{metadata['name']}-watermarks", 63)
    labels = labels_of(marks.cluster_of(resource), "archive")
    own = {
        "name": name,
        "namespace": metadata["namespace"],
        "labels": labels,
        "ownerReferences": [owner_of(resource)],
    }
    return config_map(own, {"watermarks.json": json.dumps(list(rows), sort_keys=True)})


# -- an Archive that goes --------------------------------------------------------------------------------------------


def _going(seen: Seen, backend: SparkBackend | None) -> Plan:
    """No more runs first, then no run, then meta is told; what was archived stays where it is."""
    if not marks.is_held(seen.resource):
        return Plan()
    if declared.is_abandoned(seen):
        return Plan(steps=(Hold(False),))
    if marks.is_paused(seen.resource):
        return declared.paused(seen)
    if backend is not None:
        schedules = [one for one in schedules_of(seen, backend) if not marks.goes(one)]
        if schedules:
            steps = tuple(deletion_of(backend.kinds[1], one) for one in schedules)
            return _waits(seen, "its schedule is deleted", steps)
        running = [one for one in seen.of(backend.kinds[0].kind) if not marks.goes(one)]
        if running:
            # Spark's operator ends them with their schedule; those of a former one have none.
            steps = tuple(deletion_of(backend.kinds[0], one) for one in running)
            return _waits(seen, "its runs are ended", steps)
        if schedules_of(seen, backend) or seen.of(backend.kinds[0].kind):
            return _waits(seen, "waits until its runs have ended", ())
    if seen.meta is None:
        return _waits(seen, "waits for meta, which must know that it ends", ())
    report = archive_report(seen.meta.get(path_of(seen.resource)))
    if report.ended or not report.known:
        return Plan(steps=(Hold(False),))
    event = Event("Deleted", "meta is told that the archive ends; what it has stays where it is")
    # Not forgotten: brokers are told by what stands there that they need not keep anything for it.
    return Plan(steps=(Ask("PUT", path_of(seen.resource), {"state": ENDED}),), events=(event,), again_ms=0)


def _waits(seen: Seen, sentence: str, steps: tuple[Step, ...]) -> Plan:
    said = Condition(READY, "Unknown", "Deleting", sentence)
    return Plan(steps, (said,), declared.kept(seen), (), declared.SILENT_MS)
