"""Subject: an object in Kubernetes, and a subject at meta that is as it says. ``declared.py`` has the states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill_operator import declared, marks
from tidemill_operator.declared import Wish, told_spec
from tidemill_operator.kinds import SUBJECT
from tidemill_operator.steps import Manifest, Plan, Seen
from tidemill_wire.declarations import ManifestError, Subject, parse_manifest


def plan(seen: Seen, now_ms: int) -> Plan:
    """The next steps for a Subject."""
    resource = seen.resource
    try:
        wish = wish_of(resource)
    except ManifestError as error:
        return (
            declared.deletion(seen, None, ()) if marks.goes(resource) else declared.invalid(seen, str(error))
        )
    rivals = tuple(one for one in seen.objects if one.get("kind") == SUBJECT.kind and one is not resource)
    if marks.goes(resource):
        return declared.deletion(seen, wish, rivals)
    if marks.is_paused(resource):
        return declared.paused(seen)
    if marks.is_unmanaged(resource):
        return declared.unmanaged(seen)
    if seen.cluster is None or marks.goes(seen.cluster):
        return declared.without_cluster(seen)
    winner = declared.oldest(resource, rivals)
    if winner is not None:
        return declared.conflicting(seen, winner, wish.title)
    if seen.meta is None:
        return declared.silent(seen)
    return declared.settle(seen, wish, _status(resource, seen.meta.get(wish.path)), now_ms)


def asks(resource: Manifest, _objects: tuple[Manifest, ...] = ()) -> tuple[str, ...]:
    """The paths at meta that a plan wants to see."""
    return (path_of(name_of(resource)),)


def name_of(resource: Manifest) -> str:
    return str(marks.spec(resource).get("subjectName", marks.metadata(resource)["name"]))


def path_of(name: str) -> str:
    return f"/v1/subjects/{name}"


def wish_of(resource: Manifest) -> Wish:
    """What a Subject wants; ``ManifestError`` when this version of the operator cannot read it."""
    subject = parse_manifest(bare(resource))
    assert isinstance(subject, Subject)
    spec = subject.spec
    return Wish(
        resource,
        f"subject {subject.name}",
        path_of(subject.name),
        told_spec(spec.to_map()),
        spec.deletion_policy,  # type: ignore[arg-type]  # a Choice has its values proven
        spec.management_policy,  # type: ignore[arg-type]
    )


def bare(resource: Manifest) -> dict[str, Any]:
    """The manifest as people write it: what others noted in its metadata is none of a declaration's business."""
    metadata = marks.metadata(resource)
    names = {name: metadata[name] for name in ("name", "namespace") if name in metadata}
    return {
        "apiVersion": resource["apiVersion"],
        "kind": resource["kind"],
        "metadata": names,
        "spec": dict(marks.spec(resource)),
    }


def _status(resource: Manifest, row: Mapping[str, Any] | None) -> dict[str, Any]:
    status: dict[str, Any] = {"subjectName": name_of(resource)}
    route = row.get("route") if row is not None else None
    if route:
        status["brokerGroups"] = sorted({str(one["group"]) for one in route["partitions"]})
        status["routeVersion"] = str(route["version"])
    return status
