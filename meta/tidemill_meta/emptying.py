"""A subject that is to be removed if it is empty: it takes nothing, its brokers say what is left, and it goes or stays.

| state | event | becomes |
|---|---|---|
| in use | somebody asks for its removal, if it is empty | asked: brokers take nothing for it, and say what is left |
| asked | the masters of all broker groups where something may lie have said: nothing | removed |
| asked | one of them has said that something is left | in use, and who asks is told what is left, and where |
| asked | ``ASKED_MS`` are over | in use |

It is *empty* when each of its groups has done with all its messages: none is to be given out, in flight, to be tried
again or in the dead letters. A message that a group of the subject has not begun with is left; and so is every message
that is kept, when the subject has no group at all: nobody has got it.

What a master says counts for its epoch: the next one may have taken a message since, before it heard that it is to take
none. Who has not spoken is not known to be empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidemill_meta.asked import Asked, wrong
from tidemill_meta.registry import Draft, View
from tidemill_meta.senses import Senses
from tidemill_meta.subjects import check_unused, find_subject, remove_subject
from tidemill_meta.values import BrokerGroup, ConsumerGroupRecord, Emptying, Route, SubjectRecord
from tidemill_wire.counted import counted
from tidemill_wire.leftovers import has_begun

ASKED_MS = 15_000
REPORT_FIELDS = frozenset({"group", "epoch", "known", "rows"})
ROW_FIELDS = frozenset({"subject", "left", "kept", "groups"})


@dataclass(frozen=True, slots=True)
class Row:
    """What a broker has of a subject."""

    subject: str
    left: int
    """What its groups there have not done with."""
    kept: int
    """All messages."""
    groups: tuple[str, ...]
    """The groups that are in every partition of it there that keeps messages."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a master says. It had obeyed by then what people said up to the revision ``known``."""

    group: str
    epoch: int
    known: int
    rows: tuple[Row, ...]


def parse_report(body: object) -> Report:
    """From a request."""
    asked = Asked(body, REPORT_FIELDS)
    rows = tuple(_parse_row(one) for one in asked.items("rows"))
    return Report(asked.name("group"), asked.whole("epoch"), asked.whole("known"), rows)


def _parse_row(body: object) -> Row:
    asked = Asked(body, ROW_FIELDS)
    groups = asked.items("groups")
    if not all(type(one) is str for one in groups):
        raise wrong("groups has what is no text: write a list of groups' names")
    return Row(asked.subject("subject"), asked.whole("left"), asked.whole("kept"), tuple(groups))


def note(draft: Draft, report: Report) -> None:
    """Store what is new of it."""
    group = draft.get(BrokerGroup, report.group)
    if group is None or not group.seated or group.epoch != report.epoch:
        return
    for row in report.rows:
        record = draft.get(SubjectRecord, row.subject)
        if record is None or record.emptying is None or report.known < record.emptying.revision:
            continue
        asked, now = record.emptying, (report.group, report.epoch, _left(draft, row))
        if now not in asked.said:
            others = tuple(one for one in asked.said if one[0] != report.group)
            draft.put(replace(record, emptying=replace(asked, said=(*others, now))))


def _left(draft: Draft, row: Row) -> str:
    """In words; empty when it is."""
    if row.left:
        return f"{counted(row.left, 'message')} that a group has not done with"
    if not row.kept:
        return ""
    names = (one.name for one in draft.all(ConsumerGroupRecord) if one.subject == row.subject)
    late = next((name for name in names if not has_begun(name, row.groups)), "")
    if late:
        return f"{counted(row.kept, 'message')} that the group {late!r} has not begun with"
    return "" if row.groups else f"{counted(row.kept, 'message')} that no group has got"


def remove_if_empty(
    draft: Draft, senses: Senses, subject: str, now_ms: int, *, force: bool = False
) -> str | None:
    """``None``: the subject is removed. Else what is left, and where; empty as long as that is not known, which takes a
    second or two from the first time on that it is asked. ``force``: also one that clients use.
    """
    record, route = find_subject(draft, subject)
    if not force:
        check_unused(draft, senses, (subject, ""), now_ms)
    asked = record.emptying
    if asked is None:
        asked = Emptying(draft.stored.revision + 1)
        draft.put(replace(record, emptying=asked))
    for name, _, left in asked.said:
        if left:
            draft.put(replace(record, emptying=None))
            return f"{name} has {left}"
    if any(_unsaid(draft, asked, route)):
        return ""
    remove_subject(draft, senses, subject, now_ms, force=True)
    return None


def silent(view: View, subject: str) -> list[str]:
    """The broker groups that have not said what is left, and who is to say it."""
    record, route = find_subject(view, subject)
    return [
        f"{group.name} ({f'its master is {group.master}' if group.seated else 'it has no master now'})"
        for group in _unsaid(view, record.emptying or Emptying(0), route)
    ]


def _unsaid(view: View, asked: Emptying, route: Route) -> Iterator[BrokerGroup]:
    """Those of which it is not known; what was said by a master that is none any more counts for nothing."""
    said = {name: epoch for name, epoch, _ in asked.said}
    for group in _holding(view, route):
        if said.get(group.name) != group.epoch or not group.seated:
            yield group


def _holding(view: View, route: Route) -> Iterator[BrokerGroup]:
    """Where something may lie. A group that is forgotten or retired has nothing."""
    names = {partition.group for one in route.all_sets for partition in one.partitions}
    groups = (view.get(BrokerGroup, name) for name in sorted(names))
    return (group for group in groups if group is not None and not group.retired)


def lapse(draft: Draft, senses: Senses, now_ms: int) -> None:
    """Subjects that nobody has removed in time take messages again."""
    for subject in draft.stored.emptying:
        record = draft.get(SubjectRecord, subject)
        if record is None or record.emptying is None:
            continue
        asked = ("emptying", subject, record.emptying.revision)
        if senses.noticed_for_ms(asked, now_ms) > ASKED_MS:
            draft.put(replace(record, emptying=None))
