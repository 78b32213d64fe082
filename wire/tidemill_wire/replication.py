"""What brokers of a group say to each other, and what a broker and its own process do.

A CHUNK is laid out as a PULLED: the length of its map (u32), the map, zeros up to a multiple of 8, and raw bytes of a
log. APPOINT, STAND, STOOD and BEGIN never cross a wire: no end of a connection takes them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Any, ClassVar, NamedTuple, TypeAlias

from tidemill_wire.appointments import Appointment
from tidemill_wire.errors import Refused
from tidemill_wire.fields import Fields, malformed, packed
from tidemill_wire.kinds import Kind
from tidemill_wire.limits import EPOCHS_MAX, REPLICAS_MAX

_I63 = 0x7FFF_FFFF_FFFF_FFFF
_U32 = 0xFFFF_FFFF
_SIZE = struct.Struct("<I")


class Log(IntEnum):
    """What a CHUNK holds a piece of."""

    MESSAGES = 0
    ACTIONS = 1
    SNAPSHOT = 2
    FILES = 3
    """Of what a snapshot does not hold itself: ``base`` counts the files that it names."""


class Marks(IntFlag):
    """What is special about a CHUNK."""

    SYNC = 1
    """Somebody waits for the disk."""
    LEVEL = 2
    """Behind it both logs are as they were after one and the same ``Ready`` of the master."""


class Ends(NamedTuple):
    """Positions in both logs."""

    message: int
    action: int


class EpochStart(NamedTuple):
    """Where an epoch began in both logs."""

    epoch: int
    message: int
    action: int


@dataclass(frozen=True, slots=True)
class Follow:
    """A slave asks its master for what it has not got."""

    kind: ClassVar = Kind.FOLLOW
    name: str
    epoch: int
    """The one that the slave was appointed for."""
    history: Sequence[EpochStart]
    """The epochs in its log."""
    ends: Ends

    def fields(self) -> dict[str, Any]:
        history = packed([number for start in self.history for number in start])
        return {"name": self.name, "epoch": self.epoch, "history": history, "ends": packed(self.ends)}


@dataclass(frozen=True, slots=True)
class Followed:
    """From where both logs go on. ``anew``: as if the slave had nothing; ``snapshot`` bytes of state come first."""

    kind: ClassVar = Kind.FOLLOWED
    epoch: int
    start: Ends
    anew: bool = False
    snapshot: int = 0
    level: Ends = Ends(0, 0)
    """Up to where the snapshot holds."""

    def fields(self) -> dict[str, Any]:
        said: dict[str, Any] = {"epoch": self.epoch, "start": packed(self.start), "anew": self.anew}
        return said | ({"snapshot": self.snapshot, "level": packed(self.level)} if self.snapshot else {})


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a log, of the segment that begins at ``base``."""

    kind: ClassVar = Kind.CHUNK
    epoch: int
    log: Log
    base: int
    position: int
    marks: Marks
    committed: Ends
    data: memoryview = memoryview(b"")

    def fields(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch, "log": int(self.log), "base": self.base, "position": self.position,
            "marks": int(self.marks), "committed": packed(self.committed),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the logs of a slave have come: in its page cache, and on its disk."""

    kind: ClassVar = Kind.REACHED
    epoch: int
    written: Ends
    synced: Ends
    copied: int = 0
    """Bytes of files that came with a snapshot."""

    def fields(self) -> dict[str, Any]:
        said = {"epoch": self.epoch, "written": packed(self.written), "synced": packed(self.synced)}
        return said | ({"copied": self.copied} if self.copied else {})


@dataclass(frozen=True, slots=True)
class Appoint:
    """Meta has decided. ``addresses``: where the brokers of the group listen, as host:port. Answered with DONE."""

    kind: ClassVar = Kind.APPOINT
    appointment: Appointment
    addresses: Mapping[str, str] = field(default_factory=dict[str, str])
    lease_ms: int = 0
    """Of a master that is in sync alone: how long it may go on without meta; 0: nobody said."""
    asked_ms: int = 0
    """From when the lease counts: the broker's own time, at which it STOOD so."""

    def fields(self) -> dict[str, Any]:
        one = self.appointment
        lease = {"lease": self.lease_ms, "asked": self.asked_ms} if self.lease_ms else {}
        return lease | {
            "group": one.group, "epoch": one.epoch, "master": one.master, "replicas": list(one.replicas),
            "in_sync": list(one.in_sync), "version": one.version, "addresses": dict(self.addresses),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stand:
    """How does it stand with this broker? ``asks``: what it wishes will be granted or refused. Answered with STOOD."""

    kind: ClassVar = Kind.STAND
    asks: bool = False

    def fields(self) -> dict[str, Any]:
        return {"asks": self.asks}


@dataclass(frozen=True, slots=True)
class Stood:
    """What a broker is, how far its logs have come, and which replicas it wishes to be in sync."""

    kind: ClassVar = Kind.STOOD
    name: str
    role: str
    epoch: int
    version: int
    begun: int
    """The newest epoch in its log."""
    ends: Ends
    committed: Ends
    master: str = ""
    wish: Sequence[str] | None = None
    """Who is to be in sync: nothing, as long as the set is as it should be."""
    slaves: Mapping[str, Ends] = field(default_factory=dict[str, Ends])
    at_ms: int = 0
    """When, by its own clock."""
    in_sync: Sequence[str] = ()
    """Of a master: itself, and all that meta may take for in sync."""

    def fields(self) -> dict[str, Any]:
        said: dict[str, Any] = {
            "name": self.name, "role": self.role, "epoch": self.epoch, "version": self.version, "begun": self.begun,
            "ends": packed(self.ends), "committed": packed(self.committed), "master": self.master,
            "slaves": {name: packed(ends) for name, ends in self.slaves.items()},
        }  # fmt: skip
        said |= {"at": self.at_ms} if self.at_ms else {}
        said |= {"in_sync": list(self.in_sync)} if self.in_sync else {}
        return said if self.wish is None else said | {"wish": list(self.wish)}


@dataclass(frozen=True, slots=True)
class Begin:
    """A machine tells its own process: end me, and begin as the appointment says, with logs cut there."""

    kind: ClassVar = Kind.BEGIN
    appoint: Appoint
    cut: Ends | None = None
    anew: bool = False
    """With nothing."""

    def fields(self) -> dict[str, Any]:
        cut = {} if self.cut is None else {"cut": packed(self.cut)}
        return self.appoint.fields() | {"anew": self.anew} | cut


@dataclass(frozen=True, slots=True)
class Handover:
    """A master is to take no more work, and to say DONE when that slave has all it has. Somebody appoints it then."""

    kind: ClassVar = Kind.HANDOVER
    to: str

    def fields(self) -> dict[str, Any]:
        return {"to": self.to}


Replicating: TypeAlias = Follow | Followed | Chunk | Reached | Appoint | Stand | Stood | Begin | Handover


def _ends(f: Fields, name: str) -> Ends:
    values = f.longs(name, 2)
    if len(values) != 2 or min(values) < 0:
        raise malformed(f"field {name!r} is not two positions")
    return Ends(*values)


def _names(f: Fields, name: str) -> tuple[str, ...]:
    names = f.items(name, REPLICAS_MAX)
    if any(type(one) is not str for one in names):
        raise malformed(f"field {name!r} is not a list of names")
    return tuple(names)


def _parse_follow(f: Fields, _body: bytearray) -> Follow:
    numbers = f.longs("history", 3 * EPOCHS_MAX)
    if len(numbers) % 3 or any(number < 0 for number in numbers):
        raise malformed("field 'history' does not hold epochs and where they began")
    history = [EpochStart(*numbers[at : at + 3]) for at in range(0, len(numbers), 3)]
    return Follow(f.text("name", 200), f.number("epoch", 0, _U32), history, _ends(f, "ends"))


def _parse_followed(f: Fields, _body: bytearray) -> Followed:
    epoch, start, anew = f.number("epoch", 0, _U32), _ends(f, "start"), f.flag("anew")
    if not f.has("snapshot"):
        return Followed(epoch, start, anew)
    return Followed(epoch, start, anew, f.number("snapshot", 0, _I63), _ends(f, "level"))


def _parse_chunk(f: Fields, body: bytearray) -> Chunk:
    size = (_SIZE.size + _SIZE.unpack_from(body)[0] + 7) & ~7
    return Chunk(
        f.number("epoch", 0, _U32),
        Log(f.number("log", 0, max(Log))),
        f.number("base", 0, _I63),
        f.number("position", 0, _I63),
        Marks(f.number("marks", 0, 3)),
        _ends(f, "committed"),
        memoryview(body)[size:],
    )


def _parse_reached(f: Fields, _body: bytearray) -> Reached:
    copied = f.number("copied", 0, _I63) if f.has("copied") else 0
    return Reached(f.number("epoch", 0, _U32), _ends(f, "written"), _ends(f, "synced"), copied)


def parse_appoint(f: Fields) -> Appoint:
    """An appointment that can be."""
    appointment = Appointment(
        f.text("group", 100), f.number("epoch", 1, _U32), f.text("master", 200), _names(f, "replicas"),
        _names(f, "in_sync"), f.number("version", 0, _I63),
    )  # fmt: skip
    strangers = {appointment.master, *appointment.in_sync} - set(appointment.replicas)
    if appointment.master not in appointment.in_sync or strangers:
        raise Refused("malformed_command", "the master is one of those in sync, and they are replicas")
    if not f.has("lease"):
        return Appoint(appointment, _addresses(f))
    return Appoint(appointment, _addresses(f), f.number("lease", 0, _U32), f.number("asked", 0, _I63))


def _addresses(f: Fields) -> dict[str, str]:
    found = f.map("addresses", REPLICAS_MAX)
    if any(type(name) is not str or type(value) is not str for name, value in found.items()):
        raise malformed("field 'addresses' is not a map of texts")
    return found


def _parse_stood(f: Fields, _body: bytearray) -> Stood:
    slaves = f.map("slaves", REPLICAS_MAX)
    return Stood(
        f.text("name", 200), f.text("role", 20), f.number("epoch", 0, _U32), f.number("version", 0, _I63),
        f.number("begun", 0, _U32), _ends(f, "ends"), _ends(f, "committed"), f.text("master", 200),
        _names(f, "wish") if f.has("wish") else None,
        {name: Ends(*_SLAVE.unpack(value)) for name, value in slaves.items()},
        f.number("at", 0, _I63) if f.has("at") else 0,
        _names(f, "in_sync") if f.has("in_sync") else (),
    )  # fmt: skip


_SLAVE = struct.Struct("=qq")


def _parse_begin(f: Fields, _body: bytearray) -> Begin:
    return Begin(parse_appoint(f), _ends(f, "cut") if f.has("cut") else None, f.flag("anew"))


REPLICATION: dict[int, Callable[[Fields, bytearray], Replicating]] = {
    Kind.FOLLOW: _parse_follow,
    Kind.FOLLOWED: _parse_followed,
    Kind.CHUNK: _parse_chunk,
    Kind.REACHED: _parse_reached,
    Kind.APPOINT: lambda f, _body: parse_appoint(f),
    Kind.STAND: lambda f, _body: Stand(f.flag("asks")),
    Kind.STOOD: _parse_stood,
    Kind.BEGIN: _parse_begin,
    Kind.HANDOVER: lambda f, _body: Handover(f.text("to", 200)),
}
