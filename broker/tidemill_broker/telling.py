"""Actions as archives are told of them: whose they are by name, and what they say in plain values.

Records go by numbers, which are given once and never to somebody else. So a name that was seen in any record, or that
the state has at any later moment, is the right one. Who is in neither was named before what is read, and is gone by
now: the records of the whole log are looked through for it (``learn``), and that of a consumer's end says its name
once more. A group that was forgotten, and named in a segment that is dropped by now, has no name: what was done in it
is counted, and belongs to nobody.

Deliveries are told by their pull sequences, as records have them. Which messages they are follows from what was pulled
before; whoever reads from the beginning knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from tidemill_broker.action_records import decode_action
from tidemill_broker.actions import (
    NOWHERE,
    Acked,
    Action,
    ActionKind,
    Buried,
    ConsumerForgotten,
    ConsumerNamed,
    Exhumed,
    Extended,
    FailedDeliveries,
    FailureDetail,
    GroupNamed,
    GroupPaused,
    GroupResumed,
    Parked,
    Pulled,
    Purged,
    Reason,
    Redriven,
    Released,
    Sought,
    SubjectNamed,
)
from tidemill_broker.lanes import IDENTITY_BITS
from tidemill_broker.standings import FAILED
from tidemill_broker.state import State
from tidemill_journal.errors import CorruptRecord
from tidemill_journal.records import Record
from tidemill_journal.segments import Segments
from tidemill_ledger.scanning import RecordScanner
from tidemill_wire.fields import living_subject
from tidemill_wire.lanes import lane_name
from tidemill_wire.limits import ACTION_NAMES_MAX, DOOMED_MS

Row: TypeAlias = dict[str, Any]
FirstAt: TypeAlias = Callable[[int], int | None]
"""With which sequence the batch at a position of the message log begins; ``None``: it is not kept."""
ReadFile: TypeAlias = Callable[[str, int, int], bytes]
"""So many bytes of a file from a place on, fewer at its end."""
Thing = TypeVar("Thing")

NAMING = frozenset((ActionKind.SUBJECT, ActionKind.GROUP, ActionKind.CONSUMER, ActionKind.FOREVER_OFFLINE))
OF_DELIVERIES: TypeAlias = Pulled | Acked | FailedDeliveries | Extended | Parked | Released
OF_GROUPS: TypeAlias = Buried | Redriven | Purged | GroupPaused | GroupResumed | Sought | Exhumed


class Names:
    """Partitions, groups and consumers by their numbers, as far as they are known."""

    def __init__(self) -> None:
        self._partitions: dict[int, str] = {}
        self._groups: dict[int, tuple[int, str]] = {}
        self._consumers: dict[int, tuple[int, str]] = {}
        self._newest = (0, 0, 0)
        """Of each, who was the last one in the state; nobody has the number 0."""
        self.learnt = 0
        """Up to where the log was looked through."""

    @property
    def full(self) -> bool:
        """So many are known that it is better to begin again: most of them are gone."""
        return len(self._consumers) + len(self._groups) > ACTION_NAMES_MAX

    def follow(self, state: State) -> None:
        """What a state has by now. Whoever is new in it stands behind whoever was there the last time."""
        partition, group, consumer = self._newest
        self._partitions |= {one.identity: one.name for one in _new(state.partitions, partition)}
        groups = _new(state.groups, group)
        self._groups |= {one.identity: (one.partition, one.name) for one in groups}
        consumers = _new(state.consumers, consumer)
        self._consumers |= {one.identity: (one.group.identity, one.name) for one in consumers}
        self._newest = (_last(state.partitions), _last(state.groups), _last(state.consumers))

    def note(self, action: Action) -> None:
        """What an action says of names."""
        match action:
            case SubjectNamed(partition, name):
                self._partitions[partition] = name
            case GroupNamed(group, partition, name):
                self._groups[group] = partition, name
            case ConsumerNamed(consumer, group, name):
                self._consumers[consumer] = group, name
            case ConsumerForgotten(consumer, group, name) if group:
                self._consumers[consumer] = group, name
            case _:
                pass

    def learn(self, records: Iterable[Record], end: int) -> None:
        """What the records up to a position say of names."""
        for record in records:
            if record.kind in NAMING:
                self.note(decode_action(record))
        self.learnt = max(self.learnt, end)

    def group(self, number: int) -> tuple[str, str] | None:
        """The partition and the name of a group. That of a group in a lane follows from its head's."""
        known = self._groups.get(number)
        if known is None:
            priority, head = number >> IDENTITY_BITS, number & (1 << IDENTITY_BITS) - 1
            base = self.group(head) if priority else None
            return None if base is None else (lane_name(base[0], priority), base[1])
        partition = self._partitions.get(known[0])
        return None if partition is None else (partition, known[1])

    def consumer(self, number: int) -> tuple[str, str, str] | None:
        """The partition, the group and the name of a consumer."""
        known = self._consumers.get(number)
        group = None if known is None else self.group(known[0])
        return None if known is None or group is None else (*group, known[1])


