"""What was promised, told from outside: the history of a run, and the rules it must obey.

A ``History`` is written by the workloads, never by the nodes under test: each send and each ack with the moments it
was invoked and answered and how it ended, each delivery as it came. An operation without an answer, or with an error
that says nothing about what was done, is UNKNOWN: it may or may not have happened, then and later. FAILED means that it
certainly did not and never will.

Each checker is a function from the history to sentences; no sentence, no violation. They compare whole bodies: one
that looked at the beginning only once hid a missing checksum.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from tidemill_wire.filters import TagFilter
from tidemill_wire.lanes import lane_name, priority_of


class Outcome(Enum):
    PENDING = "pending"
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Promise(Enum):
    """The durability class of a subject, which says what may be lost to a power cut."""

    HIGH = "high"
    """Nothing."""
    NORMAL = "normal"
    """What was answered within ``sync_within_s`` before it."""
    LOW = "low"
    """Whatever was not synced by chance."""


@dataclass(slots=True)
class Send:
    """One message. ``message`` is its identity, given by the producer, and never used twice."""

    message: str
    producer: str
    subject: str
    body: bytes
    promise: Promise
    key: str
    invoked_s: float
    outcome: Outcome = Outcome.PENDING
    ended_s: float = 0.0
    place: str = ""
    tags: frozenset[str] = frozenset()
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """``place`` is where the message lies (broker, partition, sequence); ``asked_s`` when the pull was sent."""

    at_s: float
    asked_s: float
    group: str
    consumer: str
    subject: str
    message: str
    place: str
    body: bytes
    key: str = ""
    priority: int = 0


@dataclass(slots=True)
class Ack:
    group: str
    place: str
    message: str
    invoked_s: float
    outcome: Outcome = Outcome.PENDING
    ended_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PowerCut:
    at_s: float
    node: str
    late_s: float = 0.0
    """For so long before it the node could not sync: it stood, was slow, or was down."""


@dataclass(slots=True)
class History:
    """Append-only, in order of virtual time."""

    sends: dict[str, Send] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)

    def sending(self, send: Send) -> Send:
        if send.message in self.sends:
            raise ValueError(f"message {send.message} is sent twice; a workload's identities are unique")
        self.sends[send.message] = send
        return send

    def delivered(self, delivery: Delivery) -> Delivery:
        self.deliveries.append(delivery)
        return delivery

    def acking(self, ack: Ack) -> Ack:
        self.acks.append(ack)
        return ack


def ended(operation: Send | Ack, outcome: Outcome, at_s: float) -> None:
    """The answer has come, or what stands for one."""
    if operation.outcome is not Outcome.PENDING:
        raise ValueError(f"{operation} has ended already")
    operation.outcome = outcome
    operation.ended_s = at_s


@dataclass(frozen=True, slots=True)
class Terms:
    """What the world did, as far as it excuses."""

    groups: Mapping[str, Sequence[str]]
    """For each subject the groups that consume it from its beginning."""
    cuts: Sequence[PowerCut] = ()
    sync_within_s: float = 0.5
    floors: Mapping[str, int] = field(default_factory=dict)
    """For each subject, or lane of one, the first sequence that retention has left; that it was time is checked where
    it drops.
    """
    ack_promise: Promise | None = Promise.NORMAL
    """What an answered ack survives; ``None``: as much as its message."""
    wanted: Mapping[str, TagFilter] = field(default_factory=dict)
    """The filters of groups that have one."""

    dead: AbstractSet[tuple[str, str]] = frozenset()
    """(group, message) of those that wait in the dead letters: settled, too."""

    def wants(self, group: str, send: Send) -> bool:
        """Whether a group is to be given a message of a subject that it consumes."""
        return group not in self.wanted or self.wanted[group].wants(send.tags)

    def expired(self, send: Send) -> bool:
        """Retention has dropped it."""
        subject, _, sequence = send.place.rpartition("/")
        if not sequence:
            return False
        lane = lane_name(subject, priority_of(int(sequence)))
        return int(sequence) < self.floors.get(lane, 0)

    def may_be_lost(self, promise: Promise, operation: Send | Ack) -> bool:
        """Whether a power cut excuses. The answer left between the invocation and the end, nobody knows when."""
        began_s, answered_s = operation.invoked_s, operation.ended_s
        match promise:
            case Promise.HIGH:
                return False
            case Promise.NORMAL:
                within_s = self.sync_within_s
                return any(began_s <= cut.at_s <= answered_s + within_s + cut.late_s for cut in self.cuts)
            case Promise.LOW:
                return any(began_s <= cut.at_s for cut in self.cuts)


def missing(history: History, terms: Terms) -> Iterable[tuple[Send, str]]:
    """Every answered message, not excused, that a group has not got and acked: what a drain waits for.

    An ack whose answer got lost may have been done, and then nothing more comes: it counts as one.
    """
    done = (Outcome.OK, Outcome.UNKNOWN)
    acked = {(ack.group, ack.message) for ack in history.acks if ack.outcome in done}
    for send in history.sends.values():
        if send.outcome is not Outcome.OK or terms.may_be_lost(send.promise, send) or terms.expired(send):
            continue
        for group in terms.groups.get(send.subject, ()):
            settled = (group, send.message) in acked or (group, send.message) in terms.dead
            if not settled and terms.wants(group, send):
                yield send, group


def nothing_lost(history: History, terms: Terms) -> list[str]:
    """At least once: what was answered has reached every group of its subject."""
    got = {(delivery.group, delivery.message) for delivery in history.deliveries}
    return [
        f"lost: {send.message} ({send.promise.value}, answered at {send.ended_s:.6f} s) never reached {group}"
        for send, group in missing(history, terms)
        if (group, send.message) not in got
    ]


def everything_settled(history: History, terms: Terms) -> list[str]:
    """After the drain nothing answered is left that a group got and could not ack."""
    got = {(delivery.group, delivery.message) for delivery in history.deliveries}
    return [
        f"unsettled: {group} got {send.message} and none of its acks can have been done"
        for send, group in missing(history, terms)
        if (group, send.message) in got
    ]


def none_after_ack(history: History, terms: Terms) -> list[str]:
    """A pull that was sent after an ack was answered does not bring the same message of that place again.

    Deliveries of earlier pulls may have been on their way, so they prove nothing.
    """
    first_ok: dict[tuple[str, str, str], float] = {}
    for ack in history.acks:
        send = history.sends.get(ack.message)
        promise = terms.ack_promise or (send.promise if send is not None else Promise.LOW)
        if ack.outcome is Outcome.OK and not terms.may_be_lost(promise, ack):
            key = ack.group, ack.place, ack.message
            first_ok[key] = min(ack.ended_s, first_ok.get(key, ack.ended_s))
    never = float("inf")
    return [
        f"again: {delivery.group} got {delivery.place} ({delivery.message}) by a pull of {delivery.asked_s:.6f} s, "
        f"though its ack was answered at {answered_s:.6f} s"
        for delivery in history.deliveries
        if (answered_s := first_ok.get((delivery.group, delivery.place, delivery.message), never))
        < delivery.asked_s
    ]


def nothing_invented(history: History, terms: Terms) -> list[str]:
    """What is delivered was sent, to this subject, and was not refused; and its group consumes the subject."""
    problems = []
    for delivery in history.deliveries:
        send = history.sends.get(delivery.message)
        where = f"{delivery.message} at {delivery.place} for {delivery.group}"
        if send is None:
            problems.append(f"invented: nobody sent {where}")
        elif send.outcome is Outcome.FAILED:
            problems.append(f"invented: {where} was refused at {send.ended_s:.6f} s")
        elif send.subject != delivery.subject or delivery.group not in terms.groups.get(send.subject, ()):
            problems.append(f"misrouted: {where} came for {delivery.subject}, was sent to {send.subject}")
        elif not terms.wants(delivery.group, send):
            problems.append(f"unwanted: {where} has the tags {sorted(send.tags)}")
        elif delivery.at_s < send.invoked_s:
            problems.append(f"invented: {where} came before it was sent")
    return problems


def bodies_unaltered(history: History, terms: Terms) -> list[str]:
    """The whole body, the key and the priority arrive as they were sent."""
    return [
        f"altered: {delivery.message} at {delivery.place} for {delivery.group}"
        for delivery in history.deliveries
        if (send := history.sends.get(delivery.message)) is not None
        and (send.body, send.key, send.priority) != (delivery.body, delivery.key, delivery.priority)
    ]


def places_not_reused(history: History, terms: Terms) -> list[str]:
    """A place that was answered for one message holds no other from then on, unless a power cut excuses its loss.

    What a pull of before the answer brought may have been a message that never became durable.
    """
    owner = {
        send.place: send
        for send in history.sends.values()
        if send.outcome is Outcome.OK and send.place and not terms.may_be_lost(send.promise, send)
    }
    return [
        f"reused: {delivery.place} was answered for {send.message} and held {delivery.message}"
        for delivery in history.deliveries
        if (send := owner.get(delivery.place)) is not None
        and send.message != delivery.message
        and delivery.asked_s > send.ended_s
    ]


def keys_in_order(history: History, terms: Terms) -> list[str]:
    """For ordered subjects: a group's first deliveries of a key follow the order of its producer's sends.

    Only sends that did not overlap are compared: the first was answered before the second was invoked.
    """
    first: dict[tuple[str, str], float] = {}
    for number, delivery in enumerate(history.deliveries):
        first.setdefault((delivery.group, delivery.message), number)
    chains: defaultdict[tuple[str, str, str], list[Send]] = defaultdict(list)
    for send in history.sends.values():
        if send.key and send.outcome is Outcome.OK:
            chains[send.producer, send.subject, send.key].append(send)
    problems = []
    for (_, subject, key), chain in chains.items():
        for earlier, later in pairwise(sorted(chain, key=lambda send: send.invoked_s)):
            for group in terms.groups.get(subject, ()):
                one, two = first.get((group, earlier.message)), first.get((group, later.message))
                if earlier.ended_s < later.invoked_s and one is not None and two is not None and two < one:
                    problems.append(
                        f"order: {group} got {later.message} before {earlier.message} of key {key}"
                    )
    return problems


CHECKERS = (
    nothing_lost,
    everything_settled,
    none_after_ack,
    nothing_invented,
    bodies_unaltered,
    places_not_reused,
)
"""What holds for every subject; ``keys_in_order`` is for ordered ones."""


def violations(history: History, terms: Terms) -> list[str]:
    """All sentences of all checkers."""
    return [sentence for checker in CHECKERS for sentence in checker(history, terms)]


def place_of(subject: str, sequence: int) -> str:
    return f"{subject}/{sequence}" if sequence >= 0 else ""
