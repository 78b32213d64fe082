"""A small world for planners: objects, a meta that keeps what it is told, and a runtime that does what is planned.

What is faithful: an object that is deleted stays while finalizers hold it; generations grow with the spec; meta keeps a
declaration as the real one parses it, and takes a group's subject for granted no more than the real one does.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from tidemill_operator import consumer_groups, marks, subjects
from tidemill_operator.conditions import is_known, next_status
from tidemill_operator.kinds import SCALED_OBJECT
from tidemill_operator.planners import PLANNERS
from tidemill_operator.refusals import Failure, of_meta
from tidemill_operator.steps import Apply, Ask, Consumed, Delete, Hold, Plan, Seek, Seen, Step
from tidemill_operator.store import Key, Store, key_of
from tidemill_wire.declarations import API_VERSION, Subject, parse_manifest

NAMESPACE = "shop"
CLUSTER = "prod"
START_MS = 1_800_000_000_000
KEDA = frozenset({SCALED_OBJECT.full})


def manifest(kind: str, name: str, spec: Mapping[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """An object as people write it."""
    reference = {} if kind == "QueueCluster" else {"clusterRef": {"name": CLUSTER}}
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, **metadata},
        "spec": {**reference, **(spec or {})},
    }


class World:
    """See the module."""

    kinds: tuple[str, ...] = ("Subject", "ConsumerGroup")

    def __init__(self) -> None:
        self.store = Store()
        self.subjects: dict[str, dict[str, Any]] = {}
        self.groups: dict[tuple[str, str], dict[str, Any]] = {}
        self.used: set[str] = set()
        """Subjects that programs use, or that are not empty: meta does not remove them."""
        self.meta_is_there = True
        self.namespace_goes = False
        self.lags: dict[tuple[str, str], Mapping[str, Any]] = {}
        self.served: frozenset[str] = frozenset()
        self.now_ms = START_MS
        self.sought: list[Seek] = []
        self.events: list[tuple[str, str]] = []
        self.writes = 0
        """What was asked of Kubernetes or of meta."""
        self._versions = 0

    # -- people ------------------------------------------------------------------------------------------------

    def apply(self, written: Mapping[str, Any]) -> Key:
        """As ``kubectl apply``."""
        key = key_of(written)
        former = self.store.get(key)
        metadata = dict(written["metadata"])
        if former is None:
            self.now_ms += 1000
            born = {
                "uid": f"uid-{self._versions}",
                "creationTimestamp": marks.timestamp(self.now_ms),
                "generation": 1,
            }
            self._put({**written, "metadata": {**born, **metadata}})
        else:
            known = marks.metadata(former)
            grown = known["generation"] + (former["spec"] != written["spec"])
            self._put(
                {**former, "spec": written["spec"], "metadata": {**known, **metadata, "generation": grown}}
            )
        return key

    def annotate(self, key: Key, name: str, text: str | None) -> None:
        resource = self.store.get(key)
        assert resource is not None
        metadata = dict(marks.metadata(resource))
        annotations = dict(metadata.get("annotations") or {})
        annotations.pop(name, None)
        if text is not None:
            annotations[name] = text
        self._put({**resource, "metadata": {**metadata, "annotations": annotations}})

    def delete(self, key: Key) -> None:
        """As ``kubectl delete``: finalizers hold it."""
        resource = self.store.get(key)
        assert resource is not None
        metadata = marks.metadata(resource)
        if metadata.get("finalizers"):
            self._put(
                {**resource, "metadata": {**metadata, "deletionTimestamp": marks.timestamp(self.now_ms)}}
            )
        else:
            self.store.drop(key.kind, key.namespace, key.name)

    def drift(self, subject: str, **fields: Any) -> None:
        """Somebody declares something else at meta, under the same names."""
        self.subjects[subject]["declared"]["spec"].update(fields)

    # -- the operator ------------------------------------------------------------------------------------------

    def plan(self, key: Key) -> Plan:
        """What is planned for an object now. What it says is of the vocabulary."""
        resource = self.store.get(key)
        assert resource is not None
        plan = PLANNERS[key.kind].decide(self.view(key), self.now_ms)
        unknown = [one for one in plan.conditions if not is_known(one)]
        assert not unknown, unknown
        kinds = [one.type for one in plan.conditions]
        assert len(kinds) == len(set(kinds)), f"said twice: {kinds}"
        return plan

    def view(self, key: Key) -> Seen:
        resource = self.store.get(key)
        assert resource is not None
        status = marks.status(resource)
        return Seen(
            resource,
            self.store.cluster(resource),
            self.store.around(resource),
            self._answers() if self.meta_is_there else None,
            namespace_goes=self.namespace_goes,
            lag=self.lags.get((status.get("subjectName", ""), status.get("groupName", ""))),
            served=self.served,
            scaler="http://operator:8080",
        )

    def step(self, key: Key, *, steps: int | None = None) -> Plan | None:
        """One pass, of which ``steps`` may be done before the operator is killed. None: it is gone, or failed."""
        if self.store.get(key) is None:
            return None
        plan = self.plan(key)
        for number, one in enumerate(plan.steps):
            if number == steps:
                return None
            try:
                self._do(key, one)
            except Failure:
                return None
        resource = self.store.get(key)
        if resource is None or steps is not None:
            return None
        status = next_status(resource, plan, self.now_ms)
        if status is not None:
            self.writes += 1
            self._put({**resource, "status": status})
        self.events.extend((key.name, one.reason) for one in plan.events)
        return plan

    def settle(self, passes: int = 12) -> None:
        """Passes over everything, until none changes anything; at most so many."""
        for _ in range(passes):
            writes = self.writes
            for key in self.store.keys(self.kinds):
                self.step(key)
            self.now_ms += 1000
            if self.writes == writes:
                return
        raise AssertionError(f"not settled after {passes} passes: {self.events[-10:]}")

    def ready(self, key: Key) -> tuple[str, str]:
        resource = self.store.get(key)
        assert resource is not None, f"{key} is gone"
        said = marks.condition_of(resource, "Ready")
        return said.get("status", ""), said.get("reason", "")

    def condition(self, key: Key, kind: str) -> Mapping[str, Any]:
        return marks.condition_of(self.store.get(key) or {}, kind)

    # -- what is done ------------------------------------------------------------------------------------------

    def _do(self, key: Key, step: Step) -> None:
        self.writes += 1
        resource = self.store.get(key)
        assert resource is not None
        match step:
            case Hold(held):
                kept = [
                    one for one in marks.metadata(resource).get("finalizers", ()) if one != marks.FINALIZER
                ]
                self._finalize(key, [*kept, *([marks.FINALIZER] if held else [])])
            case Consumed(annotation):
                self.annotate(key, annotation, None)
            case Ask():
                self._ask(step)
            case Seek():
                self.sought.append(step)
            case Apply(applied):
                self.writes -= self.store.get(key_of(applied)) is not None
                self._put({**applied, "metadata": {"uid": "uid-of-it", **applied["metadata"]}})
            case Delete(reference):
                self.store.drop(reference.kind, reference.namespace, reference.name, step.uid)

    def _ask(self, step: Ask) -> None:
        if not self.meta_is_there:
            raise of_meta(0, "", "meta is away")
        if step.method == "POST":
            assert step.body is not None
            self._declare(json.loads(json.dumps(step.body)))
            return
        path, _, _query = step.path.partition("?")
        names = path.split("/")[3:]
        if names[0] in self.used:
            raise of_meta(409, "in_use", "programs use it", goes=True)
        if len(names) == 1:
            del self.subjects[names[0]]
            self.groups = {key: row for key, row in self.groups.items() if key[0] != names[0]}
        else:
            del self.groups[names[0], names[2]]

    def _declare(self, body: Any) -> None:
        declared = parse_manifest(body)
        row = {"declared": declared.to_map(), "version": 1}
        if isinstance(declared, Subject):
            self._versions += 1
            route = {"version": 1, "partitions": [{"group": "g1"}, {"group": "g0"}]}
            self.subjects[declared.name] = {"name": declared.name, "route": route, **row}
        else:
            assert declared.subject in self.subjects, "a group made a subject of its own"
            self.groups[declared.subject, declared.name] = {
                "subject": declared.subject,
                "group": declared.name,
                **row,
            }

    def _answers(self) -> dict[str, Any]:
        rows = {subjects.path_of(name): row for name, row in self.subjects.items()}
        rows |= {consumer_groups.path_of(*names): row for names, row in self.groups.items()}
        return copy.deepcopy(rows)

    def _finalize(self, key: Key, finalizers: list[str]) -> None:
        resource = self.store.get(key)
        assert resource is not None
        metadata = {**marks.metadata(resource), "finalizers": finalizers}
        if not finalizers and marks.goes(resource):
            self.store.drop(key.kind, key.namespace, key.name)
        else:
            self._put({**resource, "metadata": metadata})

    def _put(self, resource: Mapping[str, Any]) -> None:
        self._versions += 1
        version = {"resourceVersion": str(self._versions)}
        self.store.put(copy.deepcopy({**resource, "metadata": {**resource["metadata"], **version}}))


def a_world() -> World:
    """With a cluster whose meta is there."""
    world = World()
    world.apply(manifest("QueueCluster", CLUSTER))
    return world
