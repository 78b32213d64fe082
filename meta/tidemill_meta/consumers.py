"""Consumers in order: who is there, what they have applied, and the allocations that follow from it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from tidemill_meta.allocation import doubted, granted, rebalanced, released
from tidemill_meta.beats import ClientBeat
from tidemill_meta.passages import closed_to
from tidemill_meta.registry import Draft, View
from tidemill_meta.senses import Senses
from tidemill_meta.values import NOBODY, Allocation, ConsumerGroupRecord, Route


@dataclass(slots=True)
class Seen:
    """The consumers of one group, as they are heard."""

    here: set[str] = field(default_factory=set[str])
    over: set[str] = field(default_factory=set[str])
    applied: dict[str, int] = field(default_factory=dict[str, int])
    alone: bool = False
    """One of them consumes exclusively."""


def member(client: str, consumer: str) -> str:
    """A consumer is named together with its process: the same name in another process is somebody else."""
    return f"{client} {consumer}"


def client_of(member_name: str) -> str:
    return member_name.partition(" ")[0]


def seen_by_group(
    view: View, senses: Senses, now_ms: int, only: Collection[str] | None = None
) -> dict[str, Seen]:
    """All consumers in order that are here, by group; ``only``: of these groups. Those that take a group as they find
    it count only where nobody else is: they hear of no allocation, and a broker that knows of one refuses them.
    """
    found: dict[str, Seen] = {}
    unversed: dict[str, set[str]] = {}
    for beat in senses.clients.here(senses.session_ms, now_ms):
        for consumes in beat.consumes:
            key = consumes.key
            if (only is not None and key not in only) or not is_ordered(view, key):
                continue
            seen = found.setdefault(key, Seen())
            name = member(beat.client, consumes.consumer)
            if consumes.consumption == "shared":
                unversed.setdefault(key, set()).add(name)
                continue
            seen.here.add(name)
            seen.applied[name] = consumes.allocation
            seen.alone = seen.alone or consumes.consumption == "exclusive"
    for key, names in unversed.items():
        found[key].here |= set() if found[key].here else names
    return found


def is_ordered(view: View, key: str) -> bool:
    group = view.get(ConsumerGroupRecord, key)
    return group is not None and group.consumption == "ordered"


def judge_allocations(draft: Draft, senses: Senses, now_ms: int, only: Collection[str] | None = None) -> None:
    """Allocations as they have to be; ``only``: of these groups."""
    by_group = seen_by_group(draft, senses, now_ms, only)
    keys = only if only is not None else {one.key for one in draft.all(Allocation)} | set(by_group)
    for key in sorted(keys):
        changed = _judged(draft, senses, key, by_group.get(key, Seen()), now_ms)
        if changed is not None:
            draft.put(changed)


def _judged(draft: Draft, senses: Senses, key: str, seen: Seen, now_ms: int) -> Allocation | None:
    """The allocation that is to be stored; ``None``: none, or the one that is."""
    group = draft.get(ConsumerGroupRecord, key)
    if group is None:
        return None
    route = draft.get(Route, group.subject)
    known = draft.get(Allocation, key) or Allocation(group.subject, group.name)
    if route is None:
        return None
    heard = set(seen.here)
    _look_for_others(known, senses, seen, now_ms)
    # Whoever is silent for a moment, perhaps all of them, does not change what the group is.
    alone = seen.alone or (known.alone and (not heard or seen.here != heard))
    partitions = [partition.key for partition in route.current.partitions]
    settled = [one for one in known.formers if senses.known_to_all((key, one), now_ms)]
    over = {one for one in settled if one.consumer in seen.over}
    changed = rebalanced(released(known, seen.applied, over), partitions, seen.here, alone=alone)
    if not known.version and draft.stored.began and not senses.promises_are_over(now_ms):
        changed = doubted(changed, partitions, draft.version(Allocation.KIND, key) + 1)
    return None if changed == known else changed


def _look_for_others(known: Allocation, senses: Senses, seen: Seen, now_ms: int) -> None:
    """Owners and formers that do not consume now: is their time over, or is it not known?

    Who was silent for a while and is not surely over loses what it has, and nobody else is granted it yet.
    """
    names = {owner for _, owner in known.owners} | {one.consumer for one in known.formers}
    if NOBODY in names and senses.promises_are_over(now_ms):
        seen.over.add(NOBODY)
    for name in names - seen.here - {NOBODY}:
        client = client_of(name)
        if senses.clients.present(client, senses.session_ms, now_ms):
            seen.over.add(name)  # its process is there, and says that it consumes this no more
        elif senses.clients.gone(client, senses.settings.authorisation_ms, now_ms):
            seen.over.add(name)
        elif not senses.clients.gone(client, senses.session_ms, now_ms):
            seen.here.add(name)


def grants_of(view: View, senses: Senses, beat: ClientBeat, now_ms: int) -> Iterator[dict[str, object]]:
    """What a heartbeat of a client is answered for each of its consumers in order."""
    left_ms = senses.clients.lease_left(beat.client, senses.settings.authorisation_ms, now_ms)
    for consumes in beat.consumes:
        group = view.get(ConsumerGroupRecord, consumes.key)
        row: dict[str, object] = {
            "subject": consumes.subject,
            "group": consumes.group,
            "consumer": consumes.consumer,
            "strategy": "shared" if group is None or group.consumption == "shared" else "exclusive",
        }
        if group is not None and group.consumption == "ordered":
            allocation = view.get(Allocation, consumes.key) or Allocation(consumes.subject, consumes.group)
            name = member(beat.client, consumes.consumer)
            closed = closed_to(view, consumes.subject, consumes.group)
            row |= {
                "allocation": allocation.version,
                "partitions": [one for one in granted(allocation, name) if one not in closed],
                "authorised_ms": left_ms,
            }
        yield row


def is_unsettled(view: View, beat: ClientBeat) -> bool:
    """Whether one of its consumers is to have partitions that it was not granted yet."""
    for consumes in beat.consumes:
        if not is_ordered(view, consumes.key):
            continue
        allocation = view.get(Allocation, consumes.key) or Allocation(consumes.subject, consumes.group)
        name = member(beat.client, consumes.consumer)
        owners = [owner for _, owner in allocation.owners]
        mine = {partition for partition, owner in allocation.owners if owner == name}
        closed = closed_to(view, consumes.subject, consumes.group)
        if mine - closed - set(granted(allocation, name)):
            return True
        spare = not owners or (len(set(owners)) < len(owners) and not allocation.alone)
        if name not in owners and spare:
            return True  # it has just come, and the next judgement gives it some
    return False
