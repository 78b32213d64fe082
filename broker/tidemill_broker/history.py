"""What became of one message in each group: where it stands now, from the state, and how it came there, from the log.

The action log is read from the time on at which the message was stored; nothing is kept for this while messages flow.

    beyond the cursor   waiting    behind so many others, at the rate of late
    delivered           leased     to whom, until when
    failed              retry      due when, after which error; or about to become a dead letter
    gone                acked, dead, or passed over, as its last event says; or filtered, as its tags say
    dead                the same questions of its copy, which the group's twin may have been given again
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
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
    Pulled,
    Purged,
    Reason,
    Redriven,
    Released,
    Sought,
)
from tidemill_broker.groups import Group
from tidemill_broker.state import State
from tidemill_journal.records import Record
from tidemill_wire.counted import counted
from tidemill_wire.filters import TagFilter
from tidemill_wire.limits import DOOMED_MS
from tidemill_wire.ranges import pairs

RATE_MS = 60_000
EVENTS_MAX = 1_000
"""Of one message; a handler that hangs for days extends its lease so often."""

ENDS = ("acked", "dead", "dropped", "purged")
FAILED = {Reason.NACK: "failed", Reason.LEASE_ENDED: "lease ended", Reason.CONSUMER_GONE: "consumer gone"}


class Event(NamedTuple):
    """Something that was done with the message, or with its group."""

    at_ms: int
    what: str
    consumer: str = ""
    attempts: int = 0
    until_ms: int = 0
    """When the lease ends, or when it is due again."""
    detail: FailureDetail | None = None


@dataclass(slots=True)
class Standing:
    """Where the message is, for a group, at one moment."""

    group: str
    state: str
    attempts: int = 0
    consumer: str = ""
    until_ms: int = 0
    ahead: int = 0
    """Messages that the group is given before it."""
    unwanted: str = ""
    """What the group's filter wants instead of it."""
    detail: FailureDetail | None = None
    paused: bool = False
    suspended: bool = False
    untried: bool = False
    """Given back by a consumer that had not begun it, or redriven: before anything new it is given out."""
    events: list[Event] = field(default_factory=list[Event])
    rate: float = 0.0
    """Messages a second that the group was given of late."""


def standing_of(group: Group, sequence: int, tags: Collection[str] = ()) -> Standing:
    """From the state alone. ``gone`` is for the history to tell."""
    found = Standing(group.name, "gone", paused=group.paused is not None, suspended=group.settings.suspended)
    wanted = TagFilter(group.settings.tags, group.settings.all_tags)
    found.unwanted = "" if wanted.wants(tags) else str(wanted)
    if sequence >= group.cursor:
        found.state = "filtered" if found.unwanted else "waiting"
        found.ahead = max(0, sequence - group.reached) + group.failed_count()
        return found
    for consumer in group.consumers.values():
        for delivery in consumer.held():
            if delivery.first <= sequence < delivery.first + delivery.count:
                found.state, found.consumer = "leased", consumer.name
                found.attempts, found.until_ms = delivery.attempts, delivery.deadline_ms
                return found
    for failure in group.failed.values():
        if failure.first <= sequence < failure.first + failure.messages:
            found.untried = not failure.since_ms
            found.state = "dying" if failure.due_ms == DOOMED_MS else "waiting" if found.untried else "retry"
            found.attempts, found.until_ms = failure.attempts, 0 if found.untried else failure.due_ms
            seen = group.errors.get(failure.fingerprint)
            found.detail = seen.detail if seen is not None else None
    return found


FirstAt: TypeAlias = Callable[[int], int | None]
"""With which sequence the batch at a position of the message log begins; ``None``: it is not kept."""


