"""The words of the action log: everything that was done with messages, one record each.

Sequences are of messages, pulls are of deliveries; ranges are pairs of first and last, both included. Subjects, groups
and consumers are named once and then go by their number: a record that uses a number stands behind the one that gave
it, so whatever prefix of the log survives is complete in itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from tidemill_broker.transaction_actions import TransactionAction


class Reason(IntEnum):
    """Why a delivery failed."""

    NACK = 1
    LEASE_ENDED = 2
    CONSUMER_GONE = 3
    HELD_TOO_LONG = 4


class PullRun(NamedTuple):
    """Deliveries ``pull`` … of the messages ``first`` …, ``messages`` of them without a gap."""

    pull: int
    first: int
    messages: int
    attempts: int


@dataclass(frozen=True, slots=True)
class Started:
    """The broker began its ``boot``-th life. Pull sequences of different lives never meet. The wall clock had gone back
    by ``back_ms`` since the last action: moments that lie ahead move with it, or a lease would last an hour longer.
    """

    boot: int
    back_ms: int = 0


@dataclass(frozen=True, slots=True)
class SubjectNamed:
    """A partition got a number, or its settings changed."""

    partition: int
    name: str
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class GroupNamed:
    """A consumer group begins at ``cursor`` of a partition, skipping what was stored before ``start_ms``; and in the
    lanes that the partition has, each of ``lanes`` being priority, cursor and ``start_ms``.
    """

    group: int
    partition: int
    name: str
    cursor: int
    start_ms: int
    settings: dict[str, Any]
    lanes: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class ConsumerNamed:
    """A consumer of a group got a number."""

    consumer: int
    group: int
    name: str


@dataclass(frozen=True, slots=True)
class Synced:
    """All before these positions is on the disk: damage there is damage, not a torn tail."""

    message_position: int
    action_position: int


@dataclass(frozen=True, slots=True)
class Pulled:
    """Deliveries were given to a consumer until the deadline, which may be moved, but not beyond the limit."""

    consumer: int
    deadline_ms: int
    runs: Sequence[PullRun]
    limit_ms: int = 0
    """0: there is none."""


@dataclass(frozen=True, slots=True)
class Acked:
    """Deliveries were handled; or a delay service keeps them for their group, for as long as it says."""

    consumer: int
    ranges: Sequence[int]
    kept_until_ms: int = 0


class FailureDetail(NamedTuple):
    """What a consumer said of a failure: a text, the exception's type and place, and the mark of their kind."""

    reason: str
    error: str
    place: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class FailedDeliveries:
    """Deliveries failed and are due again. ``counted``: as an attempt (1), or not (0)."""

    consumer: int
    due_ms: int
    reason: int
    ranges: Sequence[int]
    at_ms: int = 0
    counted: int = 1
    detail: FailureDetail | None = None


@dataclass(frozen=True, slots=True)
class Extended:
    """Deliveries have a new deadline, or their limit where that comes first."""

    consumer: int
    deadline_ms: int
    ranges: Sequence[int]


@dataclass(frozen=True, slots=True)
class Parked:
    """Deliveries have a new deadline, for they failed and are tried again by their consumer, then. Their order key
    waits. It is a new attempt, so they have a new limit, too, if they had one.
    """

    consumer: int
    deadline_ms: int
    ranges: Sequence[int]
    again_ms: int
    detail: FailureDetail


@dataclass(frozen=True, slots=True)
class Released:
    """Deliveries were handed back untouched."""

    consumer: int
    ranges: Sequence[int]


@dataclass(frozen=True, slots=True)
class ConsumerForgotten:
    """A consumer that holds nothing is gone for good; its number is not used again. Its group and name are said once
    more: where it was named may lie in a segment that nobody reads any more.
    """

    consumer: int
    group: int = 0
    """0, and no name, in a record of before it was said."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Voided:
    """Messages in the error log that do not exist: a power cut took them, and nobody had been promised them."""

    group: int
    first: int
    messages: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A group passes over messages that its filter does not want: its cursor goes from ``cursor`` to ``to``."""

    group: int
    cursor: int
    to: int


@dataclass(frozen=True, slots=True)
class Buried:
    """Failed messages lie in the dead-letter subject now: in the batch at ``position`` of the message log. If a power
    cut took that batch, it took the burial, too. ``NOWHERE``: the group keeps no dead letters, they are dropped.
    """

    group: int
    first: int
    messages: int
    position: int


@dataclass(frozen=True, slots=True)
class GroupPaused:
    """A group's deliveries fail alike: it is probed only."""

    group: int
    at_ms: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class GroupResumed:
    """A probe was handled."""

    group: int


@dataclass(frozen=True, slots=True)
class Redriven:
    """Dead letters (sequences in their subject) are given to the group again, from ``at_ms`` on."""

    group: int
    at_ms: int
    ranges: Sequence[int]
    attempts: int = 0
    """Those behind them: of messages that another broker gave out before."""


@dataclass(frozen=True, slots=True)
class Purged:
    """Dead letters that nobody wants any more."""

    group: int
    ranges: Sequence[int]


NOWHERE = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Sought:
    """A group goes on at ``cursor``, skipping what was stored before ``start_ms``. What it held or had as failed is
    void.
    """

    group: int
    cursor: int
    start_ms: int


@dataclass(frozen=True, slots=True)
class Locked:
    """Only this consumer is given messages of the group, until then or until it is unlocked."""

    group: int
    consumer: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Unlocked:
    """The consumer that had the group to itself is gone; a broadcast group is silent from then on."""

    group: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Allocated:
    """A version of meta's allocation gives the partition to the consumer of that name: earlier ones count no more."""

    group: int
    version: int
    consumer: str


@dataclass(frozen=True, slots=True)
class FencePut:
    """A partition takes order keys of these logical partitions only, ``ranges`` being pairs of first and end. ``ends``
    are pairs of a partition, or a lane of it, and the sequence that was next there.
    """

    partition: int
    number: int
    ranges: Sequence[int]
    ends: Sequence[int]


@dataclass(frozen=True, slots=True)
class GroupForgotten:
    """A broadcast group whose consumer stayed away; its number is not used again."""

    group: int


@dataclass(frozen=True, slots=True)
class Removed:
    """People removed a subject, or a group of it: removal ``number`` at meta. Of each partition in ``floors`` nothing
    is there below a sequence, and its name is not there until it is named again.
    """

    subject: str
    group: str
    number: int
    floors: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class EpochBegun:
    """A master began an epoch: what lies before these positions is what it had, what follows is its own."""

    epoch: int
    message_position: int
    action_position: int


@dataclass(frozen=True, slots=True)
class Exhumed:
    """A burial did not happen: its copy is not there. The messages are doomed as before."""

    group: int
    first: int
    messages: int
    attempts: int
    since_ms: int
    fingerprint: str
    detail: FailureDetail | None = None


Action: TypeAlias = (
    Started | SubjectNamed | GroupNamed | ConsumerNamed | Synced
    | Pulled | Acked | FailedDeliveries | Extended | Parked | Released | ConsumerForgotten | Voided
    | Buried | GroupPaused | GroupResumed | Redriven | Purged
    | Sought | Locked | Unlocked | GroupForgotten | Skipped | EpochBegun | Exhumed
    | Allocated | Removed | FencePut | TransactionAction
)  # fmt: skip
