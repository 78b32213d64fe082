"""Subjects and consumer groups: declared by people, or made by their first use where the policy allows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tidemill_meta.archives import archived_in, forget_marks
from tidemill_meta.asked import Asked, wrong
from tidemill_meta.beats import ClientBeat, Consumes
from tidemill_meta.errors import Denied
from tidemill_meta.moving import check_settled, fences_of, given_up, prepared
from tidemill_meta.registry import Draft, Registry, View
from tidemill_meta.routing import PARTITIONS_MAX, Site, default_route, expanded
from tidemill_meta.senses import Senses
from tidemill_meta.values import (
    Allocation,
    Broker,
    BrokerGroup,
    ConsumerGroupRecord,
    Passage,
    Removal,
    Route,
    SubjectRecord,
    broker_key,
    consumer_group_key,
)
from tidemill_meta.vanished import Vanished
from tidemill_wire.counted import counted
from tidemill_wire.declarations import ConsumerGroup, Declaration, Subject
from tidemill_wire.routes import PartitionSet, writable
from tidemill_wire.specs import Placement

EXPAND_FIELDS = frozenset({"partitions", "groups", "version"})


def declare(
    draft: Draft, senses: Senses, declarations: Iterable[Declaration], now_ms: int
) -> list[dict[str, str]]:
    """Keep what was declared, and say of each what it was to us. A subject gets its route with the first declaration or
    use, and keeps it.
    """
    declarations = list(declarations)
    rows = [_row_of(draft, one) for one in declarations]
    for declaration in declarations:
        if isinstance(declaration, Subject):
            known = draft.get(SubjectRecord, declaration.name)
            if known is None or known.declared != declaration:
                base = known or _made(draft, declaration.name, now_ms)
                draft.put(replace(base, declared=declaration))
            _place(draft, senses, declaration.name, declaration.spec.placement, now_ms)
    for declaration in declarations:
        if isinstance(declaration, ConsumerGroup):
            _declare_group(draft, senses, declaration, now_ms)
    return rows


def _row_of(draft: Draft, declaration: Declaration) -> dict[str, str]:
    """What becomes of an object by its declaration."""
    known: SubjectRecord | ConsumerGroupRecord | None
    row = {"kind": type(declaration).__name__, "name": declaration.name}
    if isinstance(declaration, Subject):
        known = draft.get(SubjectRecord, declaration.name)
    else:
        known = draft.get(ConsumerGroupRecord, consumer_group_key(declaration.subject, declaration.name))
        row["subject"] = declaration.subject
    became = "created" if known is None else "unchanged" if known.declared == declaration else "changed"
    return {**row, "became": became}


def _declare_group(draft: Draft, senses: Senses, group: ConsumerGroup, now_ms: int) -> None:
    if draft.get(SubjectRecord, group.subject) is None:
        _create(draft, senses, group.subject, now_ms)
    known = draft.get(ConsumerGroupRecord, consumer_group_key(group.subject, group.name))
    if known is None or known.declared != group:
        draft.put(ConsumerGroupRecord(group.subject, group.name, group.consumption, group))


def _place(draft: Draft, senses: Senses, subject: str, placement: Placement | None, now_ms: int) -> None:
    if draft.get(Route, subject) is None:
        count = senses.settings.route_groups
        sites = _emptied_sites(draft, senses, subject, now_ms)
        first = default_route(subject, sites, placement, count)
        route = Route(subject, (first,))
        if draft.remembers(
            Route.KIND, subject
        ):  # brokers may have fences of the time when it was there before
            number = next_fence(draft, subject)
            fences = tuple((one.key, number) for one in first.partitions)
            route = replace(route, fence=number, fences=fences)
        draft.put(route)


def _emptied_sites(draft: Draft, senses: Senses, subject: str, now_ms: int) -> list[Site]:
    """Where a subject may be placed. A broker group that has not heard that it was removed will empty it when it does,
    so it must not be sent what comes after: one that is there is waited for.
    """
    sites, removal = senses.sites(draft, now_ms), draft.get(Removal, subject)
    if removal is None:
        return list(sites)
    groups = [group for name in removal.groups if (group := draft.get(BrokerGroup, name)) is not None]
    keeping = {group.name for group in groups if senses.told(group) < removal.revision}
    late = [one.name for one in sites if one.open and one.name in keeping]
    if late:
        detail = f"subject {subject!r} was removed, and is not gone from {', '.join(late)} yet"
        raise Denied("not_gone", detail)
    return [one for one in sites if one.name not in keeping]


def _create(draft: Draft, senses: Senses, subject: str, now_ms: int) -> None:
    if draft.get(Removal, subject) is not None:
        raise Denied("unknown_subject", f"subject {subject!r} was removed, and no use makes it again")
    if not senses.settings.create_subjects:
        raise Denied("unknown_subject", f"there is no subject {subject!r}")
    draft.put(_made(draft, subject, now_ms))
    _place(draft, senses, subject, None, now_ms)


def lacking(view: View, beat: ClientBeat) -> bool:
    """Whether a client names a subject or group that is not there yet."""
    return any(view.get(Route, subject) is None for subject in beat.subjects) or any(
        (known := view.get(ConsumerGroupRecord, one.key)) is None or is_mistaken(known, one)
        for one in beat.consumes
    )


def is_mistaken(known: ConsumerGroupRecord, consumes: Consumes) -> bool:
    """Whether a group that nobody declared is in order, and was made as shared: by a consumer of a pattern, or by one
    that takes a group as it finds it. Brokers let nobody in who asks for it in another way than it was made for there.
    """
    return known.declared is None and known.consumption == "shared" and consumes.consumption == "exclusive"


def _made(draft: Draft, subject: str, now_ms: int) -> SubjectRecord:
    """By the clock, and behind its removal: what is told of one that was removed is not taken for this one's."""
    removal = draft.get(Removal, subject)
    return SubjectRecord(subject, None, made_ms=max(now_ms, removal.number + 1 if removal is not None else 0))


