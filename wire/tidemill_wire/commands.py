"""What client and broker say to each other, as values.

A control body is one msgpack map. ``SEND`` and ``WITH_BATCHES`` carry batches raw: a ``SEND`` is nothing but
batches back to back, the others begin with the length of its map (u32), the map, and zeros up to a multiple of 8.
``parse_command`` is the only way from bytes to a command: a command that exists is within its limits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, cast

import msgpack

from tidemill_wire import limits
from tidemill_wire.adopting import PARSERS as ADOPTING
from tidemill_wire.adopting import Adopt
from tidemill_wire.batch import aligned
from tidemill_wire.burying import PARSERS as BURYING
from tidemill_wire.burying import Purge, Redrive
from tidemill_wire.deduplication import ROW as DUPLICATE
from tidemill_wire.errors import WireError, wire_error
from tidemill_wire.fencing import PARSERS as FENCING
from tidemill_wire.fencing import Fencing
from tidemill_wire.fields import Fields, malformed, packed
from tidemill_wire.filters import EVERYTHING, TagFilter, read_filter
from tidemill_wire.frame import Frame, encode_frame
from tidemill_wire.grants import Grant, read_grants
from tidemill_wire.kinds import Kind, Mode, Start
from tidemill_wire.pulling import PARSERS as PULLING
from tidemill_wire.pulling import Pull
from tidemill_wire.quotas import Meter
from tidemill_wire.ranges import pairs
from tidemill_wire.replication import REPLICATION, Chunk, Replicating
from tidemill_wire.settling import PARSERS as SETTLING
from tidemill_wire.settling import Ack, Extend, Nack, Release, Settle
from tidemill_wire.steering import PARSERS as STEERING
from tidemill_wire.steering import Seek, Sought, Suspend
from tidemill_wire.timing import PARSERS as TIMING
from tidemill_wire.timing import Timing
from tidemill_wire.transacting import PARSERS as TRANSACTING
from tidemill_wire.transacting import Checks, Half, Transacting
from tidemill_wire.yielding import PARSERS as YIELDING
from tidemill_wire.yielding import Yield

__all__ = [
    "CONTROL_SIZE", "PROTOCOL_VERSION", "Ack", "Adopt", "Command", "Done", "Extend", "Failed", "Goodbye", "Grant",
    "Hello", "Kind", "Mode", "Nack", "Ping", "Pull", "Pulled", "Purge", "Redrive", "Release", "SendBatches", "Sent",
    "Settle", "Start", "Welcome", "Yield", "encode_command", "parse_command",
]  # fmt: skip

PROTOCOL_VERSION = 1
CONTROL_SIZE = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame of a client: who it is and the protocol versions it speaks."""

    kind: ClassVar = Kind.HELLO
    version_min: int
    version_max: int
    client: str
    token: str = field(default="", repr=False)
    """By which the server knows who it is. No trace of it is left in a log."""

    def fields(self) -> dict[str, Any]:
        said = {"min": self.version_min, "max": self.version_max, "client": self.client}
        return said | {"token": self.token} if self.token else said


@dataclass(frozen=True, slots=True)
class Welcome:
    """The broker's answer to HELLO; other frames may follow it, not precede it."""

    kind: ClassVar = Kind.WELCOME
    version: int
    broker: str
    epoch: int

    def fields(self) -> dict[str, Any]:
        return {"version": self.version, "broker": self.broker, "epoch": self.epoch}


@dataclass(frozen=True, slots=True)
class Failed:
    """An answer that says no: a row of the error table and a sentence."""

    kind: ClassVar = Kind.ERROR
    number: int
    detail: str
    wait_ms: int = 0
    """Before that it is not to be asked again; 0: nothing is said of it."""

    @property
    def error(self) -> WireError:
        """As whoever asked raises it."""
        return wire_error(self.number, self.detail, self.wait_ms)

    def fields(self) -> dict[str, Any]:
        said: dict[str, Any] = {"number": self.number, "detail": self.detail[: limits.DETAIL_CHARS_MAX]}
        return said | {"wait": self.wait_ms} if self.wait_ms else said


@dataclass(frozen=True, slots=True)
class Done:
    """An answer that says yes. ``lost`` are ranges whose lease was gone: they were, or will be, given out again."""

    kind: ClassVar = Kind.DONE
    lost: Sequence[int] = ()
    count: int = 0
    """How many messages a REDRIVE or PURGE concerned."""

    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"lost": packed(self.lost)} if self.lost else {}
        return fields | {"count": self.count} if self.count else fields


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you there? Answered with DONE."""

    kind: ClassVar = Kind.PING

    def fields(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The sender stops: a client after it released its leases, a broker that drains. No answer."""

    kind: ClassVar = Kind.GOODBYE
    reason: str

    def fields(self) -> dict[str, Any]:
        return {"reason": self.reason[: limits.DETAIL_CHARS_MAX]}


