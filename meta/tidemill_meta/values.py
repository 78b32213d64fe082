"""The things that meta keeps: each a frozen value with a key and a version, written into the store as a map.

``from_map`` trusts the map: it was written by ``to_map`` of this or an earlier version of this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, Self, TypeAlias

from tidemill_meta.archive_values import Archive, ReplayRecord
from tidemill_meta.charter import GrantRecord, TokenRecord
from tidemill_meta.vanished import Vanished
from tidemill_wire.appointments import Appointment
from tidemill_wire.declarations import ConsumerGroup, Subject
from tidemill_wire.routes import PartitionSet, State, both

Consumption: TypeAlias = Literal["shared", "broadcast", "ordered"]
Service: TypeAlias = Literal["broker", "delay"]
SERVICES = ("broker", "delay")
NOBODY = ""
"""A consumer that is not known: what it was told is lost."""
Lives: TypeAlias = tuple[tuple[str, int], ...]
"""Brokers by name, each with the boot that is meant."""


class Value(Protocol):
    """What every kind has. ``version`` counts changes, from 1; 0 is a value that was never stored."""

    KIND: ClassVar[str]

    @property
    def key(self) -> str: ...

    @property
    def version(self) -> int: ...

    def to_map(self) -> dict[str, Any]: ...

    @classmethod
    def from_map(cls, key: str, version: int, body: Mapping[str, Any]) -> Self: ...


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker as it registered. ``boot`` is the number of its life, ``folder`` what its data folder is called."""

    KIND: ClassVar[str] = "broker"
    group: str
    name: str
    data: str
    control: str
    labels: tuple[tuple[str, str], ...]
    boot: int
    folder: str = ""
    version: int = 0

    @property
    def key(self) -> str:
        return broker_key(self.group, self.name)

    def to_map(self) -> dict[str, Any]:
        return {"data": self.data, "control": self.control, "labels": dict(self.labels), "boot": self.boot,
                "folder": self.folder}  # fmt: skip

    @classmethod
    def from_map(cls, key: str, version: int, body: Mapping[str, Any]) -> Broker:
        group, _, name = key.partition("/")
        labels = tuple(sorted(body["labels"].items()))
        return cls(group, name, body["data"], body["control"], labels, body["boot"], body["folder"], version)


def broker_key(group: str, name: str) -> str:
    return f"{group}/{name}"


