"""What Subjects and ConsumerGroups have in common: both are declared at meta, and their objects are the only truth.

A pass asks these questions, in this order; the first that has an answer is the pass:

    it is deleted            ``deletion``: let go, or ask meta to remove it and then let go
    paused, not managed      say so, and do nothing
    no cluster               say so, until there is one
    an older one claims it   say so, until that one is gone
    meta was not heard       say so, and wait
    Observe                  say whether meta's is as the spec says
    meta's is missing        declare it
    meta's is another        declare it: somebody changed the spec, or changed it past its object
    all is well              say so

The finalizer is held before anything is declared that a deletion must take back, and only then; so whatever a crash
leaves behind, the next pass sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from tidemill_operator import marks
from tidemill_operator.conditions import RECONCILING, SYNCED, ready, rest_of, stalled, standing, synced
from tidemill_operator.steps import Ask, Condition, Event, Hold, Manifest, Plan, Seen, Step

MISSING_MS = 15_000
"""How soon a reference that leads nowhere is looked at again. What is applied later wakes it up at once."""
SILENT_MS = 5_000
OPERATORS = frozenset({"clusterRef", "managementPolicy", "deletionPolicy", "autoscaling"})
"""What a spec says to the operator, and not to meta."""

Policy = Literal["Retain", "Delete", "DeleteIfEmpty"]


@dataclass(frozen=True, slots=True)
class Wish:
    """What one object wants meta to have."""

    resource: Manifest
    title: str
    """As people say it: ``subject orders``."""
    path: str
    """Where meta keeps it."""
    spec: Mapping[str, Any]
    """As meta is told it, defaults written out."""
    deletion: Policy
    management: Literal["Full", "CreateOnly", "Observe"] = "Full"

    @property
    def needs_finalizer(self) -> bool:
        return self.deletion != "Retain" and self.management != "Observe"

    @property
    def removal(self) -> str:
        return self.path + ("?if_empty=1" if self.deletion == "DeleteIfEmpty" else "")

    def declaration(self) -> dict[str, Any]:
        """As it is posted; meta keeps the object's names with it, which say whose it is."""
        return bare(self.resource, self.spec)


