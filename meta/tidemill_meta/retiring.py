"""A broker group that is to go: first it is only read, then nothing lies on it any more, then it is nobody's business.

| state | event | becomes |
|---|---|---|
| in use | drained | draining: read, no new partitions; subjects that nobody could write any more get one elsewhere |
| draining | in use again | in use |
| draining | retired, when all is consumed | retired: it takes nothing, and no route names it; former versions do |
| retired | its last broker is forgotten | gone |

Whether all is consumed only its brokers know; who retires it has asked them.
"""

from __future__ import annotations

from dataclasses import replace

from tidemill_meta.asked import Asked
from tidemill_meta.brokers import conflict, find_group
from tidemill_meta.errors import Denied
from tidemill_meta.registry import Draft
from tidemill_meta.routing import Site, expanded, withdrawn
from tidemill_meta.senses import Senses
from tidemill_meta.values import BrokerGroup, Route, SubjectRecord
from tidemill_wire.specs import Placement

DRAIN_FIELDS = RETIRE_FIELDS = frozenset[str]()


def drain(draft: Draft, senses: Senses, name: str, now_ms: int) -> tuple[BrokerGroup, int]:
    """Begin to empty a group; it as it is then, and how many subjects were given a place elsewhere."""
    group = find_group(draft, name)
    sites = [one for one in senses.sites(draft, now_ms) if one.name != name]
    open_sites = {one.name for one in sites if one.open}
    moved = 0
    for route in list(draft.all(Route)):
        groups = {one.group for one in route.current.partitions}
        if name in groups and not groups & open_sites:
            placement = _placement(draft, route.subject)
            try:
                extended = expanded(route.subject, route.current, sites, placement, 1)
            except Denied as error:
                detail = f"{route.subject} could be written nowhere else ({error.detail})"
                raise Denied(error.kind.code, detail) from None
            draft.put(replace(route, sets=(*route.sets, extended)))
            moved += 1
    return group if group.draining else draft.put(replace(group, draining=True)), moved


def retire(draft: Draft, senses: Senses, name: str, now_ms: int) -> tuple[BrokerGroup, int]:
    """Take a drained group out of all routes; it as it is then, and of how many subjects."""
    group = find_group(draft, name)
    if not group.draining:
        raise conflict(group, f"{name} is in use: drain it first, and wait until all is consumed")
    sites: list[Site] = [one for one in senses.sites(draft, now_ms) if one.name != name]
    moved = 0
    for route in list(draft.all(Route)):
        if any(one.group == name for one in route.current.partitions):
            left = withdrawn(route.subject, route.current, sites, _placement(draft, route.subject), name)
            draft.put(replace(route, sets=(*route.sets, left)))
            moved += 1
    return group if group.retired else draft.put(replace(group, state="NRW", retired=True)), moved


def parse_nothing(body: object) -> None:
    """A request that says all in its path."""
    Asked(body, DRAIN_FIELDS)


def _placement(draft: Draft, subject: str) -> Placement | None:
    record = draft.get(SubjectRecord, subject)
    return record.declared.spec.placement if record is not None and record.declared is not None else None
