"""Subject: an object in Kubernetes, and a subject at meta that is as it says. ``declared.py`` has the states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill_operator import declared, marks
from tidemill_operator.declared import Wish, bare, told_spec
from tidemill_operator.kinds import SUBJECT
from tidemill_operator.steps import Manifest, Plan, Seen
from tidemill_wire.declarations import ManifestError, Subject, parse_manifest


def plan(seen: Seen, now_ms: int) -> Plan:
    """The next steps for a Subject."""
    resource = seen.resource
    try:
        wish = wish_of(resource)
    except ManifestError as error:
        return declared.unreadable(seen, str(error))
    rivals = tuple(one for one in seen.objects if one.get("kind") == SUBJECT.kind and one is not resource)
    if marks.goes(resource):
        return declared.deletion(seen, wish, rivals)
    held_up = declared.held_up(seen)
    if held_up is not None:
        return held_up
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
    subject = parse_manifest(bare(resource, marks.spec(resource)))
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


def _status(resource: Manifest, row: Mapping[str, Any] | None) -> dict[str, Any]:
    status: dict[str, Any] = {"subjectName": name_of(resource)}
    route = row.get("route") if row is not None else None
    if route:
        status["brokerGroups"] = sorted({str(one["group"]) for one in route["partitions"]})
        status["routeVersion"] = str(route["version"])
    return status
