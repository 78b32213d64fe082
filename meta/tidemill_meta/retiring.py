"""A broker group that is to go: first it is only read, then nothing lies on it any more, then it is nobody's business.

| state | event | becomes |
|---|---|---|
| in use | drained | draining: read, no new partitions; order keys go elsewhere (``moving.py``) |
| draining | in use again | in use |
| draining | retired, when all is consumed | retired: it takes nothing, and no route names it; former versions do |
| retired | its last broker is forgotten | gone |

Whether all is consumed only its brokers know; who retires it has asked them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidemill_meta.asked import Asked
from tidemill_meta.brokers import conflict, find_group
from tidemill_meta.errors import Denied
from tidemill_meta.moving import check_settled, closed, given_up, prepared
from tidemill_meta.registry import Draft
from tidemill_meta.routing import Site, expanded, vacated, withdrawn, without
from tidemill_meta.senses import Senses
from tidemill_meta.subjects import begin_move, is_strict, next_fence
from tidemill_meta.values import BrokerGroup, Route, SubjectRecord
from tidemill_wire.routes import Partition
from tidemill_wire.specs import Placement


def drain(draft: Draft, senses: Senses, name: str, now_ms: int) -> tuple[BrokerGroup, int]:
    """Begin to empty a group; it as it is then, and how many subjects were given a place elsewhere."""
    group = find_group(draft, name)
    sites = [one for one in senses.sites(draft, now_ms) if one.name != name]
    open_sites = {one.name for one in sites if one.open}
    moved = 0
    for route in list(draft.all(Route)):
        groups = {one.group for one in route.current.partitions}
        strict = is_strict(draft, route.subject)
        if _has_keys(route, name) if strict else name in groups and not groups & open_sites:
            placement = _placement(draft, route.subject)
            try:
                to = (
                    vacated(route.subject, route.current, sites, placement, name, route.sets) if strict
                    else expanded(route.subject, route.current, sites, placement, 1, route.sets)
                )  # fmt: skip
            except Denied as error:
                detail = f"{route.subject} could be written nowhere else ({error.detail})"
                raise Denied(error.kind.code, detail) from None
            begin_move(draft, route, to)
            moved += 1
    return group if group.draining else draft.put(replace(group, draining=True)), moved


def retire(draft: Draft, senses: Senses, name: str, now_ms: int) -> tuple[BrokerGroup, int]:
    """Take a drained group out of all routes; it as it is then, and of how many subjects."""
    group = find_group(draft, name)
    if group.service == "delay":
        detail = f"{name} keeps messages for later, which only itself can tell"
        raise Denied("in_use", f"{detail}: drain it, wait until none is left, stop it and forget it")
    if not group.draining:
        raise conflict(group, f"{name} is in use: drain it first, and wait until all is consumed")
    sites: list[Site] = [one for one in senses.sites(draft, now_ms) if one.name != name]
    moved = 0
    for route in list(draft.all(Route)):
        if any(one.group == name for one in route.current.partitions):
            placement = _placement(draft, route.subject)
            if is_strict(draft, route.subject):
                settled = _without_keys(draft, senses, route, sites, group, now_ms)
                left = without(settled.current, name)
            else:
                # Nobody counts on the order any more: a move that began when somebody did is none.
                moves = route.move is not None
                settled = given_up(route, next_fence(draft, route.subject)) if moves else route
                left = withdrawn(route.subject, route.current, sites, placement, name)
            draft.put(replace(settled, sets=(*settled.sets, left)))
            moved += 1
    return group if group.retired else draft.put(replace(group, state="NRW", retired=True)), moved


def _has_keys(route: Route, group: str) -> bool:
    """Whether order keys lie on a group, and are not about to leave it."""
    if route.move is None:
        return any(one.group == group and one.ranges for one in route.current.partitions)
    if any(one.group == group and one.ranges for one in route.move.to.partitions):
        check_settled(route)
    return False


def _without_keys(
    draft: Draft, senses: Senses, route: Route, sites: list[Site], group: BrokerGroup, now_ms: int
) -> Route:
    """The route when order keys have left a group. One that nobody leads cannot say that it closed, and takes nothing:
    who retires it gives up what lies there.
    """
    leaving = [one for one in route.current.partitions if one.group == group.name and one.ranges]
    if not leaving:
        check_settled(route)
        return route
    if senses.state(group, now_ms) != "NRW":
        raise Denied("in_use", f"order keys of {route.subject} have not left {group.name}")
    if route.move is not None:
        # Of another kind, perhaps, as to more partitions: then what it leaves on the group goes in a move of its own.
        route = _closed(route, leaving)
        check_settled(route)
        leaving = [one for one in route.current.partitions if one.group == group.name and one.ranges]
    if leaving:
        placement = _placement(draft, route.subject)
        to = vacated(route.subject, route.current, sites, placement, group.name, route.sets)
        route = _closed(prepared(route, to, next_fence(draft, route.subject)), leaving)
        check_settled(route)
    return route


def _closed(route: Route, partitions: Iterable[Partition]) -> Route:
    """As if they had said it themselves."""
    for one in partitions:
        route = closed(route, one.key, dict(route.fences).get(one.key, 0))
    return route


def parse_nothing(body: object) -> None:
    """A request that says all in its path."""
    Asked(body, frozenset())


def _placement(draft: Draft, subject: str) -> Placement | None:
    record = draft.get(SubjectRecord, subject)
    return record.declared.spec.placement if record is not None and record.declared is not None else None
