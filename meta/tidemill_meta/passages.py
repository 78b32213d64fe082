"""What brokers say of fences: which partitions have closed, and which groups have settled what lay before."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidemill_meta.asked import Asked
from tidemill_meta.moving import closed, shut
from tidemill_meta.registry import Draft, View
from tidemill_meta.subjects import is_strict
from tidemill_meta.values import Allocation, Passage, Route, consumer_group_key
from tidemill_wire.fencing import Fenced, parse_fenced
from tidemill_wire.fields import living_subject

NONE = frozenset[str]()
FENCED_FIELDS = frozenset({"group", "closed", "passed"})


@dataclass(frozen=True, slots=True)
class Report:
    """Of one broker group."""

    group: str
    fenced: Fenced


def parse_report(body: object) -> Report:
    """What a master said."""
    asked = Asked(body, FENCED_FIELDS)
    return Report(asked.name("group"), parse_fenced(asked.items("closed"), asked.items("passed")))


def note(draft: Draft, report: Report) -> None:
    """Store what is new of it. Of a subject that is gone nobody needs to know."""
    for name, number in report.fenced.closed:
        route = draft.get(Route, living_subject(name))
        if route is not None:
            changed = closed(route, f"{report.group}/{name}", number)
            if changed is not route:
                draft.put(changed)
    for row in report.fenced.passed:
        route = draft.get(Route, living_subject(row.partition))
        if route is not None:
            _pass(draft, route, row.group, (f"{report.group}/{row.partition}", row.number))


def _pass(draft: Draft, route: Route, group: str, fence: tuple[str, int]) -> None:
    """A group has passed a fence. When that opens a partition to it, its consumers are to hear of it: the allocation
    gets a version, which is what watch streams tell.
    """
    partition, number = fence
    key = consumer_group_key(route.subject, group)
    known = draft.get(Passage, key) or Passage(route.subject, group)
    before = dict(known.passed)
    if before.get(partition, 0) >= number:
        return
    after = before | {partition: number}
    draft.put(replace(known, passed=tuple(after.items())))
    allocation = draft.get(Allocation, key)
    if allocation is not None and shut(route, before) - shut(route, after):
        draft.put(allocation)


def closed_to(view: View, subject: str, group: str) -> frozenset[str]:
    """The partitions that a group may not begin with yet."""
    route = view.get(Route, subject)
    if route is None or not route.successions or not is_strict(view, subject):
        return NONE
    known = view.get(Passage, consumer_group_key(subject, group))
    return shut(route, dict(known.passed) if known is not None else {})