def bare(resource: Manifest, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest as people write it: what others noted in its metadata is none of a declaration's business."""
    return {**marks.named(resource, "name", "namespace"), "spec": dict(spec)}


def told_spec(written: Mapping[str, Any]) -> dict[str, Any]:
    """A spec without what only the operator reads."""
    return {name: value for name, value in written.items() if name not in OPERATORS}


def is_own(wish: Wish, row: Mapping[str, Any]) -> bool:
    """Whether meta's was last declared by this object."""
    metadata, declared = marks.metadata(wish.resource), marks.part(row, "declared", "metadata")
    return all(declared.get(name) == metadata.get(name) for name in ("namespace", "name"))


def differences(wish: Wish, row: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields in which meta's is not as the spec says; ``*``: nobody declared it."""
    if row.get("declared") is None:
        return ("*",)
    return tuple(_differing(wish.spec, told_spec(marks.part(row, "declared", "spec")), ""))


def _differing(wanted: Any, there: Any, path: str) -> list[str]:
    if not isinstance(wanted, Mapping) or not isinstance(there, Mapping):
        return [] if wanted == there else [path]
    one, other = cast("Mapping[str, Any]", wanted), cast("Mapping[str, Any]", there)
    return [
        found
        for name in sorted(one.keys() | other.keys())
        for found in _differing(one.get(name), other.get(name), f"{path}.{name}" if path else name)
    ]


# -- before meta is asked --------------------------------------------------------------------------------------


def deletion(seen: Seen, wish: Wish | None, rivals: tuple[Manifest, ...]) -> Plan:
    """The pass of an object that is being deleted. What another object claims, too, is left to it."""
    if not marks.is_held(seen.resource):
        return Plan()
    release = Plan(steps=(Hold(False),))
    claimed = any(not marks.goes(one) for one in rivals)
    if wish is None or not wish.needs_finalizer or claimed or is_abandoned(seen):
        return release
    if marks.is_paused(seen.resource):
        return paused(seen)
    if seen.meta is None:
        return Plan(
            conditions=(
                ready("Deleting", f"waits for meta, which must remove {wish.title}"),
                Condition(RECONCILING, "True", "Deleting", f"deletionPolicy is {wish.deletion}"),
            ),
            status=kept(seen),
            again_ms=SILENT_MS,
        )
    row = seen.meta.get(wish.path)
    if row is None or not is_own(wish, row):
        return release
    event = Event("Deleted", f"meta is told to remove {wish.title}, as deletionPolicy {wish.deletion} says")
    return Plan(steps=(Ask("DELETE", wish.removal),), events=(event,), again_ms=0)


def is_abandoned(seen: Seen) -> bool:
    """Whether nobody is left who could remove anything, or wants it: then nothing is held back."""
    return (
        seen.namespace_goes
        or seen.cluster is None
        or marks.goes(seen.cluster)
        or marks.is_unmanaged(seen.resource)
    )


def held_up(seen: Seen) -> Plan | None:
    """Of an object that is not deleted: it is to be left alone, or has no cluster; None: neither is so."""
    match marks.stopped(seen.resource):
        case "Paused":
            return paused(seen)
        case "Unmanaged":
            return unmanaged(seen)
        case _:
            gone = seen.cluster is None or marks.goes(seen.cluster)
            return without_cluster(seen) if gone else None


def paused(seen: Seen) -> Plan:
    """What stood there stays; the pause is said beside it."""
    said = Condition(
        "Paused", "True", "PausedByAnnotation", f"take the annotation {marks.PAUSED} away to go on"
    )
    return Plan(conditions=(*standing(seen.resource), said), status=kept(seen))


def unmanaged(seen: Seen) -> Plan:
    message = f"take the annotation {marks.MANAGED} away to have it managed again"
    return Plan(
        steps=released(seen),
        conditions=(
            Condition("Unmanaged", "True", "UnmanagedByAnnotation", message),
            ready("Reconciled", "not managed, and left as it is"),
        ),
        status=kept(seen),
    )


def unreadable(seen: Seen, sentence: str) -> Plan:
    """Of a spec that this version cannot read: what it declared nobody knows, so it may go."""
    if marks.goes(seen.resource):
        return deletion(seen, None, ())
    return Plan(conditions=stalled("InvalidSpec", sentence), status=kept(seen))


def without_cluster(seen: Seen) -> Plan:
    """Nothing names a place where it could be."""
    name = marks.cluster_of(seen.resource)
    steps = released(seen)
    if seen.cluster is None:
        said = ready(
            "ReferenceNotFound",
            f"there is no QueueCluster {name} in this namespace: apply it, or name another",
        )
    else:
        said = ready("ClusterUnavailable", f"the QueueCluster {name} is being deleted")
    return Plan(steps=steps, conditions=(said,), status=kept(seen), again_ms=MISSING_MS)


def conflicting(seen: Seen, winner: Manifest, title: str) -> Plan:
    namespace, name = marks.metadata(winner).get("namespace", ""), marks.metadata(winner)["name"]
    sentence = f"{title} is managed by {namespace}/{name}, which is older: delete one of the two"
    return Plan(
        steps=released(seen),
        conditions=stalled("ResourceConflict", sentence),
        status=kept(seen),
        events=(Event("Conflict", sentence, warning=True),),
    )


def silent(seen: Seen) -> Plan:
    said = Condition(
        "Ready", "Unknown", "ClusterUnavailable", "meta does not answer: look at its QueueCluster"
    )
    return Plan(conditions=(said,), status=kept(seen), again_ms=SILENT_MS)


def waiting(seen: Seen, reason: str, sentence: str, again_ms: int = MISSING_MS) -> Plan:
    """Something else has to come first."""
    return Plan(conditions=(ready(reason, sentence),), status=kept(seen), again_ms=again_ms)


def oldest(resource: Manifest, rivals: tuple[Manifest, ...]) -> Manifest | None:
    """Who wins against an object: the oldest of those with its claim; None when it is the oldest itself."""

    def age(one: Manifest) -> tuple[str, str]:
        metadata = marks.metadata(one)
        return metadata.get("creationTimestamp", ""), metadata.get("uid", "")

    others = [one for one in rivals if not marks.is_unmanaged(one)]
    best = min((resource, *others), key=age)
    return None if best is resource else best


# -- what meta has ---------------------------------------------------------------------------------------------


def settle(seen: Seen, wish: Wish, own_status: Mapping[str, Any], now_ms: int) -> Plan:
    """The pass of an object that nothing stands against. ``own_status`` is of its kind."""
    assert seen.meta is not None
    row = seen.meta.get(wish.path)
    wrong = differences(wish, row) if row is not None else ()
    if wish.management == "Observe":
        return _observed(seen, wish, row, wrong, own_status)
    hold = _hold(seen, wish)
    if row is None:
        return _declared(hold, wish, Event("Created", f"{wish.title} is declared at meta"))
    if wish.management == "CreateOnly" or (not wrong and is_own(wish, row)):
        said = (
            synced("DriftReported", _listed(wish, wrong)) if wrong else synced("InSync", "as the spec says")
        )
        return Plan(steps=hold, conditions=(_fine(seen), said), status={**kept(seen), **own_status})
    if not is_own(wish, row):
        sentence = f"{wish.title} was there already, and is as the spec says from now on"
        return _declared(hold, wish, Event("Adopted", sentence))
    if was_settled(seen.resource):
        return _reverted(seen, hold, wish, wrong, own_status, now_ms)
    return _declared(hold, wish, Event("Updated", _listed(wish, wrong)))


def _observed(
    seen: Seen, wish: Wish, row: Mapping[str, Any] | None, wrong: tuple[str, ...], own: Mapping[str, Any]
) -> Plan:
    steps = released(seen)
    if row is None:
        said = ready(
            "ReferenceNotFound", f"meta has no {wish.title}, and managementPolicy Observe makes none"
        )
        return Plan(steps=steps, conditions=(said,), status=kept(seen), again_ms=MISSING_MS)
    report = synced("DriftReported", _listed(wish, wrong)) if wrong else synced("InSync", "as the spec says")
    return Plan(steps=steps, conditions=(_fine(seen), report), status={**kept(seen), **own})


def _declared(hold: tuple[Step, ...], wish: Wish, event: Event) -> Plan:
    """Ask, and look again: only what meta shows then is said of it."""
    return Plan(
        steps=(*hold, Ask("POST", "/v1/declarations", wish.declaration())), events=(event,), again_ms=0
    )


def _reverted(
    seen: Seen,
    hold: tuple[Step, ...],
    wish: Wish,
    wrong: tuple[str, ...],
    own: Mapping[str, Any],
    now_ms: int,
) -> Plan:
    """Somebody changed it past its object. The status counts it: that is how a person sees that two quarrel."""
    drift = drift_of(seen.resource, wrong, now_ms)
    sentence = f"changed past this object, and changed back: {', '.join(wrong)}"
    plan = _declared(hold, wish, Event("DriftReverted", f"{wish.title} was {sentence}", warning=True))
    said = (_fine(seen), synced("DriftReverted", sentence))
    return replace(plan, conditions=said, status={**kept(seen), **own, "drift": drift})


def drift_of(resource: Manifest, wrong: tuple[str, ...], now_ms: int) -> dict[str, Any]:
    """What a status says of it."""
    former = marks.part(resource, "status", "drift")
    return {
        "count": former.get("count", 0) + 1,
        "fields": list(wrong[:64]),
        "lastDetectedTime": marks.timestamp(now_ms),
    }


def was_settled(resource: Manifest) -> bool:
    """Whether this very spec has been made true before: what differs now was changed past its object."""
    said = marks.condition_of(resource, SYNCED)
    return said.get("status") == "True" and said.get("observedGeneration") == marks.metadata(resource).get(
        "generation"
    )


def _hold(seen: Seen, wish: Wish) -> tuple[Step, ...]:
    if wish.needs_finalizer == marks.is_held(seen.resource):
        return ()
    return (Hold(wish.needs_finalizer),)


def released(seen: Seen) -> tuple[Step, ...]:
    return (Hold(False),) if marks.is_held(seen.resource) else ()


def kept(seen: Seen) -> dict[str, Any]:
    """The status of its kind as it stands, but for conditions and generation, which are put together elsewhere."""
    return rest_of(marks.status(seen.resource))


def standing_of(seen: Seen, kind: str) -> tuple[Condition, ...]:
    """What stands there of a condition, if anything."""
    return tuple(one for one in standing(seen.resource) if one.type == kind)


def ready_as(seen: Seen) -> Condition:
    """Of what is as its spec says, and is made true by others."""
    if marks.spec(seen.resource).get("state") == "Suspended":
        return ready("Suspended", "as the spec says; nothing begins until state is Active again")
    return ready("Reconciled", "as the spec says")


def _fine(seen: Seen) -> Condition:
    if marks.spec(seen.resource).get("state") == "Suspended":
        return ready("Suspended", "as the spec says; consumers are given nothing until state is Active again")
    return ready("Reconciled", "as the spec says")


def _listed(wish: Wish, wrong: tuple[str, ...]) -> str:
    return (
        f"{wish.title} differs from the spec: {', '.join(wrong)}"
        if wrong
        else f"{wish.title} is declared anew"
    )
