"""How one message came to where it stands in each group (``standings.py``): what the log says was done with it.

The action log is read from the time on at which the message was stored; nothing is kept for this while messages flow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from tidemill_broker.action_records import decode_action
from tidemill_broker.actions import (
    NOWHERE,
    Acked,
    Action,
    Buried,
    ConsumerForgotten,
    ConsumerNamed,
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
)
from tidemill_broker.standings import FAILED, Event
from tidemill_broker.state import State
from tidemill_journal.records import Record
from tidemill_wire.limits import DOOMED_MS
from tidemill_wire.ranges import pairs

RATE_MS = 60_000
EVENTS_MAX = 1_000
"""Of one message; a handler that hangs for days extends its lease so often."""

FirstAt: TypeAlias = Callable[[int], int | None]
"""With which sequence the batch at a position of the message log begins; ``None``: it is not kept."""


class Held(NamedTuple):
    """A delivery of the message."""

    group: int
    consumer: str
    attempts: int
    limit_ms: int = 0
    """When its lease ends, however often it is renewed; 0: nobody knows, or never."""


class History:
    """Finds what concerns one message in records of the action log, in their order.

    The message is followed into the dead letters, where the group's twin may be given it again.

    A consumer is known from the state, from the record that names it, or, when that lies before what is read and the
    consumer is gone, from the record of its end. That stands behind all that it did: so what is read is read again,
    if such a one was given the message (``read_again``).
    """

    def __init__(
        self, state: State, partition: int, sequence: int, graves: Mapping[int, int] | None = None
    ) -> None:
        self._partition = partition
        self._sequence = sequence
        self._groups = {
            identity: group.name for identity, group in state.groups.items() if group.partition == partition
        }
        families = {identity: state.family(state.groups[identity]) for identity in self._groups}
        heads = {identity: family[-1].identity for identity, family in families.items()}
        self._twins = {state.dead[head]: identity for identity, head in heads.items() if head in state.dead}
        self._kin = {one.identity: identity for identity, family in families.items() for one in family}
        """The group in any lane -> the one in the message's."""
        self._consumers = {
            identity: (consumer.group.identity, consumer.name)
            for identity, consumer in state.consumers.items()
            if consumer.group.identity in self._groups or consumer.group.identity in self._twins
        }
        self._others = state.consumers.keys() - self._consumers.keys()
        self._strangers: set[int] = set()
        """Consumers that were given the message, or one of its number, and are not known."""
        self._former: dict[int, tuple[int, str]] = {}
        """Of these, those that are known now."""
        self._begun = dict(graves or {})
        self._begin()

    def _begin(self) -> None:
        self._pulls: dict[int, Held] = {}
        self.graves: dict[int, int] = dict(self._begun)
        """Group -> where the message lies in the dead letters: its sequence there."""
        self.events: dict[int, list[Event]] = {identity: [] for identity in self._groups}
        self._given: dict[int, list[tuple[int, int]]] = {}  # group -> (time, messages)

    def read_again(self) -> bool:
        """Whether all records are to be noted once more, now that it is known who was given the message."""
        former, self._former = self._former, {}
        if not former:
            return False
        self._consumers |= former
        self._begin()
        return True

    def note(self, record: Record, first_at: FirstAt) -> None:
        """The next record."""
        action = decode_action(record)
        match action:
            case GroupNamed(identity, partition, name) if partition == self._partition:
                self._groups[identity] = name
                self.events.setdefault(identity, [])
            case ConsumerNamed(identity, group, name) if group in self._groups or group in self._twins:
                self._consumers[identity] = (group, name)
            case ConsumerNamed(identity):
                self._others.add(identity)
            case ConsumerForgotten(identity, group, name) if (
                identity in self._strangers - self._consumers.keys()
            ):
                if group in self._groups or group in self._twins:
                    self._former[identity] = (group, name)
            case Pulled(consumer, deadline_ms, _) if consumer in self._consumers:
                self._pulled(action, record.at_ms, deadline_ms)
            case Pulled(consumer, _, runs) if consumer not in self._others:
                places = (self._sequence, *self.graves.values())
                if any(run.first <= place < run.first + run.messages for run in runs for place in places):
                    self._strangers.add(consumer)
            case Acked() | FailedDeliveries() | Extended() | Parked() | Released():
                if self._pulls and action.consumer in self._consumers:
                    self._settled(action, record.at_ms)
            case Buried(group, first, messages, position) if self._is_in(group, first, messages):
                begun = None if position == NOWHERE else first_at(position)
                self._buried(action, begun, record.at_ms)
            case Redriven(twin, _, ranges) if self._are_in(twin, ranges):
                self._add(twin, Event(record.at_ms, "redriven"))
            case Purged(twin, ranges) if self._are_in(twin, ranges):
                self._add(twin, Event(record.at_ms, "purged"))
            case GroupPaused(group, _, fingerprint) if group in self._kin:
                self._add(
                    self._kin[group],
                    Event(record.at_ms, "paused", detail=FailureDetail("", "", "", fingerprint)),
                )
            case GroupResumed(group) if group in self._kin:
                self._add(self._kin[group], Event(record.at_ms, "resumed"))
            case Sought(group) if group in self._groups:
                self._pulls = {pull: held for pull, held in self._pulls.items() if held.group != group}
                self._add(group, Event(record.at_ms, "moved"))
            case _:
                pass

    def rate_of(self, group: int, now_ms: int) -> float:
        """Messages a second that the group was given in the last minute."""
        late = [messages for at_ms, messages in self._given.get(group, ()) if at_ms > now_ms - RATE_MS]
        return 1000 * sum(late) / RATE_MS

    def _pulled(self, action: Pulled, at_ms: int, deadline_ms: int) -> None:
        group, name = self._consumers[action.consumer]
        total = 0
        for run in action.runs:
            total += run.messages
            if self._is_in(group, run.first, run.messages):
                pull = run.pull + self._place(group) - run.first
                self._pulls[pull] = Held(group, name, run.attempts, action.limit_ms)
                self._add(group, Event(at_ms, "pulled", name, run.attempts, deadline_ms))
        given = self._given.setdefault(group, [])
        given.append((at_ms, total))
        if len(given) > EVENTS_MAX:
            del given[: EVENTS_MAX // 2]

    def _settled(self, action: Action, at_ms: int) -> None:
        assert isinstance(action, Acked | FailedDeliveries | Extended | Parked | Released)
        ranges = action.ranges
        for pull, (group, name, attempts, limit_ms) in list(self._pulls.items()):
            if not any(first <= pull <= last for first, last in pairs(ranges)):
                continue
            match action:
                case Acked(_, _, 0):
                    self._add(group, Event(at_ms, "acked", name, attempts))
                case Acked():
                    self._add(group, Event(at_ms, "kept", name, attempts + 1, action.kept_until_ms))
                case FailedDeliveries():
                    what = FAILED.get(Reason(action.reason), "failed")
                    due_ms = 0 if action.due_ms == DOOMED_MS else action.due_ms
                    counted = attempts + action.counted
                    self._add(group, Event(at_ms, what, name, counted, due_ms, action.detail))
                case Extended():
                    until_ms = min(action.deadline_ms, limit_ms or action.deadline_ms)
                    self._add(group, Event(at_ms, "extended", name, attempts, until_ms))
                case Parked():
                    self._pulls[pull] = Held(
                        group, name, attempts
                    )  # what it is now, the group's settings said
                    self._add(group, Event(at_ms, "parked", name, attempts, action.again_ms, action.detail))
                case Released():
                    self._add(group, Event(at_ms, "released", name, attempts))
            if not isinstance(action, Extended | Parked):
                del self._pulls[pull]

    def _buried(self, action: Buried, begun: int | None, at_ms: int) -> None:
        """The batch of the copy begins with the sequence ``begun``."""
        index, living = self._place(action.group) - action.first, self._twins.get(action.group, action.group)
        self._add(action.group, Event(at_ms, "dead" if action.position != NOWHERE else "dropped"))
        self.graves.pop(living, None)
        if begun is not None:
            self.graves[living] = begun + index

    def _place(self, group: int) -> int:
        """The message's sequence for a group, -1 when it is none of its; in the dead letters it has another."""
        if group in self._groups:
            return self._sequence
        return self.graves.get(self._twins.get(group, 0), -1)

    def _is_in(self, group: int, first: int, messages: int) -> bool:
        return first <= self._place(group) < first + messages

    def _are_in(self, group: int, ranges: Sequence[int]) -> bool:
        return any(first <= self._place(group) <= last for first, last in pairs(ranges))

    def _add(self, group: int, event: Event) -> None:
        events = self.events.setdefault(self._twins.get(group, group), [])
        events.append(event)
        if len(events) > EVENTS_MAX:
            del events[EVENTS_MAX // 2]  # its beginning and its end say most
