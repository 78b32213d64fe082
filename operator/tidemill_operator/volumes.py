"""Volumes that are to grow. Nothing here takes a volume away, and nothing needs a broker that runs: a full disk is when
one wants this most.

1. Claims that ask for less than the spec are told to ask for as much, where their storage class can do that. One that
   asks for more, because somebody else let it grow, is left as it is.
2. The StatefulSet's own template of claims cannot be changed. When all claims are as large, it is deleted without its
   pods (``orphan``) and made anew, and takes the same pods on. Their template is remembered meanwhile in a ConfigMap,
   so that nobody's pods are replaced for it.
3. A file system that does not grow while it is mounted waits for a new pod: that is for ``rollout.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill_operator.desired.around import config_map, metadata
from tidemill_operator.desired.groups import all_labels
from tidemill_operator.desired.wanted import Group
from tidemill_operator.desired.workloads import Chosen, claim_template, without_nulls
from tidemill_operator.kinds import CONFIG_MAP, STATEFUL_SET, STORAGE_CLASS
from tidemill_operator.marks import part
from tidemill_operator.names import deletion_of, identity
from tidemill_operator.observed import Observed, size_of
from tidemill_operator.steps import Apply, Condition, Event, Manifest, Seen, Step

TEMPLATE, NOTES = "template", "notes"


@dataclass(frozen=True, slots=True)
class Growth:
    """What is to be done about a group's volumes."""

    claims: tuple[Manifest, ...]
    """The StatefulSet's template of claims, as it can be applied now."""
    steps: tuple[Step, ...]
    recreate: Step | None
    """Instead of an apply of the StatefulSet."""
    condition: Condition
    status: Mapping[str, Any]
    events: tuple[Event, ...] = ()


def grow(seen: Seen, group: Group, observed: Observed, chosen: Chosen) -> Growth:
    """See the module."""
    wanted = size_of(group.storage.size)
    small, steps, fixed = enlarged(seen, observed.claims, group.storage.size)
    bound = [one for one in observed.claims if _is_bound(one)]
    growing = [one for one in bound if _capacity(one) < max(wanted, _requested(one))]
    made = [claim_template(group.storage, all_labels(group))]
    claims = fixed_claims(observed.workload) or tuple(made)
    recreate: Step | None = None
    if observed.workload is not None and not small and _requested(claims[0]) < wanted:
        recreate = _orphaned(seen, group, observed.workload, chosen)
    return Growth(
        claims,
        steps,
        recreate,
        _condition(group, growing, fixed),
        _status(group, bound),
        tuple(
            Event("VolumeResized", f"{one.manifest['metadata']['name']} is to be {group.storage.size}")
            for one in steps
        ),
    )


def enlarged(
    seen: Seen, claims: Sequence[Manifest], size: str
) -> tuple[list[Manifest], tuple[Apply, ...], list[str]]:
    """Claims that ask for less than ``size``, what is done about them, and the storage classes that cannot grow."""
    small = [one for one in claims if _requested(one) < size_of(size)]
    bound = [one for one in small if _is_bound(one)]
    fixed = sorted({_class_of(one) for one in bound if not _can_grow(seen, one)})
    return small, tuple(_grown(one, size) for one in bound if _class_of(one) not in fixed), fixed


def fixed_claims(workload: Manifest | None) -> tuple[Manifest, ...]:
    """The template of claims that a StatefulSet has, as it may be applied again: it cannot be changed."""
    there = workload["spec"].get("volumeClaimTemplates") or () if workload is not None else ()
    return tuple(without_nulls({key: one[key] for key in ("metadata", "spec")}) for one in there)


def _is_bound(claim: Manifest) -> bool:
    return bool(part(claim, "status").get("phase") == "Bound")


def _condition(group: Group, growing: list[Manifest], fixed: list[str]) -> Condition:
    if fixed:
        said = f"volumes of the storage class {', '.join(fixed)} do not grow: make a group with another, drain this one"
        return Condition("StorageResizing", "False", "StorageClassNotExpandable", said)
    if growing:
        said = f"{len(growing)} of its volumes are to be {group.storage.size}"
        return Condition("StorageResizing", "True", "Progressing", said)
    return Condition("StorageResizing", "False", "Reconciled", "all volumes have the size that is wanted")


def _status(group: Group, bound: list[Manifest]) -> dict[str, Any]:
    sizes = [str(part(one, "status", "capacity").get("storage", "0")) for one in bound]
    return {"requested": group.storage.size, "capacity": min(sizes, key=size_of, default="0")}


def _grown(claim: Manifest, size: str) -> Apply:
    return Apply({**identity(claim), "spec": {"resources": {"requests": {"storage": size}}}})


def _orphaned(seen: Seen, group: Group, workload: Manifest, chosen: Chosen) -> Step | None:
    """Only when what its pods are made of is surely remembered."""
    noted = remembered(seen, group)
    known = noted is not None and chosen.is_on(noted) and noted["spec"]["template"] == chosen.template
    return deletion_of(STATEFUL_SET, workload, orphan=True) if known else None


def reminder(group: Group, owner: Mapping[str, Any], chosen: Chosen) -> Manifest:
    """What pods are made of, for the moment in which there is no StatefulSet."""
    own = metadata(f"{group.workload}-template", group.namespace, all_labels(group), owner)
    data = {
        TEMPLATE: json.dumps(chosen.template, sort_keys=True),
        NOTES: json.dumps(dict(chosen.annotations), sort_keys=True),
    }
    return config_map(own, data)


def remembered(seen: Seen, group: Group) -> Manifest | None:
    """A workload as the reminder has it; None: there is no reminder."""
    for one in seen.of(CONFIG_MAP.kind):
        if one["metadata"]["name"] == f"{group.workload}-template":
            data: Mapping[str, str] = one.get("data") or {}
            template: Any = json.loads(data.get(TEMPLATE, "{}"))
            notes: Any = json.loads(data.get(NOTES, "{}"))
            return {"metadata": {"annotations": notes}, "spec": {"template": template}}
    return None


def _requested(claim: Manifest) -> int:
    return size_of(part(claim, "spec", "resources", "requests").get("storage", "0"))


def _capacity(claim: Manifest) -> int:
    return size_of(part(claim, "status", "capacity").get("storage", "0"))


def _class_of(claim: Manifest) -> str:
    return str(claim["spec"].get("storageClassName") or "")


def _can_grow(seen: Seen, claim: Manifest) -> bool:
    """Whether its class says so. Where the operator may not see storage classes, the API server says it."""
    name, classes = _class_of(claim), seen.of(STORAGE_CLASS.kind)
    if not name:
        return False
    return not classes or any(
        one["metadata"]["name"] == name and one.get("allowVolumeExpansion") is True for one in classes
    )