@dataclass(frozen=True, slots=True)
class SendBatches:
    """Batches to store, back to back. The buffer belongs to the receiver, who stamps them in place."""

    kind: ClassVar = Kind.SEND
    batches: bytearray
    refused: Mapping[int, WireError] | None = None
    """Which of them are not to be stored, by their place, and why; nothing that crosses a wire."""
    payer: Meter | None = None
    """Who pays for them, where that has a quota; nothing that crosses a wire, either."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One first sequence a batch, in their order; refused ones have -1 and a (index, error number, detail)."""

    kind: ClassVar = Kind.SENT
    first_sequences: Sequence[int]
    refused: Sequence[tuple[int, int, str]] = ()
    duplicates: Sequence[tuple[int, bytes]] = ()
    """Of a batch that held messages which were stored before: its index, and ``deduplication.packed_rows``."""
    waits: Sequence[int] = ()
    """Of refused ones that are to wait: pairs of an index and milliseconds."""

    @property
    def errors(self) -> dict[int, WireError]:
        """Why batches were refused, by their index."""
        waits = dict(pairs(self.waits))
        return {
            index: wire_error(number, detail, waits.get(index, 0)) for index, number, detail in self.refused
        }

    def fields(self) -> dict[str, Any]:
        refused = [
            (index, number, detail if told < limits.REFUSALS_TOLD_MAX else detail[: limits.REFUSAL_CHARS_MAX])
            for told, (index, number, detail) in enumerate(self.refused)
        ]
        said: dict[str, Any] = {"first": packed(self.first_sequences), "refused": refused}
        if self.duplicates:
            said["duplicates"] = list(self.duplicates)
        if self.waits:
            said["waits"] = packed(self.waits)
        return said


@dataclass(frozen=True, slots=True)
class Pulled:
    """Grants, and after the map the batches they are in, in the order of the grants."""

    kind: ClassVar = Kind.PULLED
    grants: Sequence[Grant]
    lease_ms: int
    batches: memoryview = memoryview(b"")
    ordered: bool = False
    """The group is consumed in order: when one message fails, those behind it are taken back."""
    filter: TagFilter = EVERYTHING
    """That of the group. The broker compares hashes, so the consumer compares texts."""

    def fields(self) -> dict[str, Any]:
        rows = [grant.row() for grant in self.grants]
        said = {"grants": rows, "lease": self.lease_ms} | self.filter.fields()
        return said | {"ordered": True} if self.ordered else said


Command: TypeAlias = (
    Hello | Welcome | Failed | Done | Ping | Goodbye | SendBatches | Sent
    | Pull | Pulled | Ack | Nack | Extend | Release | Redrive | Purge | Seek | Sought | Suspend | Replicating
    | Yield | Fencing | Adopt | Transacting | Timing
)  # fmt: skip


def encode_command(command: Command, correlation: int, trailing: int = 0) -> bytes:
    """The bytes of a frame. Of one that carries batches, ``trailing`` bytes follow from elsewhere, after its own."""
    if isinstance(command, SendBatches):
        return encode_frame(Kind.SEND, correlation, bytes(command.batches))
    control = _pack(command.fields())
    if isinstance(command, (Pulled, Chunk, Adopt, Half, Checks)):
        size = CONTROL_SIZE.size + len(control)
        padding = bytes(aligned(size) - size)
        raw = (
            command.batches if isinstance(command, (Pulled, Checks))
            else command.data if isinstance(command, Chunk) else command.batch
        )  # fmt: skip
        return encode_frame(
            command.kind, correlation, CONTROL_SIZE.pack(len(control)), control, padding, bytes(raw),
            trailing=trailing,
        )  # fmt: skip
    return encode_frame(command.kind, correlation, control)


# Reasons may hold what UTF-8 cannot say, as names of files do: it becomes a question mark.
_pack = cast("Callable[[Any], bytes]", msgpack.Packer(autoreset=True, unicode_errors="replace").pack)


_U32 = 0xFFFF_FFFF
_I63 = 0x7FFF_FFFF_FFFF_FFFF


def _parse_hello(f: Fields, _body: bytearray) -> Hello:
    return Hello(
        f.number("min", 1, _U32),
        f.number("max", 1, _U32),
        f.text("client", 200),
        f.text("token", limits.TOKEN_CHARS_MAX, ""),
    )