def use_subject(draft: Draft, senses: Senses, subject: str, now_ms: int) -> None:
    """A client names a subject."""
    known = draft.get(SubjectRecord, subject)
    if known is None:
        _create(draft, senses, subject, now_ms)
    else:
        _place(draft, senses, subject, known.declared.spec.placement if known.declared else None, now_ms)


def use_group(draft: Draft, senses: Senses, consumes: Consumes) -> None:
    """A client consumes with a group."""
    known = draft.get(ConsumerGroupRecord, consumes.key)
    if known is not None:
        if is_mistaken(known, consumes):
            draft.put(replace(known, consumption=consumes.of_group))
        return
    if draft.get(Removal, consumes.key) is not None:
        detail = f"group {consumes.group!r} of {consumes.subject!r} was removed, and no use makes it again"
        raise Denied("unknown_consumer_group", detail)
    if not senses.settings.create_groups:
        raise Denied(
            "unknown_consumer_group", f"there is no group {consumes.group!r} of {consumes.subject!r}"
        )
    draft.put(ConsumerGroupRecord(consumes.subject, consumes.group, consumes.of_group, None))


def expand(draft: Draft, senses: Senses, subject: str, asked: Asked, now_ms: int) -> Route:
    """More partitions; the version says which route the person was looking at. Of a strict subject order keys begin to
    move (``moving.py``), of another one they have moved.
    """
    record, route = find_subject(draft, subject)
    if asked.whole("version") != route.version:
        raise Denied(
            "conflict", f"the route of {subject} is at version {route.version}", {"version": route.version}
        )
    if asked.has("partitions") == asked.has("groups"):
        raise wrong("write either partitions, a number, or groups, a list of broker groups")
    more: int | tuple[str, ...] = asked.names("groups")
    if asked.has("partitions"):
        more = asked.whole("partitions", high=PARTITIONS_MAX) - len(route.current.partitions)
        if more <= 0:
            raise wrong(
                f"{subject} has {len(route.current.partitions)} partitions already: write a larger number"
            )
    placement = record.declared.spec.placement if record.declared else None
    for group in {one.group for one in route.current.partitions if one.ranges}:
        known = draft.get(BrokerGroup, group)
        if known is None or senses.state(known, now_ms) == "NRW":
            raise Denied("no_broker_group", f"nobody leads {group}, which could not let go of order keys")
    sites = _emptied_sites(draft, senses, subject, now_ms)
    to = expanded(subject, route.current, sites, placement, more, route.sets)
    return begin_move(draft, route, to)