def _new(there: dict[int, Thing], newest: int) -> Iterator[Thing]:
    """Those behind the newest one of the last time; all, when that one is gone."""
    for number in reversed(there):
        if number == newest:
            return
        yield there[number]


def _last(there: dict[int, Thing]) -> int:
    return next(reversed(there), 0)


class Told(NamedTuple):
    """What records say, and how many of them are of a group or consumer whose name nobody has any more."""

    rows: list[Row]
    unnamed: int


def tell(
    records: Iterable[Record],
    names: Names,
    wanted: Callable[[str], bool],
    first_at: FirstAt,
    learn: Callable[[], None],
) -> Told:
    """What records say of the subjects that are ``wanted``. ``learn`` is called when a name is missing, once."""
    found: list[tuple[Record, Action]] = []
    for record in records:
        action = decode_action(record)
        names.note(action)
        if is_told(action):
            found.append((record, action))
    whose = [concerns(action, names) for _, action in found]
    if None in whose:
        learn()
        whose = [concerns(action, names) for _, action in found]
    rows = [
        told(record, action, one, first_at)
        for (record, action), one in zip(found, whose, strict=True)
        if one is not None and wanted(living_subject(one[0]))
    ]
    return Told(rows, whose.count(None))


def records_in(segments: Segments, read: ReadFile, first: int, end: int) -> Iterator[Record]:
    """The records of the action log that lie between two positions. ``CorruptRecord`` when none is at the first; where
    none is behind it, that is the end.
    """
    at = first
    for base in segments.bases:
        until = segments.end_of(base)
        if until <= at or base > at or at >= end:
            continue
        scanner = RecordScanner(partial(read, segments.file(base)), base, until, at)
        try:
            for record in scanner:
                if record.position + record.length > end:
                    return
                yield record
        except CorruptRecord:
            if scanner.position == first:
                raise
            return
        at = until


def concerns(action: Action, names: Names) -> tuple[str, str, str] | None:
    """The partition, the group and the consumer that an action is about; ``None`` when nobody knows."""
    if isinstance(action, OF_DELIVERIES):
        return names.consumer(action.consumer)
    assert isinstance(action, OF_GROUPS)
    group = names.group(action.group)
    return None if group is None else (*group, "")


def is_told(action: Action) -> bool:
    """Whether it is about messages, or about how a group goes on."""
    return isinstance(action, OF_DELIVERIES | OF_GROUPS)


def told(record: Record, action: Action, whose: tuple[str, str, str], first_at: FirstAt) -> Row:
    """An action as JSON has it."""
    partition, group, consumer = whose
    row: Row = {"position": record.position, "at": record.at_ms, "subject": living_subject(partition),
                "partition": partition, "group": group}  # fmt: skip
    if isinstance(action, OF_DELIVERIES):
        return {**row, "consumer": consumer, "number": action.consumer, **_of_deliveries(action)}
    assert isinstance(action, OF_GROUPS)
    return {**row, **_of_groups(action, first_at)}


def _of_deliveries(action: OF_DELIVERIES) -> Row:
    match action:
        case Pulled(_, deadline_ms, runs, limit_ms):
            spans = [list(run) for run in runs]
            return {"action": "pulled", "runs": spans, "until": deadline_ms, "limit": limit_ms}
        case Acked(_, ranges, 0):
            return {"action": "acked", "ranges": list(ranges)}
        case Acked(_, ranges, kept_until_ms):
            return {"action": "kept", "ranges": list(ranges), "until": kept_until_ms}
        case FailedDeliveries(_, due_ms, reason, ranges, _, _, detail):
            what = FAILED[Reason(reason)]
            until = {} if due_ms == DOOMED_MS else {"until": due_ms}
            return {"action": what, "ranges": list(ranges), **until, **_said(detail)}
        case Extended(_, deadline_ms, ranges):
            return {"action": "extended", "ranges": list(ranges), "until": deadline_ms}
        case Parked(_, _, ranges, again_ms, detail):
            return {"action": "parked", "ranges": list(ranges), "until": again_ms, **_said(detail)}
        case Released(_, ranges):
            return {"action": "released", "ranges": list(ranges)}


def _of_groups(action: OF_GROUPS, first_at: FirstAt) -> Row:
    match action:
        case Buried(_, first, messages, position):
            if position == NOWHERE:
                return {"action": "dropped", "first": first, "messages": messages}
            return {"action": "dead", "first": first, "messages": messages, "letter": first_at(position)}
        case Exhumed(_, first, messages):
            return {"action": "exhumed", "first": first, "messages": messages}
        case Redriven(_, _, ranges):
            return {"action": "redriven", "sequences": list(ranges)}
        case Purged(_, ranges):
            return {"action": "purged", "sequences": list(ranges)}
        case GroupPaused(_, _, fingerprint):
            return {"action": "paused", "reason": fingerprint}
        case GroupResumed():
            return {"action": "resumed"}
        case Sought(_, cursor, _):
            return {"action": "moved", "first": cursor}


def _said(detail: FailureDetail | None) -> Row:
    if detail is None:
        return {}
    said = {"reason": detail.reason, "error": detail.error, "place": detail.place}
    return {name: text for name, text in said.items() if text}