def _parse_welcome(f: Fields, _body: bytearray) -> Welcome:
    return Welcome(f.number("version", 1, _U32), f.text("broker", 300), f.number("epoch", 0, _U32))


def _parse_failed(f: Fields, _body: bytearray) -> Failed:
    return Failed(
        f.number("number", 0, _U32), f.text("detail", limits.DETAIL_CHARS_MAX), f.number("wait", 0, _I63, 0)
    )


def _parse_sent(f: Fields, _body: bytearray) -> Sent:
    firsts = f.longs("first", limits.CONTROL_BYTES_MAX // 8)
    refused: list[tuple[int, int, str]] = []
    for row in f.items("refused", len(firsts)):
        match row:
            case [int(index), int(number), str(detail)] if 0 <= index < len(firsts) and 0 <= number <= _U32:
                refused.append((index, number, detail))
            case _:
                raise malformed("field 'refused' holds something else than (index, number, detail)")
    duplicates: list[tuple[int, bytes]] = []
    for row in f.items("duplicates", len(firsts)):
        match row:
            case [int(index), bytes(rows)] if 0 <= index < len(firsts) and not len(rows) % DUPLICATE.size:
                duplicates.append((index, rows))
            case _:
                raise malformed("field 'duplicates' holds something else than (index, rows)")
    waits = f.longs("waits", 2 * len(firsts))
    if len(waits) % 2 or not all(0 <= index < len(firsts) and ms > 0 for index, ms in pairs(waits)):
        raise malformed("field 'waits' holds something else than pairs of an index and a time")
    return Sent(firsts, refused, tuple(duplicates), tuple(waits))


def _parse_pulled(f: Fields, body: bytearray) -> Pulled:
    size = CONTROL_SIZE.size + CONTROL_SIZE.unpack_from(body)[0]
    lease_ms = f.number("lease", 0, limits.LEASE_MS_MAX)
    return Pulled(
        read_grants(f), lease_ms, memoryview(body)[aligned(size) :], f.flag("ordered"), read_filter(f)
    )


_PARSERS: dict[int, Callable[[Fields, bytearray], Command]] = {
    Kind.HELLO: _parse_hello,
    Kind.WELCOME: _parse_welcome,
    Kind.ERROR: _parse_failed,
    Kind.DONE: lambda f, _body: Done(f.ranges("lost", limits.RANGES_MAX), f.number("count", 0, _I63, 0)),
    Kind.PING: lambda _f, _body: Ping(),
    Kind.GOODBYE: lambda f, _body: Goodbye(f.text("reason", limits.DETAIL_CHARS_MAX)),
    Kind.SENT: _parse_sent,
    Kind.PULLED: _parse_pulled,
    **SETTLING,
    **PULLING,
    **BURYING,
    **STEERING,
    **YIELDING,
    **ADOPTING,
    **REPLICATION,
    **FENCING,
    **TRANSACTING,
    **TIMING,
}


WITH_BATCHES = frozenset({Kind.PULLED, Kind.CHUNK, Kind.ADOPT, Kind.HALF, Kind.CHECKS})
"""Commands whose map is followed by bytes as they lie in a log."""


def parse_command(frame: Frame) -> Command:
    """The command in a frame, proven to be within its limits, or ``Refused`` with what is wrong."""
    if frame.type == Kind.SEND:
        if not frame.body:
            raise malformed("a SEND without a batch")
        return SendBatches(frame.body)
    parser = _PARSERS.get(frame.type)
    if parser is None:
        raise malformed(f"a frame of type {frame.type}, which this side does not know")
    if frame.type in WITH_BATCHES:
        control = _control_part(frame.body)
        return parser(Fields(control, limits.GRANTS_MAX, limits.CONTROL_BYTES_MAX), frame.body)
    if frame.type == Kind.WAITING:
        return parser(Fields(frame.body, limits.TIMERS_PAGE_MAX, limits.CONTROL_BYTES_MAX), frame.body)
    if frame.type == Kind.SENT:
        return parser(Fields(frame.body, limits.RANGES_MAX, limits.CONTROL_BYTES_MAX), frame.body)
    return parser(Fields(frame.body), frame.body)


def _control_part(body: bytearray) -> memoryview:
    if len(body) < CONTROL_SIZE.size:
        raise malformed("a frame without its control part")
    size = CONTROL_SIZE.unpack_from(body)[0]
    if CONTROL_SIZE.size + size > len(body):
        raise malformed("a frame whose control part is cut off")
    return memoryview(body)[CONTROL_SIZE.size : CONTROL_SIZE.size + size]
