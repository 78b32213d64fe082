"""The operator's planners of clusters and broker groups in a small Kubernetes, by passes that may be lost or late.

What planners must never do is checked when they do it, against what is true and not against what they saw:

- no broker that serves is taken away while another one of its group, or of another group, is away because of us;
- nothing that serves is taken away, and meta is asked nothing, in a pass in which meta was not heard;
- no volume's claim is deleted, and no group with something left is scaled to nothing;
- no broker that leads, or is the only one in sync, is scaled away or forgotten while its group is to stay, whether its
  pod is there or not.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from samples.appointing import GroupAtMeta, Refused
from samples.workloads import Kubernetes, broker_of, is_ready, runs
from tidemill_operator import broker_groups, clusters
from tidemill_operator.draining import GROUPS
from tidemill_operator.marks import BROKER_GROUP_LABEL, FINALIZER, SKIP_DRAIN, is_on, label, timestamp
from tidemill_operator.observed import META_PATHS, size_of
from tidemill_operator.steps import Apply, Ask, Consumed, Delete, Hold, Plan, Seen
from tidemill_wire.leftovers import PATH, Leftover, Undone

IMAGE = "registry.test/tidemill:1"
OURS = {"QueueCluster", "BrokerGroup"}


class Harm(AssertionError):
    """What must never happen, happened."""


class World(Kubernetes):
    """A cluster `prod` with groups `g0`, `g1` and so on."""

    def __init__(self, groups: int = 2, slaves: int = 1, storage: str = "10Gi") -> None:
        super().__init__()
        self.taken: dict[str, set[str]] = {}
        """By group, brokers that are away because of us."""
        self.caches: dict[tuple[str, str], dict[tuple[str, str], dict[str, Any]]] = {}
        self.done: list[str] = []
        self.groups = {"billing"}
        """Consumer groups, as meta knows them."""
        self.events: list[tuple[str, str]] = []
        self.put("StorageClass", "fast", {"allowVolumeExpansion": True}, api="storage.k8s.io/v1")
        self.put(
            "QueueCluster", "prod", {"spec": {"image": {"repository": "registry.test/tidemill", "tag": "1"}}}
        )
        for one in range(groups):
            self.add_group(f"g{one}", slaves=slaves, storage=storage)

    def add_group(self, name: str, slaves: int = 1, storage: str = "10Gi", **spec: Any) -> None:
        said = {
            "clusterRef": {"name": "prod"},
            "slaves": slaves,
            "storage": {"size": storage, "className": "fast"},
        }
        self.put("BrokerGroup", name, {"spec": said | spec})

    def image(self, tag: str) -> None:
        self.change("QueueCluster", "prod", image={"repository": "registry.test/tidemill", "tag": tag})

    def pass_time(self, ms: int) -> None:
        super().pass_time(ms)
        for group, away in self.taken.items():
            self.taken[group] = {one for one in away if self._is_wanted(group, one) and not self.is_well(one)}

    def kill(self, name: str) -> None:
        super().kill(name)
        for away in self.taken.values():
            away.discard(name)

    def _is_delay(self, name: str) -> bool:
        one = self.objects.get(("BrokerGroup", name), {})
        return one.get("spec", {}).get("kind") == "Delay"

    def _is_wanted(self, group: str, name: str) -> bool:
        one = self.objects.get(("BrokerGroup", group))
        there = ("Pod", name) in self.objects
        return one is not None and (there or int(name.split("-")[1]) <= one["spec"].get("slaves", 1))

    # -- the operator ------------------------------------------------------------------------------------------

    def ours(self) -> list[tuple[str, str]]:
        return [key for key in sorted(self.objects) if key[0] in OURS]

    def view(self, key: tuple[str, str], *, heard: bool = True, stale: bool = False) -> Seen:
        """``stale``: of other objects of ours this worker has not heard since it last looked."""
        resource = self.objects[key]
        # Planners change nothing: what they see need not be copied, but what is kept for later looks.
        fresh = {other: copy.deepcopy(self.objects[other]) for other in self.ours() if other != key}
        ours = self.caches.get(key, fresh) if stale else fresh
        self.caches[key] = ours
        name = resource["spec"].get("clusterRef", {}).get("name", key[1])
        others = (one for other, one in sorted(self.objects.items()) if other[0] not in OURS)
        rows: dict[str, list[dict[str, Any]]] = {path: [] for path in META_PATHS.values()}
        for one in self.at_meta.values():
            rows[META_PATHS["delay" if self._is_delay(one.name) else "broker"]].append(one.row(self.now_ms))
        rows[GROUPS] = [{"subject": "order.created", "group": one} for one in sorted(self.groups)]
        led = {one.master: answers_of(one) for one in self.at_meta.values() if one.master}
        return Seen(
            resource,
            resource if key[0] == "QueueCluster" else ours.get(("QueueCluster", name)),
            (*others, *ours.values()),
            rows if heard else None,
            led if heard else {},
            IMAGE,
        )

    def plan(self, key: tuple[str, str], *, heard: bool = True, stale: bool = False) -> Plan:
        planner = clusters.plan if key[0] == "QueueCluster" else broker_groups.plan
        return planner(self.view(key, heard=heard, stale=stale), self.now_ms)

    def act(
        self, key: tuple[str, str], *, heard: bool = True, stale: bool = False, lost_after: int | None = None
    ) -> bool:
        """One pass; whether anything changed. ``lost_after``: the operator ends after so many steps."""
        if key not in self.objects:
            return False
        plan = self.plan(key, heard=heard, stale=stale)
        if not heard and any(isinstance(step, Ask) for step in plan.steps):
            raise Harm(f"{key}: meta was not heard, and is asked")
        if sum(takes_away(step) for step in plan.steps) > 1:
            raise Harm(f"{key}: two steps of one plan take something away")
        changed = False
        for number, step in enumerate(plan.steps):
            if number == lost_after:
                return True
            try:
                changed |= self.execute(key, step, heard=heard)
            except Refused as refused:
                self.done.append(f"refused: {refused}")
                return True
        return (lost_after is None and self._say(key, plan)) or changed

    def _say(self, key: tuple[str, str], plan: Plan) -> bool:
        one = self.objects.get(key)
        if one is None or not plan.conditions:
            return False
        former = {row["type"]: row for row in one.get("status", {}).get("conditions", ())}
        rows = []
        for said in plan.conditions:
            row = {"type": said.type, "status": said.status, "reason": said.reason, "message": said.message}
            same = former.get(said.type, {}).get("status") == said.status
            row["lastTransitionTime"] = (
                former[said.type]["lastTransitionTime"] if same else timestamp(self.now_ms)
            )
            rows.append(row)
        self.events += ((key[1], event.reason) for event in plan.events)
        status = {**copy.deepcopy(dict(plan.status)), "conditions": rows}
        changed = status != one.get("status")
        one["status"] = status
        return changed

    def execute(self, key: tuple[str, str], step: object, *, heard: bool) -> bool:
        match step:
            case Apply(manifest):
                return self._applied(manifest, heard=heard)
            case Delete(reference, uid, orphan):
                return self._delete(reference.kind, reference.name, uid, heard=heard, orphan=orphan)
            case Ask():
                return self._asked(step)
            case Hold(held):
                one = self.objects[key]
                finalizers = [FINALIZER] if held else []
                changed = one["metadata"].get("finalizers", []) != finalizers
                one["metadata"]["finalizers"] = finalizers
                self.let_go(one)
                return changed
            case Consumed():
                raise AssertionError("these planners consume nothing")
        raise AssertionError(step)

    def _applied(self, manifest: Mapping[str, Any], *, heard: bool) -> bool:
        there = self.objects.get((manifest["kind"], manifest["metadata"]["name"]))
        if (
            manifest["kind"] == "PersistentVolumeClaim"
            and there is not None
            and asked(manifest) < asked(there)
        ):
            raise Harm(f"the claim {manifest['metadata']['name']} is to shrink")
        if manifest["kind"] == "StatefulSet" and there is not None:
            self._check_scale(there, manifest, heard=heard)
        return self.apply(manifest)

    def _check_scale(self, there: dict[str, Any], manifest: Mapping[str, Any], *, heard: bool) -> None:
        name, count = there["metadata"]["name"], manifest["spec"]["replicas"]
        group = label(there, BROKER_GROUP_LABEL)
        if not group:
            return
        known = self.at_meta.get(group)
        if known is None:
            return
        lone = [one.name for one in known.members.values() if one.in_sync]
        for one in known.members.values() if count else ():
            needed = one.name == known.master or lone == [one.name]
            if needed and int(one.name.rpartition("-")[2]) >= count:
                raise Harm(f"{one.name} is scaled away, and has what nobody else has")
        for pod in self.pods(group) if count else ():
            if int(pod["metadata"]["name"].rpartition("-")[2]) >= count:
                self._take(pod, heard=heard)
        if count == 0 and not (known.retired or (known.draining and self._is_delay(group))):
            raise Harm(f"{name} is scaled to nothing, and is in use")
        if count == 0 and known.left and not self._is_forced(group):
            raise Harm(f"{name} is scaled to nothing, and {known.left} messages are left")

    def _is_forced(self, group: str) -> bool:
        return is_on(self.get("BrokerGroup", group), SKIP_DRAIN)

    def _delete(self, kind: str, name: str, uid: str, *, heard: bool, orphan: bool) -> bool:
        one = self.objects.get((kind, name))
        if one is None or one["metadata"]["uid"] != uid:
            raise Refused(f"{kind} {name} is another one by now")
        if kind == "PersistentVolumeClaim":
            raise Harm(f"the claim {name} is deleted")
        if kind == "Pod":
            self._take(one, heard=heard)
            one["metadata"]["deletionTimestamp"] = timestamp(self.now_ms)
        elif kind == "StatefulSet":
            if not orphan:
                raise Harm(f"the StatefulSet {name} is deleted with its pods")
            del self.objects[kind, name]
        elif kind == "BrokerGroup":
            self.remove(kind, name)
        else:
            del self.objects[kind, name]
        return True

    # -- what must not be --------------------------------------------------------------------------------------

    def serves(self, pod: Mapping[str, Any]) -> bool:
        return is_ready(pod) and "deletionTimestamp" not in pod["metadata"]

    def _take(self, pod: dict[str, Any], *, heard: bool) -> None:
        """A broker is taken away by us."""
        group, name = broker_of(pod)
        self.done.append(f"take {name}")
        if not self.serves(pod):
            return
        if not heard:
            raise Harm(f"{name} is taken away, and meta was not heard")
        for other, away in self.taken.items():
            if away - {name}:
                raise Harm(f"{name} is taken away, and of {other} {', '.join(sorted(away))} are not back")
        known = self.at_meta.get(group)
        if known is not None and known.master == name and len(known.members) > 1 and not known.retired:
            raise Harm(f"{name} leads {group}, and was not asked to hand over")
        self.taken.setdefault(group, set()).add(name)

    def is_well(self, name: str) -> bool:
        group, ordinal = name.split("-")
        pod, known = self.objects.get(("Pod", f"{group}-{ordinal}")), self.at_meta.get(group)
        member = known.members.get(name) if known is not None else None
        back = pod is not None and self.serves(pod) and runs(pod)
        return back and member is not None and member.in_sync and member.boot == self.boots.get(name)

    def _asked(self, ask: Ask) -> bool:
        _, _, _, name, *rest = ask.path.split("/")
        known = self.at_meta.get(name)
        if known is None:
            raise Refused(f"there is no broker group {name}")
        body = dict(ask.body or {})
        self.done.append(" ".join(filter(None, (rest[0], name, str(body.get("to", ""))))))
        away = {one for many in self.taken.values() for one in many}
        if rest == ["handover"] and away:
            raise Harm(f"{name} hands over, and {', '.join(sorted(away))} are not back")
        known.asked(rest, body, self.now_ms)
        if not known.members:
            del self.at_meta[name]
        return True

    # -- the end -----------------------------------------------------------------------------------------------

    def settle(self, seconds: int = 600) -> None:
        """All is heard and nothing fails any more; until nobody has anything to do."""
        self.slow.clear()
        self.stuck.clear()
        quiet_ms, since_ms = 0, self.now_ms
        while self.now_ms - since_ms < seconds * 1_000:
            changed = [self.act(key) for key in self.ours()]
            self.pass_time(2_000)
            quiet_ms = 0 if any(changed) else quiet_ms + 2_000
            if quiet_ms >= 32_000:
                return
        raise Harm(f"still something to do after {seconds} s: {self.done[-5:]}")


def takes_away(step: object) -> bool:
    match step:
        case Delete(reference):
            return reference.kind == "Pod"
        case Ask(path=path):
            return path.endswith("/handover")
    return False


def asked(claim: Mapping[str, Any]) -> int:
    return size_of(claim["spec"]["resources"]["requests"]["storage"])


def answers_of(known: GroupAtMeta) -> dict[str, Any]:
    """What a master says of what nobody is done with."""
    counts = {"lag": known.left, "in_flight": 0, "failed": 0, "dead": 0}
    undone = (Undone("billing", "order.created", counts),) if known.left else ()
    row = Leftover("order.created", undone, kept=100, begun=tuple(sorted(known.begun)))
    said = {"epoch": known.epoch, "subjects": [row.to_map()]}
    page = f"# TYPE tidemill_delay_waiting gauge\ntidemill_delay_waiting {float(known.left)}\n"
    return {PATH: said, "/metrics": page}