def begin_move(draft: Draft, route: Route, to: PartitionSet) -> Route:
    """The next version of a route: at once where nobody counts on the order, else in two steps."""
    check_settled(route)
    if not is_strict(draft, route.subject):
        return draft.put(replace(route, sets=(*route.sets, to)))
    return draft.put(prepared(route, to, next_fence(draft, route.subject)))


def give_up_move(draft: Draft, subject: str) -> Route:
    """Order keys that are moving stay where they are."""
    _, route = find_subject(draft, subject)
    return draft.put(given_up(route, next_fence(draft, subject)))


def next_fence(draft: Draft, subject: str) -> int:
    """Versions of an entry go on when it is gone, so no fence of a subject has the number of another one. When the
    database was an old copy, brokers have said what numbers they know, and the route's own is above those.
    """
    route = draft.get(Route, subject)
    return max(draft.version(Route.KIND, subject), 0 if route is None else route.fence) + 1


def is_strict(view: View, subject: str) -> bool:
    """Whether a subject's messages with order keys are in order whatever happens."""
    record = view.get(SubjectRecord, subject)
    return record is None or record.declared is None or not record.declared.best_tried


def set_subject_state(draft: Draft, subject: str, asked: Asked) -> SubjectRecord:
    """What a subject takes, on all broker groups."""
    record, _ = find_subject(draft, subject)
    changed = replace(record, state=asked.state("state"))
    return record if changed == record else draft.put(changed)


def remove_subject(draft: Draft, senses: Senses, subject: str, now_ms: int, *, force: bool = False) -> None:
    """Remove a subject and its groups, here and at its brokers; ``force``: also one that clients use."""
    _, route = find_subject(draft, subject)
    if not force:
        check_unused(draft, senses, (subject, ""), now_ms)
    for group in [group for group in draft.all(ConsumerGroupRecord) if group.subject == subject]:
        _drop_group(draft, group.key)
    for removal in [one for one in draft.all(Removal) if one.name.startswith(f"{subject}/")]:
        draft.drop(Removal, removal.key)  # it goes with the subject, and comes with it again
    forget_marks(draft, subject)
    _note_removal(draft, subject, route, now_ms)
    draft.drop(Route, subject)
    draft.drop(SubjectRecord, subject)


def remove_group(
    draft: Draft, senses: Senses, names: tuple[str, str], now_ms: int, *, force: bool = False
) -> None:
    """Remove a consumer group of a subject, here and at its brokers; ``force``: also one that has consumers."""
    subject, group = names
    key = consumer_group_key(subject, group)
    if draft.get(ConsumerGroupRecord, key) is None:
        raise Denied("unknown_consumer_group", f"there is no group {group[:100]!r} of {subject[:100]!r}")
    if not force:
        check_unused(draft, senses, names, now_ms)
    _drop_group(draft, key)
    _note_removal(draft, key, find_subject(draft, subject)[1], now_ms)


def _drop_group(draft: Draft, key: str) -> None:
    for kind in (Allocation, Passage):
        if draft.get(kind, key) is not None:
            draft.drop(kind, key)
    draft.drop(ConsumerGroupRecord, key)


def _note_removal(draft: Draft, name: str, route: Route, now_ms: int) -> None:
    """Numbered by the clock: a meta that lost its database goes on above what brokers have heard."""
    known = draft.get(Removal, name) or Removal(name, 0, ())
    groups = {partition.group for one in route.sets for partition in one.partitions} | set(known.groups)
    number, revision = max(known.number + 1, now_ms), draft.stored.revision + 1
    draft.put(replace(known, number=number, groups=tuple(sorted(groups)), revision=revision))


