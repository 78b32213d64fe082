"""A small world with Archives and Replays: what kubeflow's operator does to its objects, and what jobs tell meta.

What is faithful: a SparkApplication whose spec is changed but for ``suspend`` runs again, which no test may bring
about; one is made once for a name; a schedule's runs have its labels and go with it, unless it is deleted so that they
stay; an apply is merged into what is there.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

from samples.kubernetes import CLUSTER, NAMESPACE, World, manifest
from tidemill_operator import marks
from tidemill_operator.kinds import SPARK_APPLICATION, SPARK_SCHEDULE
from tidemill_operator.refusals import of_meta
from tidemill_operator.steps import Apply, Ask, Create, Delete, Seen, Step
from tidemill_operator.store import Key, key_of

IMAGE = "registry.example.org/tidemill-spark:0.1.0"
SPARK = frozenset({SPARK_APPLICATION.full, SPARK_SCHEDULE.full})
ENDS = frozenset({"COMPLETED", "FAILED"})

ARCHIVE: dict[str, Any] = {
    "source": {"subjects": [{"name": "orders"}]},
    "destination": {"uri": "s3a://archive/prod", "credentials": {"name": "archive-keys"}},
    "schedule": "15 * * * *",
}
REPLAY: dict[str, Any] = {
    "source": {
        "archiveRef": {"name": "hourly"},
        "from": "2026-09-01T00:00:00Z",
        "to": "2026-09-02T00:00:00Z",
    },
    "target": {"subject": "orders", "consumerGroup": "billing"},
}


class Pipelines(World):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.served = SPARK
        self.reports: dict[str, dict[str, Any]] = {}
        """What meta has of archives and replays, by path."""
        self.made: list[str] = []
        """Applications that were made, by name, each time."""
        self.changed: list[str] = []
        """Applications whose spec was changed so that they would run again."""
        self.image = IMAGE

    def view(self, key: Key) -> Seen:
        seen = super().view(key)
        meta = None if seen.meta is None else {**seen.meta, **copy.deepcopy(self.reports)}
        return Seen(
            seen.resource,
            seen.cluster,
            seen.objects,
            meta,
            namespace_goes=self.namespace_goes,
            served=self.served,
            spark_image=self.image,
        )

    def settle(self, passes: int = 20) -> None:
        for _ in range(passes):
            writes = self.writes
            for key in self.store.keys(("Subject", "Archive", "Replay")):
                self.step(key)
            self.now_ms += 100
            if self.writes == writes:
                return
        raise AssertionError(f"not settled after {passes} passes: {self.events[-10:]}")

    # -- Spark's operator ------------------------------------------------------------------------------------------

    def applications(self) -> list[dict[str, Any]]:
        return cast("list[dict[str, Any]]", list(self.store.of_kind(SPARK_APPLICATION.kind)))

    def schedules(self) -> list[dict[str, Any]]:
        return cast("list[dict[str, Any]]", list(self.store.of_kind(SPARK_SCHEDULE.kind)))

    def turn(self, name: str, state: str, error: str = "") -> None:
        """An application's state becomes another one."""
        resource = self.store.get(Key(SPARK_APPLICATION.kind, NAMESPACE, name))
        assert resource is not None, f"{name} is not there"
        said = {"state": state, **({"errorMessage": error} if error else {})}
        status: dict[str, Any] = {"applicationState": said}
        if state in ENDS:
            status["terminationTime"] = marks.timestamp(self.now_ms)
        self._put({**resource, "status": status})

    def accept(self, schedule: str, state: str = "Scheduled", **status: str) -> None:
        """A schedule is looked at."""
        resource = self.store.get(Key(SPARK_SCHEDULE.kind, NAMESPACE, schedule))
        assert resource is not None
        self._put({**resource, "status": {**marks.status(resource), "scheduleState": state, **status}})

    def run(self, schedule: str, number: int) -> str:
        """The schedule is due: a run, as it makes it."""
        resource = self.store.get(Key(SPARK_SCHEDULE.kind, NAMESPACE, schedule))
        assert resource is not None
        name = f"{schedule}-{number}"
        owner = {"kind": SPARK_SCHEDULE.kind, "name": schedule, "uid": marks.metadata(resource)["uid"]}
        labels = {**marks.metadata(resource)["labels"], "sparkoperator.k8s.io/scheduled-app-name": schedule}
        self._make(
            {
                **SPARK_APPLICATION.header,
                "metadata": {
                    "name": name,
                    "namespace": NAMESPACE,
                    "labels": labels,
                    "ownerReferences": [owner],
                },
                "spec": marks.spec(resource)["template"],
            }
        )
        self.accept(schedule, lastRunName=name, lastRun=marks.timestamp(self.now_ms))
        return name

    # -- what is done ----------------------------------------------------------------------------------------------

    def _do(self, key: Key, step: Step) -> None:
        match step:
            case Create(made):
                self.writes += 1
                if self.store.get(key_of(made)) is None:
                    self.made.append(made["metadata"]["name"])
                    self._make(made)
            case Apply(applied) if applied["kind"] in {SPARK_APPLICATION.kind, SPARK_SCHEDULE.kind}:
                self._apply(applied)
            case Delete(reference, uid, orphan):
                self.writes += 1
                self.store.drop(reference.kind, reference.namespace, reference.name, uid)
                if reference.kind == SPARK_SCHEDULE.kind and not orphan:
                    for one in self.applications():
                        owners = one["metadata"]["ownerReferences"]
                        if any(owner["uid"] == uid for owner in owners):
                            self.store.drop(one["kind"], NAMESPACE, one["metadata"]["name"])
            case _:
                super()._do(key, step)

    def _apply(self, applied: Mapping[str, Any]) -> None:
        standing = self.store.get(key_of(applied))
        if standing is None:
            assert "uid" not in applied["metadata"], "an apply makes anew what is gone"
            self.writes += 1
            self._make(applied)
            return
        spec = {**marks.spec(standing), **marks.spec(applied)}
        if spec == marks.spec(standing):
            return
        self.writes += 1
        others = {name for name in spec if spec[name] != marks.spec(standing).get(name) and name != "suspend"}
        if others and applied["kind"] == SPARK_APPLICATION.kind:
            self.changed.append(applied["metadata"]["name"])
        self._put({**standing, "spec": spec})

    def _make(self, written: Mapping[str, Any]) -> None:
        born = {"uid": f"uid-{self._versions}", "creationTimestamp": marks.timestamp(self.now_ms)}
        self._put({**written, "metadata": {**written["metadata"], **born}})

    def _ask(self, step: Ask) -> None:
        if step.path.startswith("/v1/archives/") and step.method == "PUT":
            if not self.meta_is_there:
                raise of_meta(0, "", "meta is away")
            assert step.body is not None
            known = self.reports.get(step.path, {"subjects": [], "watermarks": {}, "runs": []})
            self.reports[step.path] = {**known, **step.body}
            return
        super()._ask(step)


def a_pipeline() -> Pipelines:
    """With a cluster, and a Subject whose name at meta is another one than its own."""
    world = Pipelines()
    world.apply(manifest("QueueCluster", CLUSTER))
    world.apply(manifest("Subject", "orders", {"subjectName": "order.created"}, labels={"archive": "true"}))
    return world
