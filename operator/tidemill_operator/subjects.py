"""Subject: an object in Kubernetes, and a subject at meta that is as it says. ``declared.py`` has the states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidemill_operator import declared, marks
from tidemill_operator.conditions import PLACED
from tidemill_operator.declared import Wish, bare, told_spec
from tidemill_operator.kinds import SUBJECT
from tidemill_operator.steps import Condition, Manifest, Plan, Seen
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
    row = seen.meta.get(wish.path)
    settled = declared.settle(seen, wish, _status(resource, row), now_ms)
    if not settled.conditions:
        return settled
    return replace(settled, conditions=(*settled.conditions, *_placed(resource, row)))


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


def _placed(resource: Manifest, row: Mapping[str, Any] | None) -> tuple[Condition, ...]:
    """Whether it lies where its spec says. It is placed once, and grows when a person says so: what was sent stays
    where it is, and to spread a subject in order takes its order keys elsewhere.
    """
    placement = marks.part(resource, "spec", "placement")
    there = set(_groups_of(row))
    if not placement or not there:
        return ()
    wanted, least = set(placement.get("brokerGroups", ())), placement.get("minBrokerGroups", 1)
    name, lies = name_of(resource), f"it lies on {', '.join(sorted(there))}"
    if missing := sorted(wanted - there):
        said = (
            f"{lies}, and not on {', '.join(missing)}: `tidemill expand {name} --to {' --to '.join(missing)}`"
        )
    elif besides := sorted(there - wanted if wanted else ()):
        said = f"{lies}, and {', '.join(besides)} is not named: drain it, or name it"
    elif len(there) < least:
        said = f"{lies}, and minBrokerGroups is {least}: `tidemill expand {name} --partitions {least}`"
    else:
        return (Condition(PLACED, "True", "Reconciled", "it lies where the spec says"),)
    return (Condition(PLACED, "False", "Misplaced", said),)


def _groups_of(row: Mapping[str, Any] | None) -> list[str]:
    """The broker groups of its route."""
    route = row.get("route") if row is not None else None
    return sorted({str(one["group"]) for one in route["partitions"]}) if route else []


def _status(resource: Manifest, row: Mapping[str, Any] | None) -> dict[str, Any]:
    status: dict[str, Any] = {"subjectName": name_of(resource)}
    route = row.get("route") if row is not None else None
    if route:
        status["brokerGroups"] = _groups_of(row)
        status["routeVersion"] = str(route["version"])
    return status