@dataclass(frozen=True, slots=True)
class BrokerGroup:
    """A master and its slaves. Empty ``master``: nobody is appointed yet.

    ``replicas`` has the boot in which each registered last, ``in_sync`` the boot in which each was found in sync; a
    broker whose two differ was started again since, and is trusted only when nobody better lives.
    """

    KIND: ClassVar[str] = "broker_group"
    name: str
    epoch: int
    master: str
    replicas: Lives
    in_sync: Lives
    state: State = "RW"
    draining: bool = False
    version: int = 0
    retired: bool = False
    """Nothing lies on it any more."""
    service: Service = "broker"
    """What it serves: a delay group takes messages for later, and no subject lies on it."""
    unsure: bool = False
    """Who leads it, and who is in sync, may have been stored otherwise since: the store had gone back."""

    @property
    def key(self) -> str:
        return self.name

    @property
    def seated(self) -> bool:
        """Whether the master is the process that was appointed, and not a later life of it."""
        in_sync = dict(self.in_sync)
        return (
            not self.unsure
            and self.master in in_sync
            and in_sync[self.master] == dict(self.replicas).get(self.master)
        )

    @property
    def allowed(self) -> State:
        """What people let it take. Nothing while it drains: a client that has not heard of it would leave something
        there when all was consumed.
        """
        return both(self.state, "R") if self.draining else self.state

    def appointment(self) -> Appointment:
        """What its brokers are told. A master that was started again is none until it is appointed again."""
        return Appointment(
            self.name,
            self.epoch,
            self.master if self.seated else "",
            tuple(name for name, _ in self.replicas),
            tuple(name for name, _ in self.in_sync),
            self.version,
        )

    def to_map(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch, "master": self.master, "replicas": dict(self.replicas),
            "in_sync": dict(self.in_sync), "state": self.state, "draining": self.draining,
            "retired": self.retired, **({} if self.service == "broker" else {"service": self.service}),
            **({"unsure": True} if self.unsure else {}),
        }  # fmt: skip

    @classmethod
    def from_map(cls, key: str, version: int, body: Mapping[str, Any]) -> BrokerGroup:
        replicas, in_sync = tuple(body["replicas"].items()), tuple(body["in_sync"].items())
        return cls(
            key, body["epoch"], body["master"], replicas, in_sync, body["state"], body["draining"], version,
            body.get("retired", False), body.get("service", "broker"), body.get("unsure", False),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Emptying:
    """That a subject is to be removed if it is empty. Who has obeyed what was told up to ``revision`` takes nothing for
    it. ``said``: by broker group, in which epoch, what is left there, empty when nothing is.
    """

    revision: int
    said: tuple[tuple[str, int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SubjectRecord:
    """A subject, and what was declared of it; ``None``: it was made by its first use."""

    KIND: ClassVar[str] = "subject"
    name: str
    declared: Subject | None
    state: State = "RW"
    version: int = 0
    emptying: Emptying | None = None
    made_ms: int = 0
    """When it was made: another one of that name was made at another time. 0: an earlier version of meta made it."""

    @property
    def key(self) -> str:
        return self.name

    def to_map(self) -> dict[str, Any]:
        said = {
            "declared": self.declared and self.declared.to_map(),
            "state": self.state,
            "made": self.made_ms,
        }
        if self.emptying is None:
            return said
        return said | {"emptying": [self.emptying.revision, [list(one) for one in self.emptying.said]]}

    @classmethod
    def from_map(cls, key: str, version: int, body: Mapping[str, Any]) -> SubjectRecord:
        declared, asked = body["declared"], body.get("emptying")
        emptying = None if asked is None else Emptying(asked[0], tuple((*one,) for one in asked[1]))
        subject = Subject.from_map(declared) if declared else None
        return cls(key, subject, body["state"], version, emptying, body.get("made", 0))


@dataclass(frozen=True, slots=True)
class Move:
    """A next version of a route that is not in force yet: the partitions that lose order keys are still to say that
    they take none of these any more.
    """

    to: PartitionSet
    closed: tuple[str, ...] = ()
    """Those that said so."""

    def to_map(self) -> dict[str, Any]:
        return {"to": self.to.to_map(), "closed": list(self.closed)}

    @classmethod
    def from_map(cls, body: Mapping[str, Any]) -> Move:
        return cls(PartitionSet.from_map(body["to"]), tuple(body["closed"]))


@dataclass(frozen=True, slots=True)
class Succession:
    """Order keys of one partition went to another one, its heir, by a fence."""

    heir: str
    former: str
    fence: int


@dataclass(frozen=True, slots=True)
class Route:
    """All versions of a subject's route, the newest last; those that were there once never change."""

    KIND: ClassVar[str] = "route"
    subject: str
    sets: tuple[PartitionSet, ...]
    version: int = 0
    move: Move | None = None
    fence: int = 0
    """The number of the last one that brokers were told of."""
    fences: tuple[tuple[str, int], ...] = ()
    """Of partitions that lost order keys, or are about to: by which fence they know what is theirs."""
    successions: tuple[Succession, ...] = ()

    @property
    def key(self) -> str:
        return self.subject

    @property
    def current(self) -> PartitionSet:
        return self.sets[-1]

    @property
    def all_sets(self) -> tuple[PartitionSet, ...]:
        """Also the one that is not in force yet: its brokers have to be ready when it is."""
        return self.sets if self.move is None else (*self.sets, self.move.to)

    def to_map(self) -> dict[str, Any]:
        said: dict[str, Any] = {"sets": [one.to_map() for one in self.sets]}
        if self.move is not None:
            said["move"] = self.move.to_map()
        if self.fence:
            said |= {"fence": self.fence, "fences": dict(self.fences)}
            said["successions"] = [[one.heir, one.former, one.fence] for one in self.successions]
        return said

    @classmethod
    def from_map(cls, key: str, version: int, body: Mapping[str, Any]) -> Route:
        move = body.get("move")
        return cls(
            key, tuple(PartitionSet.from_map(one) for one in body["sets"]), version,
            Move.from_map(move) if move else None, body.get("fence", 0),
            tuple(body.get("fences", {}).items()),
            tuple(Succession(*row) for row in body.get("successions", ())),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConsumerGroupRecord:
    """A consumer group of a subject."""

    KIND: ClassVar[str] = "consumer_group"
    subject: str
    name: str
    consumption: Consumption
    declared: ConsumerGroup | None
    version: int = 0

    @property
    def key(self) -> str:
        return consumer_group_key(self.subject, self.name)

    def to_map(self) -> dict[str, Any]:
        return {"consumption": self.consumption, "declared": self.declared and self.declared.to_map()}

    @classmethod
    def from_map(cls, key: str, version: int, body: Mapping[str, Any]) -> ConsumerGroupRecord:
        subject, _, name = key.partition("/")
        declared = body["declared"]
        group = ConsumerGroup.from_map(declared) if declared else None
        return cls(subject, name, body["consumption"], group, version)


def consumer_group_key(subject: str, group: str) -> str:
    return f"{subject}/{group}"


@dataclass(frozen=True, slots=True)
class Former:
    """Who may still handle messages of a partition that went to another consumer in the version ``since``."""

    partition: str
    consumer: str
    since: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """Which consumer of a group in order has which partition, and who may still hold some of them."""

    KIND: ClassVar[str] = "allocation"
    subject: str
    group: str
    owners: tuple[tuple[str, str], ...] = ()
    formers: tuple[Former, ...] = ()
    version: int = 0
    alone: bool = False
    """All partitions are one consumer's."""

    @property
    def key(self) -> str:
        return consumer_group_key(self.subject, self.group)

    def to_map(self) -> dict[str, Any]:
        formers = [[one.partition, one.consumer, one.since] for one in self.formers]
        return {"owners": dict(self.owners), "formers": formers} | ({"alone": True} if self.alone else {})

    @classmethod
    def from_map(cls, key: str, version: int, body: Mapping[str, Any]) -> Allocation:
        subject, _, group = key.partition("/")
        formers = tuple(Former(*row) for row in body["formers"])
        alone = bool(body.get("alone", False))
        return cls(subject, group, tuple(body["owners"].items()), formers, version, alone)


@dataclass(frozen=True, slots=True)
class Removal:
    """That a subject was removed, or a consumer group of it. It stays: the name is not made again by its first use, and
    a broker that was away hears of it when it is back. A later removal of the same has a larger ``number``.
    """

    KIND: ClassVar[str] = "removal"
    name: str
    number: int
    groups: tuple[str, ...]
    """The broker groups where something of it may lie."""
    revision: int = 0
    """Of the commit that stored it: who was told up to there knows of it."""
    version: int = 0

    @property
    def key(self) -> str:
        return self.name

    def to_map(self) -> dict[str, Any]:
        return {"number": self.number, "groups": list(self.groups), "revision": self.revision}

    @classmethod
    def from_map(cls, key: str, version: int, body: Mapping[str, Any]) -> Removal:
        return cls(key, body["number"], tuple(body["groups"]), body["revision"], version)


@dataclass(frozen=True, slots=True)
class Passage:
    """How far a group in order has come in partitions that lost order keys: of each, the last fence of which it has
    settled all that lay before it.
    """

    KIND: ClassVar[str] = "passage"
    subject: str
    group: str
    passed: tuple[tuple[str, int], ...] = ()
    version: int = 0

    @property
    def key(self) -> str:
        return consumer_group_key(self.subject, self.group)

    def to_map(self) -> dict[str, Any]:
        return {"passed": dict(self.passed)}

    @classmethod
    def from_map(cls, key: str, version: int, body: Mapping[str, Any]) -> Passage:
        subject, _, group = key.partition("/")
        return cls(subject, group, tuple(body["passed"].items()), version)


KINDS: tuple[type[Value], ...] = (
    Broker, BrokerGroup, SubjectRecord, Route, ConsumerGroupRecord, Allocation, Passage, Removal, Vanished, Archive,
    ReplayRecord, GrantRecord, TokenRecord,
)  # fmt: skip