def check_unused(view: View, senses: Senses, names: tuple[str, str], now_ms: int) -> None:
    """Whoever takes away what programs use, a subject or a group of it, shall know it. A delay service is no program:
    it asks for the routes of subjects to which it has brought something, or has something to bring.
    """
    subject, group = names
    within_ms = 2 * senses.settings.client_beat_ms
    clients = senses.clients
    there = [
        beat
        for key in clients.peers()
        if clients.present(key, within_ms, now_ms) and (beat := clients.beat(key))
        if not is_delay(view, beat.client)
    ]
    consumers = sum(
        one.subject == subject and group in {"", one.group} for beat in there for one in beat.consumes
    )
    producers = sum(subject in beat.produces for beat in there) if not group else 0
    if producers or consumers:
        named = f"group {group!r} of {subject!r}" if group else f"subject {subject!r}"
        said = [f"{counted(producers, 'producer')}"] * bool(producers)
        said += [f"{counted(consumers, 'consumer')}"] * bool(consumers)
        raise Denied("in_use", f"{named} has {' and '.join(said)}")


def is_delay(view: View, client: str) -> bool:
    """Whether a client is a delay service of the cluster, which is called as it is registered."""
    name = client.partition("-")[0]
    group = view.get(BrokerGroup, name)
    known = view.get(Broker, broker_key(name, client))
    return known is not None and group is not None and group.service == "delay"


def find_subject(view: View, subject: str) -> tuple[SubjectRecord, Route]:
    record, route = view.get(SubjectRecord, subject), view.get(Route, subject)
    if record is None or route is None:
        raise Denied("unknown_subject", f"there is no subject {subject[:100]!r}")
    return record, route


def takes(record: SubjectRecord) -> bool:
    """Whether a subject takes messages."""
    return writable(record.state) and record.emptying is None


def share_of(route: Route | None, group: str) -> tuple[int, int]:
    """How many of the partitions that take a subject's messages a broker group has, and how many there are. One that
    has none any more takes what is sent by an earlier route, and what is on its way, as if it had one.
    """
    partitions = () if route is None else route.current.partitions
    return max(1, sum(one.group == group for one in partitions)), max(1, len(partitions))


def vanished_since(registry: Registry, known: int) -> list[str]:
    """The pods that are gone, of which was said so after a revision."""
    changed_at = registry.changed_at
    return [one.pod for one in registry.all(Vanished) if changed_at[Vanished.KIND, one.pod] > known]


def later_of(registry: Registry, group: str) -> dict[str, Any]:
    """What a delay group is to know of all subjects: how far ahead those that say so let their messages be sent."""
    known = registry.get(BrokerGroup, group)
    if known is None or known.service != "delay":
        return {}
    declared = (one.declared for one in registry.all(SubjectRecord) if one.declared is not None)
    return {"later": [[one.name, one.later_seconds] for one in declared if one.later_seconds is not None]}


def told_to(registry: Registry, group: str, known: int) -> dict[str, Any]:
    """What a broker group is to have of its subjects: what changed after a revision, and all that is read-only."""
    here = [
        (subject, changed_at)
        for subject, changed_at in registry.told_at.items()
        if (route := registry.get(Route, subject)) is not None
        and any(partition.group == group for one in route.all_sets for partition in one.partitions)
    ]
    records = [registry.get(SubjectRecord, subject) for subject, _ in here]
    new = {subject for subject, changed_at in here if changed_at > known}
    groups = (one for one in registry.all(ConsumerGroupRecord) if one.subject in new) if new else ()
    declared = (
        *(one.declared for one in records if one is not None and one.name in new),
        *(one.declared for one in groups),
    )
    removed = [
        [one.name, one.number]
        for one in registry.all(Removal)
        if group in one.groups and registry.changed_at[Removal.KIND, one.key] > known
    ]
    return {
        **later_of(registry, group),
        "revision": registry.revision,
        "removed": removed,
        "vanished": vanished_since(registry, known),
        "declarations": [one.to_map() for one in declared if one is not None],
        "read_only": [one.name for one in records if one is not None and not takes(one)],
        "emptying": [one.name for one in records if one is not None and one.emptying is not None],
        **archived_in(registry, group, [one for one in records if one is not None]),
        "shares": [
            [one.name, *share_of(registry.get(Route, one.name), group)]
            for one in records
            if one is not None
            and one.declared is not None
            and (one.declared.rates or one.declared.in_flight_max)
        ],
        "fences": [
            row
            for subject in sorted(new)
            if (route := registry.get(Route, subject)) is not None
            for row in fences_of(route, group)
        ],
    }
