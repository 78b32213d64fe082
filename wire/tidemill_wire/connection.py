"""One end of a connection, without the connection: bytes in, commands out; either end by one argument.

    state        event             next      server                      client
    OPENING      HELLO             OPEN      receives it, sends WELCOME  -
    OPENING      WELCOME           OPEN      -                           receives it
    OPENING      ERROR             CLOSED    -                           receives it
    OPEN         of the other end  OPEN      receives                    receives
    OPEN         of this end       OPEN      Rejected                    Rejected
    any          violation         CLOSED    RemoteProtocolError         RemoteProtocolError

A command that is malformed but whose frame is whole refuses that command only (``Rejected``); bytes that break the
framing, or speak before HELLO, end the connection. Until HELLO a frame is at most a few KiB, so garbage and HTTP on
the wrong port are recognised by their first 16 bytes and nothing is allocated for them. What came in the same read
before a violation is lost with the connection, what comes after the one frame that closes it is not looked at.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, TypeAlias

from tidemill_wire.commands import (
    PROTOCOL_VERSION,
    Command,
    Failed,
    Hello,
    Kind,
    Welcome,
    encode_command,
    parse_command,
)
from tidemill_wire.errors import LocalProtocolError, Refused, RemoteProtocolError, WireError
from tidemill_wire.frame import Frame, FrameDecoder
from tidemill_wire.limits import FRAME_BYTES_MAX, FRAME_GROWTH_BYTES, HELLO_BYTES_MAX


class State(Enum):
    """Where a connection is in its life."""

    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"


class Role(Enum):
    """Which end this is."""

    CLIENT = "client"
    SERVER = "server"


class Received(NamedTuple):
    """A command and the number its answer carries."""

    correlation: int
    command: Command


class Rejected(NamedTuple):
    """A command that cannot be; the connection goes on."""

    correlation: int
    error: WireError


Event: TypeAlias = Received | Rejected

# What never crosses a wire.
_WITHIN = (Kind.APPOINT, Kind.STAND, Kind.STOOD, Kind.BEGIN, Kind.HANDOVER, Kind.FENCE, Kind.FENCED)

# What an end says and never hears; the rest goes both ways.
_OWN = {
    Role.SERVER: frozenset(
        {Kind.WELCOME, Kind.SENT, Kind.PULLED, Kind.SOUGHT, Kind.FOLLOWED, Kind.CHUNK, Kind.CHECKS}
        | {Kind.CHANGED, Kind.WAITING, *_WITHIN},
    ),
    Role.CLIENT: frozenset(
        {
            Kind.HELLO,
            Kind.SEND,
            Kind.PULL,
            Kind.ACK,
            Kind.NACK,
            Kind.EXTEND,
            Kind.RELEASE,
            Kind.SEEK,
            Kind.SUSPEND,
            Kind.YIELD,
            Kind.ADOPT,
            Kind.HALF,
            Kind.DECIDE,
            Kind.CHECK,
            Kind.REDRIVE,
            Kind.PURGE,
            Kind.FOLLOW,
            Kind.REACHED,
            Kind.CANCEL,
            Kind.RESCHEDULE,
            Kind.SHOW,
            Kind.LIST,
            *_WITHIN,
        },
    ),
}


class Connection:
    """The protocol's state of one end. The caller moves the bytes."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.state = State.OPENING
        growth = FRAME_GROWTH_BYTES if role is Role.SERVER else FRAME_BYTES_MAX
        self._decoder = FrameDecoder(FRAME_BYTES_MAX, first_limit=HELLO_BYTES_MAX, growth=growth)
        self._first = Kind.HELLO if role is Role.SERVER else Kind.WELCOME
        self._own = _OWN[role]

    @property
    def pending(self) -> int:
        """Bytes of a frame that is not whole yet: what a slow peer makes this side hold."""
        return self._decoder.pending

    def buffer(self) -> memoryview:
        """Where the next bytes go."""
        return self._decoder.buffer()

    def advance(self, count: int) -> list[Event]:
        """``count`` bytes came into ``buffer()``; what they say."""
        if self.state is State.CLOSED:
            raise LocalProtocolError("malformed_frame", "bytes for a connection that is closed")
        try:
            frames = self._decoder.advance(count)
            if self.state is State.OPENING and frames:
                events = self._begin(frames)
            else:
                events = [self._understand(frame) for frame in frames]
            if self._decoder.violation is not None and self.state is State.OPEN:
                raise self._decoder.violation
            return events
        except RemoteProtocolError as error:
            opening = self.state is State.OPENING
            self.state = State.CLOSED
            if opening and error.reason == "frame_too_large":
                raise RemoteProtocolError("not_tidemill", "the first bytes are not tidemill's") from error
            raise

    def feed(self, data: bytes) -> list[Event]:
        """The same for bytes that are somewhere else already."""
        events: list[Event] = []
        rest = memoryview(data)
        while rest:
            with self.buffer() as room:
                count = min(len(room), len(rest))
                room[:count] = rest[:count]
            rest = rest[count:]
            events += self.advance(count)
            if self.state is State.CLOSED:
                break
        return events

    def greet(self, client: str, token: str = "") -> bytes:
        """The client's first bytes; ``token`` says who it is, where that is asked."""
        return encode_command(Hello(PROTOCOL_VERSION, PROTOCOL_VERSION, client, token), 0)

    def welcome(self, broker: str, epoch: int) -> bytes:
        """The server's first bytes, after a HELLO was received."""
        return encode_command(Welcome(PROTOCOL_VERSION, broker, epoch), 0)

    def _begin(self, frames: list[Frame]) -> list[Event]:
        first = self._open(frames[0])
        rest = frames[1:] if self.state is State.OPEN else []
        return [first, *map(self._understand, rest)]

    def _understand(self, frame: Frame) -> Event:
        if frame.type == self._first:
            raise RemoteProtocolError("malformed_frame", f"a second {Kind(frame.type).name}")
        if frame.type in self._own:
            detail = f"{Kind(frame.type).name} is what a {self.role.value} says, not what it is told"
            return Rejected(frame.correlation, Refused("malformed_command", detail))
        try:
            return Received(frame.correlation, parse_command(frame))
        except WireError as error:
            return Rejected(frame.correlation, error)

    def _open(self, frame: Frame) -> Event:
        refusal = frame.type == Kind.ERROR and self.role is Role.CLIENT
        if frame.type != self._first and not refusal:
            raise RemoteProtocolError(
                "not_tidemill", f"the first frame has type {frame.type}, not {self._first.name}"
            )
        try:
            command = parse_command(frame)
        except Refused as error:
            raise RemoteProtocolError("malformed_frame", error.detail) from error
        if isinstance(command, Failed):
            self.state = State.CLOSED
            return Rejected(frame.correlation, command.error)
        if isinstance(command, Hello) and not command.version_min <= PROTOCOL_VERSION <= command.version_max:
            spoken = f"versions {command.version_min} to {command.version_max}"
            raise RemoteProtocolError(
                "unsupported_version", f"the client speaks {spoken}, not {PROTOCOL_VERSION}"
            )
        if isinstance(command, Welcome) and command.version != PROTOCOL_VERSION:
            raise RemoteProtocolError(
                "unsupported_version", f"the broker answers in version {command.version}"
            )
        self.state = State.OPEN
        return Received(frame.correlation, command)
