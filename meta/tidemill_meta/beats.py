"""What brokers and clients say each time that they are there, and how replicas tell it to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast

from tidemill_meta.asked import Asked
from tidemill_meta.storing import KNOWN_MAX
from tidemill_meta.values import Consumption, broker_key, consumer_group_key
from tidemill_wire.routes import State

Role: TypeAlias = Literal["master", "slave", "none"]
Asks: TypeAlias = Consumption | Literal["exclusive"]
"""How a consumer asks for its group. Exclusive is in order, and all of it for one consumer."""
ROLES = ("master", "slave", "none")
CONSUMPTIONS = ("shared", "broadcast", "ordered", "exclusive")
BROKER_FIELDS = frozenset(
    {"group", "name", "boot", "epoch", "positions", "load", "state", "role", "told", "known", "in_sync"}
)
CLIENT_FIELDS = frozenset({"client", "produces", "consumes", "known"})
CONSUMES_FIELDS = frozenset({"subject", "group", "consumer", "consumption", "allocation"})


@dataclass(frozen=True, slots=True)
class BrokerBeat:
    """One heartbeat of a broker. ``load`` is 0 for an idle broker and 1 for one that can do no more."""

    group: str
    name: str
    boot: int
    epoch: int = 0
    messages: int = 0
    actions: int = 0
    load: float = 0.0
    state: State = "RW"
    role: Role = "none"
    told: int = 0
    """Of a master: the revision up to which it did what people said, so that its group keeps it."""
    in_sync: tuple[str, ...] = ()
    """Of a master: whom it takes for in sync, or has asked for. Empty: it does not say."""
    known: int = 0
    """The revision that it was answered last."""

    @property
    def key(self) -> str:
        return broker_life(self.group, self.name, self.boot)


def broker_life(group: str, name: str, boot: int) -> str:
    """The key of one life of a broker."""
    return f"{broker_key(group, name)}#{boot}"


@dataclass(frozen=True, slots=True)
class Consumes:
    """That a client consumes. ``allocation`` is the version that it has applied: what it lost by it, it has let go."""

    subject: str
    group: str
    consumer: str
    consumption: Asks = "shared"
    allocation: int = 0

    @property
    def key(self) -> str:
        return consumer_group_key(self.subject, self.group)

    @property
    def of_group(self) -> Consumption:
        """What a group is that is made by this use."""
        return "ordered" if self.consumption == "exclusive" else self.consumption


@dataclass(frozen=True, slots=True)
class ClientBeat:
    """One heartbeat of a client process."""

    client: str
    produces: tuple[str, ...] = ()
    consumes: tuple[Consumes, ...] = ()
    who: str = ""
    """The identity that said it; empty: an earlier version heard it."""

    @property
    def subjects(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.produces, *(one.subject for one in self.consumes))))


def parse_broker_beat(body: object) -> BrokerBeat:
    """From a request."""
    asked = Asked(body, BROKER_FIELDS)
    positions = asked.part("positions", frozenset({"messages", "actions"}))
    return BrokerBeat(
        asked.name("group"),
        asked.name("name"),
        asked.whole("boot"),
        asked.whole("epoch", 0),
        positions.whole("messages", 0),
        positions.whole("actions", 0),
        asked.number("load", 0.0),
        asked.state("state", "RW"),
        cast("Role", asked.one_of("role", ROLES, "none")),
        asked.whole("told", 0),
        asked.names("in_sync"),
        asked.whole("known", 0, KNOWN_MAX),
    )


def parse_client_beat(body: object) -> ClientBeat:
    """From a request."""
    asked = Asked(body, CLIENT_FIELDS)
    client = asked.consumer("client")
    return ClientBeat(
        client,
        asked.subjects("produces"),
        tuple(_parse_consumes(one, client) for one in asked.items("consumes")),
    )


def _parse_consumes(body: object, client: str) -> Consumes:
    asked = Asked(body, CONSUMES_FIELDS)
    return Consumes(
        asked.subject("subject"),
        asked.group("group"),
        asked.consumer("consumer", client),
        cast("Asks", asked.one_of("consumption", CONSUMPTIONS, "shared")),
        asked.whole("allocation", 0),
    )


def pack_broker(beat: BrokerBeat) -> list[Any]:
    return [
        beat.group, beat.name, beat.boot, beat.epoch, beat.messages, beat.actions, beat.load, beat.state,
        beat.role, beat.told, beat.in_sync,
    ]  # fmt: skip


def unpack_broker(row: list[Any]) -> BrokerBeat:
    """What ``pack_broker`` of another replica, perhaps of another version, made."""
    said = BrokerBeat(*row[:10])
    return replace(said, in_sync=tuple(row[10])) if len(row) > 10 else said


def pack_client(beat: ClientBeat) -> Mapping[str, Any]:
    return {
        "client": beat.client,
        "produces": beat.produces,
        "who": beat.who,
        "consumes": [
            (one.subject, one.group, one.consumer, one.consumption, one.allocation) for one in beat.consumes
        ],
    }


def unpack_client(row: Mapping[str, Any]) -> ClientBeat:
    consumes = tuple(Consumes(*one[:5]) for one in row["consumes"])
    return ClientBeat(row["client"], tuple(row["produces"]), consumes, row.get("who", ""))
