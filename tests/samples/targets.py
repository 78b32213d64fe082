"""What must hold for any bytes at all: they are understood, or refused with an error that has a name.

Each target takes bytes and returns nothing; whatever it raises is a defect. ``fuzz_wire`` and property tests feed it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from crc32c import crc32c

from samples.batches import values
from samples.commands import comparable
from tidemill_wire.batch import (
    CHECKED_FROM,
    HEADER_BYTES,
    MAGIC,
    PREFIX,
    STAMP_BYTES,
    STAMP_CRC,
    VERSION,
    check_stamp,
    read_header,
)
from tidemill_wire.columns import split_batches
from tidemill_wire.commands import Command, encode_command, parse_command
from tidemill_wire.connection import Connection, Event, Received, Role, State
from tidemill_wire.errors import CorruptBatch, RemoteProtocolError, WireError
from tidemill_wire.frame import Frame, FrameDecoder


def read_batches(data: bytes) -> None:
    """Bytes that claim to be batches."""
    try:
        for batch in split_batches(data):
            values(batch)
            check_stamp(data, 0, read_header(data))
    except CorruptBatch:
        pass


def read_sealed_batch(data: bytes) -> None:
    """As above, with magic, length, version and checksum put right: so that the columns are reached."""
    batch = bytearray(data.ljust(HEADER_BYTES, b"\0"))
    batch += bytes(-len(batch) % 8)
    PREFIX.pack_into(batch, 0, MAGIC, len(batch))
    batch[CHECKED_FROM] = VERSION
    STAMP_CRC.pack_into(batch, STAMP_BYTES, crc32c(memoryview(batch)[CHECKED_FROM:]))
    read_batches(bytes(batch))


def read_command(data: bytes) -> None:
    """The first byte is the type of the frame, the rest its body. What was understood is said again the same."""
    frame = Frame(data[0] if data else 0, 0, 1, bytearray(data[1:]))
    try:
        command = parse_command(frame)
    except WireError:
        return
    again = parse_command(FrameDecoder().feed(encode_command(command, 1))[0])
    assert comparable(again) == comparable(command)


def hear(role: Role, pieces: list[bytes]) -> tuple[list[Event], str | None]:
    """The events of one end that is told these pieces, and the reason if that broke it."""
    connection = Connection(role)
    events: list[Event] = []
    for piece in pieces:
        try:
            events += connection.feed(piece)
        except RemoteProtocolError as error:
            assert connection.state is State.CLOSED
            return events, error.reason
        if connection.state is State.CLOSED:
            break
    return events, None


def repr_of(command: Command) -> str:
    """As ``repr``, with the bytes of a view instead of its address."""
    held = [getattr(command, each.name) for each in fields(command)]
    shown = [bytes(one) if isinstance(one, memoryview) else one for one in held]
    return f"{type(command).__name__} {shown}"


def said(events: list[Event]) -> list[tuple[int, str]]:
    """Events as text, so that they can be compared."""
    return [
        (event.correlation, repr_of(event.command) if isinstance(event, Received) else str(event.error))
        for event in events
    ]


def read_stream(data: bytes) -> None:
    """Bytes from a socket: whole and byte by byte they say the same, but for what a violation takes along."""
    for role in Role:
        whole, broken = hear(role, [data])
        single, broken_later = hear(role, [data[at : at + 1] for at in range(len(data))])
        assert broken == broken_later
        assert said(single)[: len(whole)] == said(whole)
        assert broken or len(single) == len(whole)


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (read_batches, read_sealed_batch, read_command, read_stream)
}
