"""ConsumerGroup: a group at meta that is as its object says, and what is told of it. ``declared.py`` has the states.

A group waits until meta has its subject: declared before, it would make a subject of its own, with a route for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidemill_operator import declared, marks, subjects
from tidemill_operator.autoscaling import bucket, scaled_object
from tidemill_operator.conditions import RECONCILING
from tidemill_operator.declared import Wish, bare, told_spec
from tidemill_operator.kinds import CONSUMER_GROUP, SCALED_OBJECT, SUBJECT
from tidemill_operator.seeking import NOTED, SeekCommand, SeekError, hindrance, is_obeyed, parse_seek
from tidemill_operator.steps import (
    Apply,
    Condition,
    Consumed,
    Delete,
    Event,
    Manifest,
    Plan,
    Reference,
    Seek,
    Seen,
    Step,
)
from tidemill_wire.declarations import ConsumerGroup, ManifestError, parse_manifest

SUBJECT_MS = 1_000
SEEK_MS = 5_000
SAMPLE_MS = 60_000
"""The status says how much waits at most so often, and only when that is in another bucket."""


def plan(seen: Seen, now_ms: int) -> Plan:
    """The next steps for a ConsumerGroup."""
    resource = seen.resource
    subject = subject_of(resource, seen.objects)
    try:
        wish = wish_of(resource, subject or "unknown")
    except ManifestError as error:
        return declared.unreadable(seen, str(error))
    rivals = _rivals(seen, subject)
    if marks.goes(resource):
        # Of a group whose Subject object is gone nobody knows the subject but its own status.
        told = subject or marks.status(resource).get("subjectName", "")
        return declared.deletion(seen, wish_of(resource, told) if told else None, rivals)
    held_up = declared.held_up(seen)
    if held_up is not None:
        return held_up
    if subject is None:
        name = marks.spec(resource)["subjectRef"]["name"]
        sentence = f"there is no Subject {name} in this namespace: apply it, or name another"
        return declared.waiting(seen, "ReferenceNotFound", sentence)
    winner = declared.oldest(resource, rivals)
    if winner is not None:
        return declared.conflicting(seen, winner, wish.title)
    if seen.meta is None:
        return declared.silent(seen)
    if seen.meta.get(subjects.path_of(subject)) is None:
        return _without_subject(seen, subject)
    settled = declared.settle(seen, wish, _status(seen, subject, now_ms), now_ms)
    return _also(seen, settled, subject, now_ms)


def asks(resource: Manifest, objects: tuple[Manifest, ...] = ()) -> tuple[str, ...]:
    """The paths at meta that a plan wants to see."""
    subject = subject_of(resource, objects) or marks.status(resource).get("subjectName")
    return (subjects.path_of(subject), path_of(subject, name_of(resource))) if subject else ()


def name_of(resource: Manifest) -> str:
    return str(marks.spec(resource).get("groupName", marks.metadata(resource)["name"]))


def path_of(subject: str, group: str) -> str:
    return f"{subjects.path_of(subject)}/groups/{group}"


def subject_of(resource: Manifest, objects: tuple[Manifest, ...]) -> str | None:
    """The subject's name; None when the Subject that is referred to is not there."""
    reference = marks.spec(resource).get("subjectRef")
    if reference is None:
        return marks.spec(resource).get("subjectName")
    place = (marks.metadata(resource).get("namespace"), reference.get("name"))
    referred = (
        one
        for one in objects
        if one.get("kind") == SUBJECT.kind
        and (marks.metadata(one).get("namespace"), marks.metadata(one)["name"]) == place
    )
    return next(map(subjects.name_of, referred), None)


def wish_of(resource: Manifest, subject: str) -> Wish:
    """What a ConsumerGroup wants; ``ManifestError`` when this version of the operator cannot read it."""
    group = parse_manifest(bare(resource, marks.spec(resource)))
    assert isinstance(group, ConsumerGroup)
    spec = {
        name: value
        for name, value in group.spec.to_map().items()
        if name not in {"subjectRef", "subjectName"}
    }
    return Wish(
        resource,
        f"group {group.name} of {subject}",
        path_of(subject, group.name),
        {**told_spec(spec), "subjectName": subject},
        group.spec.deletion_policy,  # type: ignore[arg-type]  # a Choice has its values proven
    )