class Held(NamedTuple):
    """A delivery of the message."""

    group: int
    consumer: str
    attempts: int


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
            case Acked(consumer) | FailedDeliveries(consumer) | Extended(consumer) | Released(consumer):
                if self._pulls and consumer in self._consumers:
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
                self._pulls[pull] = Held(group, name, run.attempts)
                self._add(group, Event(at_ms, "pulled", name, run.attempts, deadline_ms))
        given = self._given.setdefault(group, [])
        given.append((at_ms, total))
        if len(given) > EVENTS_MAX:
            del given[: EVENTS_MAX // 2]

    def _settled(self, action: Action, at_ms: int) -> None:
        assert isinstance(action, Acked | FailedDeliveries | Extended | Released)
        ranges = action.ranges
        for pull, (group, name, attempts) in list(self._pulls.items()):
            if not any(first <= pull <= last for first, last in pairs(ranges)):
                continue
            match action:
                case Acked():
                    self._add(group, Event(at_ms, "acked", name, attempts))
                case FailedDeliveries():
                    what = FAILED.get(Reason(action.reason), "failed")
                    due_ms = 0 if action.due_ms == DOOMED_MS else action.due_ms
                    counted = attempts + action.counted
                    self._add(group, Event(at_ms, what, name, counted, due_ms, action.detail))
                case Extended():
                    self._add(group, Event(at_ms, "extended", name, attempts, action.deadline_ms))
                case Released():
                    self._add(group, Event(at_ms, "released", name, attempts))
            if not isinstance(action, Extended):
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


def conclude(standing: Standing, events: list[Event], rate: float) -> Standing:
    """Put the history to where the message stands."""
    standing.events, standing.rate = events, rate
    if standing.state != "gone":
        return standing
    own = [event for event in events if event.what not in ("paused", "resumed", "moved")]
    last = own[-1] if own else None
    standing.state = last.what if last is not None and last.what in ENDS else "passed over"
    if last is None and standing.unwanted:
        standing.state = "filtered"
    if last is not None:
        standing.consumer, standing.until_ms = last.consumer, last.at_ms
    failed = [event for event in own if event.what in FAILED.values()]
    said = [event.detail for event in failed if event.detail is not None]
    if standing.state in ("dead", "dropped") and said:
        standing.detail = said[-1]
    decisive = last if last is not None and last.what == "acked" else failed[-1] if failed else None
    standing.attempts = decisive.attempts if decisive is not None else 0
    return standing


def sentence_of(standing: Standing, moment: Callable[[int], str]) -> str:
    """For a person. ``moment`` writes a time."""
    when, who = moment(standing.until_ms), standing.consumer
    why = f" ({standing.detail.reason})" if standing.detail is not None and standing.detail.reason else ""
    after = f"after {counted(standing.attempts, 'attempt')}{why}"
    failed = f"failed {_times(standing.attempts)}{why}"
    if not standing.attempts:
        failed = f"failed while the group was paused, which is not counted{why}"
    sentences: Mapping[str, str] = {
        "waiting": _waiting(standing),
        "leased": f"leased to {who} until {when}, given out {_times(standing.attempts)} before",
        "retry": f"{failed}, due again {when}",
        "dying": f"{failed}, becomes a dead letter now",
        "acked": f"acknowledged by {who} at {when}",
        "dead": f"a dead letter since {when}, {after}",
        "dropped": f"given up at {when}, {after}: the group keeps no dead letters",
        "purged": f"a dead letter that was purged at {when}",
        "filtered": f"not wanted by this group: its filter is {standing.unwanted}",
        "passed over": "not given to this group: it began, or was moved, behind it; "
        "or its filter did not want it then; or its history is no longer kept",
    }
    open_still = standing.state in ("waiting", "leased", "retry")
    paused = "; the group is paused, everything fails of the same error" if standing.paused else ""
    suspended = "; the group is suspended, and given nothing" if standing.suspended else ""
    return sentences[standing.state] + (paused + suspended if open_still else "")


def _waiting(standing: Standing) -> str:
    if standing.untried:
        last = next((one for one in reversed(standing.events) if one.what in ("released", "redriven")), None)
        how = f"given back by {last.consumer}" if last is not None and last.consumer else "redriven"
        return f"{how} and not pulled again yet; it comes before new messages"
    place = f"{_messages(standing.ahead)} before it" if standing.ahead else "it is the next one"
    if not standing.rate:
        return f"not pulled yet, {place}, and none was given to the group of late"
    if not standing.ahead:
        return f"not pulled yet, {place}"
    seconds = standing.ahead / standing.rate
    return f"not pulled yet, {place}: in about {seconds:.0f} s at {standing.rate:.1f}/s"


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def _messages(count: int) -> str:
    return f"{counted(count, 'message')} {'is' if count == 1 else 'are'}"
