"""A small Kubernetes: objects, the controller of StatefulSets, a kubelet, and brokers in the pods that tell meta of
themselves.

It is a model and no imitation: an apply merges, a controller looks twice a second, a pod starts in a second unless its
image is bad. What it refuses it refuses as the API server does: another object of the same name, and claims of a
StatefulSet that change.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from samples.appointing import GroupAtMeta, Refused
from tidemill_operator.marks import BROKER_GROUP_LABEL, label, moment, timestamp
from tidemill_operator.names import digest
from tidemill_operator.observed import REVISION_LABEL
from tidemill_wire.declarations import API_VERSION

START_MS = 1_780_000_000_000
TURN_MS = 500
STARTS_MS, READY_MS, REGISTERS_MS, GOES_MS = 500, 1_000, 1_500, 1_000


class Kubernetes:
    """See the module. ``stuck`` are pods that do not come up, ``slow`` brokers that do not catch up."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.at_meta: dict[str, GroupAtMeta] = {}
        self.boots: dict[str, int] = {}
        self.stuck: set[str] = set()
        self.slow: set[str] = set()
        self.uids = 0

    # -- objects -----------------------------------------------------------------------------------------------

    def put(self, kind: str, name: str, body: Mapping[str, Any], api: str = API_VERSION) -> dict[str, Any]:
        self.uids += 1
        metadata = {
            "name": name, "namespace": "shop", "uid": f"uid-{self.uids}", "generation": 1,
            "creationTimestamp": timestamp(self.now_ms),
        }  # fmt: skip
        found = {"apiVersion": api, "kind": kind, **copy.deepcopy(dict(body))}
        found["metadata"] = {**found.get("metadata", {}), **metadata}
        self.objects[kind, name] = found
        return found

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [one for (found, _), one in sorted(self.objects.items()) if found == kind]

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return self.objects[kind, name]

    def change(self, kind: str, name: str, /, **spec: Any) -> None:
        """A person edits a spec."""
        one = self.get(kind, name)
        one["spec"] = {**one["spec"], **spec}
        one["metadata"]["generation"] += 1

    def annotate(self, kind: str, name: str, **said: str) -> None:
        annotations = self.get(kind, name)["metadata"].setdefault("annotations", {})
        annotations |= {f"tidemill.dev/{key.replace('_', '-')}": value for key, value in said.items()}

    def remove(self, kind: str, name: str) -> None:
        """A person deletes an object of ours."""
        one = self.get(kind, name)
        one["metadata"]["deletionTimestamp"] = timestamp(self.now_ms)
        self.let_go(one)

    def pods(self, group: str) -> list[dict[str, Any]]:
        return [one for one in self.of("Pod") if label(one, BROKER_GROUP_LABEL) == group]

    def apply(self, manifest: Mapping[str, Any]) -> bool:
        """Whether anything changed."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        there, uid = self.objects.get((kind, name)), manifest["metadata"].get("uid")
        if uid is not None and (there is None or uid != there["metadata"]["uid"]):
            raise Refused(f"{kind} {name} is another one by now")
        if there is None:
            self.put(kind, name, manifest, api=manifest["apiVersion"])
            return True
        if kind == "StatefulSet" and (
            there["spec"].get("volumeClaimTemplates") != manifest["spec"].get("volumeClaimTemplates")
        ):
            raise Refused("a StatefulSet's claims cannot be changed")
        if says(there, manifest):
            return False
        merged = merge(there, manifest)
        if merged.get("spec") != there.get("spec"):
            merged["metadata"]["generation"] += 1
        self.objects[kind, name] = merged
        return True

    # -- controllers -------------------------------------------------------------------------------------------

    def pass_time(self, ms: int) -> None:
        for _ in range(max(1, ms // TURN_MS)):
            self.now_ms += TURN_MS
            for workload in self.of("StatefulSet"):
                self._controller_turn(workload)
            for workload in self.of("Deployment"):
                self._is_deployed(workload)
            for pod in self.of("Pod"):
                self._kubelet_turn(pod)
            beats = self._beats()
            for known in self.at_meta.values():
                known.judge(beats, self.slow, self.now_ms)
            for claim in self.of("PersistentVolumeClaim"):
                claim["status"] = {"phase": "Bound", "capacity": dict(claim["spec"]["resources"]["requests"])}

    def _beats(self) -> dict[str, int]:
        """Brokers whose processes run, and the life each of them is in."""
        running = (broker_of(one)[1] for one in self.of("Pod") if runs(one))
        return {name: self.boots[name] for name in running if name in self.boots}

    def _controller_turn(self, workload: dict[str, Any]) -> None:
        spec, name = workload["spec"], workload["metadata"]["name"]
        revision = f"{name}-{digest(spec['template'], 8)}"
        for ordinal in range(spec["replicas"]):
            if ("Pod", f"{name}-{ordinal}") not in self.objects:
                self._make_pod(workload, ordinal, revision)
        for pod in self.of("Pod"):
            owner, _, ordinal = pod["metadata"]["name"].rpartition("-")
            if owner == name and int(ordinal) >= spec["replicas"]:
                pod["metadata"].setdefault("deletionTimestamp", timestamp(self.now_ms))
        own = [one for one in self.of("Pod") if one["metadata"]["name"].rpartition("-")[0] == name]
        workload["status"] = {
            "observedGeneration": workload["metadata"]["generation"],
            "updateRevision": revision,
            "replicas": len(own),
            "readyReplicas": sum(is_ready(one) for one in own),
        }

    def _is_deployed(self, workload: dict[str, Any]) -> None:
        """Of a Deployment there are no pods here: it has them all, but of an image that is bad."""
        image = workload["spec"]["template"]["spec"]["containers"][0]["image"]
        count = workload["spec"]["replicas"]
        workload["status"] = {
            "observedGeneration": workload["metadata"]["generation"],
            "updatedReplicas": count,
            "readyReplicas": 0 if image.endswith("bad") else count,
        }

    def _make_pod(self, workload: dict[str, Any], ordinal: int, revision: str) -> None:
        name, template = workload["metadata"]["name"], workload["spec"]["template"]
        labels = {**template["metadata"]["labels"], REVISION_LABEL: revision}
        pod = {"metadata": {"labels": labels}, "spec": template["spec"], "status": {}}
        self.put("Pod", f"{name}-{ordinal}", pod, api="v1")
        for claim in workload["spec"]["volumeClaimTemplates"]:
            known = f"data-{name}-{ordinal}"
            if ("PersistentVolumeClaim", known) not in self.objects:
                body = {"metadata": {"labels": claim["metadata"]["labels"]}, "spec": claim["spec"]}
                self.put("PersistentVolumeClaim", known, body, api="v1")

    def _kubelet_turn(self, pod: dict[str, Any]) -> None:
        metadata, name = pod["metadata"], pod["metadata"]["name"]
        going = moment(metadata.get("deletionTimestamp"))
        if going is not None:
            if self.now_ms - going >= GOES_MS:
                self.objects.pop(("Pod", name))
            return
        age = self.now_ms - (moment(metadata["creationTimestamp"]) or 0)
        image = pod["spec"]["containers"][0]["image"]
        if age < STARTS_MS:
            return
        if image.endswith("bad") or name in self.stuck:
            pod["status"] = {"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}
            return
        is_broker = bool(label(pod, BROKER_GROUP_LABEL))
        if not runs(pod):
            pod["status"] = {"containerStatuses": [{"state": {"running": {}}}]}
            if is_broker:
                broker = broker_of(pod)[1]
                self.boots[broker] = self.boots.get(broker, 0) + 1
        if age >= READY_MS and not is_ready(pod):
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": timestamp(self.now_ms)}
            pod["status"]["conditions"] = [ready]
        if age >= REGISTERS_MS and is_broker:
            group, name = broker_of(pod)
            self.at_meta.setdefault(group, GroupAtMeta(group)).register(name, self.boots[name], self.now_ms)

    def kill(self, name: str) -> None:
        """A pod is gone, as with its node; nobody asked."""
        self.objects.pop(("Pod", name), None)

    def let_go(self, one: dict[str, Any]) -> None:
        metadata = one["metadata"]
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            self.objects.pop((one["kind"], metadata["name"]), None)
            for key, child in list(self.objects.items()):
                owners = child["metadata"].get("ownerReferences", ())
                if any(owner["uid"] == metadata["uid"] for owner in owners):
                    del self.objects[key]


def says(there: object, said: object) -> bool:
    """Whether an apply would change nothing."""
    if isinstance(there, Mapping) and isinstance(said, Mapping):
        return all(key in there and says(there[key], value) for key, value in said.items())
    return there == (list(said) if isinstance(said, tuple) else said)


def merge(there: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """As an apply: what is said counts, the rest stays."""
    found = copy.deepcopy(dict(there))
    for key, value in said.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merge(found[key], value) if both else copy.deepcopy(value)
    return found


def runs(pod: Mapping[str, Any]) -> bool:
    return any("running" in one["state"] for one in pod["status"].get("containerStatuses", ()))


def is_ready(pod: Mapping[str, Any]) -> bool:
    rows = pod.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in rows)


def broker_of(pod: Mapping[str, Any]) -> tuple[str, str]:
    """The group and the name by which meta knows it; here they are those of the pod."""
    name = pod["metadata"]["name"]
    return name.rpartition("-")[0], name