def _rivals(seen: Seen, subject: str | None) -> tuple[Manifest, ...]:
    """Other objects for the same group of the same subject, whichever way they name it."""
    name, cluster = name_of(seen.resource), marks.cluster_of(seen.resource)
    return tuple(
        one
        for one in seen.objects
        if one.get("kind") == CONSUMER_GROUP.kind
        and one is not seen.resource
        and (name_of(one), marks.cluster_of(one)) == (name, cluster)
        and subject_of(one, seen.objects) == subject
    )


def _without_subject(seen: Seen, subject: str) -> Plan:
    if "subjectRef" in marks.spec(seen.resource):
        return declared.waiting(seen, "Progressing", f"waits until meta has subject {subject}", SUBJECT_MS)
    sentence = (
        f"meta has no subject {subject}: apply a Subject of that name, or let a program send to it first"
    )
    return declared.waiting(seen, "ReferenceNotFound", sentence)


# -- what is said ----------------------------------------------------------------------------------------------


def _status(seen: Seen, subject: str, now_ms: int) -> dict[str, Any]:
    standing = marks.status(seen.resource)
    said: dict[str, Any] = {"groupName": name_of(seen.resource), "subjectName": subject}
    lag = seen.lag
    if lag is None or lag.get("lag") is None:
        return said
    sampled_ms = marks.moment(marks.part(standing, "lag").get("sampledAt"))
    if sampled_ms is not None and now_ms - sampled_ms < SAMPLE_MS:
        return said
    messages, consumers = str(bucket(lag["lag"])), bucket(lag.get("consumers") or 0)
    if marks.part(standing, "lag").get("messages") == messages and standing.get("consumers") == consumers:
        return said
    return {
        **said,
        "consumers": consumers,
        "lag": {"messages": messages, "sampledAt": marks.timestamp(now_ms)},
    }


# -- beside the declaration ------------------------------------------------------------------------------------


def _also(seen: Seen, settled: Plan, subject: str, now_ms: int) -> Plan:
    """What a group wants beside being declared, once it is."""
    if not settled.conditions or settled.again_ms is not None:
        return settled
    settled = replace(settled, steps=(*settled.steps, *_scaler(seen)))
    written = marks.command(seen.resource, marks.SEEK)
    if written is None:
        return settled
    try:
        command = parse_seek(written)
    except SeekError as error:
        return replace(
            settled,
            steps=(*settled.steps, Consumed(marks.SEEK)),
            events=(*settled.events, Event("SeekRefused", str(error), warning=True)),
        )
    if is_obeyed(seen.resource, command):
        return replace(settled, steps=(*settled.steps, Consumed(marks.SEEK)))
    why = hindrance(seen.resource, command, seen.lag)
    if why:
        said = Condition(RECONCILING, "True", "SeekWaits", f"the seek {command.request_id} waits: {why}")
        return replace(settled, conditions=(*settled.conditions, said), again_ms=SEEK_MS)
    return _sought(seen, settled, command, subject, now_ms)


def _sought(seen: Seen, settled: Plan, command: SeekCommand, subject: str, now_ms: int) -> Plan:
    name = name_of(seen.resource)
    done: Mapping[str, Any] = {
        "requestId": command.request_id, "to": command.place, "time": marks.timestamp(now_ms)
    }  # fmt: skip
    sentence = f"group {name} of {subject} goes on at {command.place} (request {command.request_id})"
    return replace(
        settled,
        steps=(*settled.steps, Seek(subject, name, command.to)),
        status={**settled.status, NOTED: done},
        events=(*settled.events, Event("SeekDone", sentence)),
        again_ms=0,
    )


def _scaler(seen: Seen) -> tuple[Step, ...]:
    wanted = marks.part(seen.resource, "spec", "autoscaling")
    if wanted.get("mode") == "Keda":
        ready = SCALED_OBJECT.full in seen.served and seen.scaler
        return (Apply(scaled_object(seen.resource, seen.scaler)),) if ready else ()
    own = marks.metadata(seen.resource).get("uid")
    scalers = (marks.metadata(one) for one in seen.of(SCALED_OBJECT.kind))
    return tuple(
        Delete(
            Reference(SCALED_OBJECT.api_version, SCALED_OBJECT.kind, metadata["namespace"], metadata["name"]),
            metadata["uid"],
        )
        for metadata in scalers
        if any(owner.get("uid") == own for owner in marks.rows(metadata, "ownerReferences"))
    )
