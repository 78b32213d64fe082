"""The spool of acks: what became of deliveries and could not be told. Blocking; the keeper calls it in an executor.

     0  magic "TMACKS01"
     8  records: length u32, crc32c u32, msgpack
          [1, number, at_ms, broker group, frame]   kept: an ACK, NACK or RELEASE as it goes over the wire
          [2, numbers: u64 each]                    told: these were answered, or dropped

Kept records are synced before anybody is told that they are. A note of what was told is not: lost with the power, it
lets an ack be told twice. A torn record at the end is cut. When told records outweigh the others, and when the file is
opened, it is written anew without them; so it is, too, before anything is added behind a write that failed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, cast

import msgpack
from crc32c import crc32c

from tidemill.ack_file import AckFile
from tidemill.errors import SpoolUnusable, WireError
from tidemill_wire.commands import Ack, Nack, Release, encode_command, parse_command
from tidemill_wire.frame import FRAME_HEADER, FRAME_HEADER_BYTES, Frame
from tidemill_wire.limits import KIB, LEASE_MS_MAX, MIB, REQUEST_BYTES_MAX
from tidemill_wire.ranges import count_of

MAGIC = b"TMACKS01"
RECORD = struct.Struct("<II")
NUMBER = struct.Struct("<Q")
KEPT, TOLD = 1, 2
RECORD_BYTES_MAX = 2 * REQUEST_BYTES_MAX
BYTES_MAX = 64 * MIB
"""Beside ``spool_bytes_max``: what is kept is in memory, too."""
REWRITE_BYTES = 256 * KIB
"""Less of what was told is not worth a new file."""
AGE_MS_MAX = 2 * LEASE_MS_MAX
"""No lease lives so long without being extended: whatever is older would be answered as lost."""

Fate: TypeAlias = Ack | Nack | Release
"""What became of deliveries."""


class Place(NamedTuple):
    """Whose deliveries they were: a consumer, by its name, of a group at a broker."""

    broker: str
    group: str
    consumer: str


@dataclass(frozen=True, slots=True)
class Kept:
    """One record."""

    number: int
    at_ms: int
    """When it was written, by the wall clock."""
    broker: str
    fate: Fate

    @property
    def place(self) -> Place:
        """Who says it."""
        return Place(self.broker, self.fate.group, self.fate.consumer)

    @property
    def messages(self) -> int:
        """How many it is about."""
        return count_of(self.fate.ranges)

    def due(self, now_ms: int) -> Fate:
        """As it is to be said now: of a delay, what is left."""
        fate = self.fate
        if not isinstance(fate, Nack) or fate.delay_ms <= 0:
            return fate
        return replace(fate, delay_ms=max(0, fate.delay_ms - max(0, now_ms - self.at_ms)))


class AckSpool:
    """See the module."""

    def __init__(self, file: AckFile, name: str, bytes_max: int) -> None:
        self.kept: dict[int, Kept] = {}
        """What was not told yet, in its order."""
        self.cut = 0
        """Bytes at the end that were no record."""
        self.unread = 0
        """Whole records that say something else; a later version may have written them."""
        self._file = file
        self._bytes_max = min(bytes_max, BYTES_MAX)
        self._sizes: dict[int, int] = {}
        self._live = len(MAGIC)
        """Bytes of the file that are still needed; ``_end`` is how many it has."""
        self._broken = False
        """A write has failed: what is at the end, nobody knows."""
        self._next = 1
        data = file.read()
        if data and not data.startswith(MAGIC) and not MAGIC.startswith(data):
            raise SpoolUnusable(f"{name} is no spool of acks: give another path")
        self._end = len(data)
        self._recover(data)
        if self._end != self._live:
            self._rewrite()

    def keep(self, fates: Sequence[tuple[str, Fate]], at_ms: int) -> list[int] | None:
        """Keep them, each with its broker group, durably: their numbers. ``None`` when there is no room."""
        found = [Kept(number, at_ms, broker, fate) for number, (broker, fate) in enumerate(fates, self._next)]
        records = [_pack_kept(one) for one in found]
        size = sum(map(len, records))
        if self._live + size > self._bytes_max:
            return None
        if self._broken or self._end + size > self._bytes_max:
            self._rewrite()
        self._append(b"".join(records), sync=True)
        self._next += len(found)
        for one, record in zip(found, records, strict=True):
            self._add(one, len(record))
        return [one.number for one in found]

    def told(self, numbers: Iterable[int]) -> None:
        """They were answered, or dropped: nobody needs them any more."""
        gone = [number for number in numbers if self.kept.pop(number, None) is not None]
        self._live -= sum(self._sizes.pop(number) for number in gone)
        if not gone:
            return
        if self._broken or not self.kept or self._end - self._live > max(REWRITE_BYTES, self._live):
            self._rewrite()
        else:
            self._append(_record([TOLD, b"".join(map(NUMBER.pack, gone))]), sync=False)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _append(self, data: bytes, *, sync: bool) -> None:
        self._broken = True  # until it has gone well
        self._file.append(data, sync=sync)
        self._broken = False
        self._end += len(data)

    def _rewrite(self) -> None:
        records = {number: _pack_kept(one) for number, one in self.kept.items()}
        data = b"".join((MAGIC, *records.values()))
        self._broken = True  # until it has gone well
        self._file.replace(data)
        self._sizes = {number: len(record) for number, record in records.items()}
        self._end = self._live = len(data)
        self._broken = False

    def _add(self, kept: Kept, size: int) -> None:
        self.kept[kept.number] = kept
        self._sizes[kept.number] = size
        self._live += size

    def _recover(self, data: bytes) -> None:
        at = len(MAGIC)
        while (found := _read_record(data, at)) is not None:
            said, size = found
            if isinstance(said, Kept):
                self._add(said, size)
                self._next = max(self._next, said.number + 1)
            else:
                self.unread += said is None
                for number in said or ():
                    if self.kept.pop(number, None) is not None:
                        self._live -= self._sizes.pop(number)
            at += size
        self.cut = max(0, len(data) - at)


def _pack_kept(kept: Kept) -> bytes:
    return _record([KEPT, kept.number, kept.at_ms, kept.broker, encode_command(kept.fate, 0)])


def _record(body: list[object]) -> bytes:
    packed = cast("bytes", msgpack.packb(body))
    return RECORD.pack(len(packed), crc32c(packed)) + packed


def _read_record(data: bytes, at: int) -> tuple[Kept | list[int] | None, int] | None:
    """What a record says, nothing if this version does not know it, and its length; ``None`` at the end, or at what is
    torn.
    """
    begin = at + RECORD.size
    if begin > len(data):
        return None
    length, crc = RECORD.unpack_from(data, at)
    body = data[begin : begin + length]
    if not 0 < length <= RECORD_BYTES_MAX or len(body) != length or crc32c(body) != crc:
        return None
    match cast("object", msgpack.unpackb(body)):
        case [int(kind), int(number), int(at_ms), str(broker), bytes(frame)] if kind == KEPT:
            fate = _read_fate(frame)
            said = None if fate is None else Kept(number, at_ms, broker, fate)
            return said, RECORD.size + length
        case [int(kind), bytes(numbers)] if kind == TOLD and not len(numbers) % NUMBER.size:
            return [number for (number,) in NUMBER.iter_unpack(numbers)], RECORD.size + length
        case _:
            return None, RECORD.size + length


def _read_fate(frame: bytes) -> Fate | None:
    if len(frame) < FRAME_HEADER_BYTES:
        return None
    _, kind, flags, correlation = FRAME_HEADER.unpack_from(frame)
    try:
        command = parse_command(Frame(kind, flags, correlation, bytearray(frame[FRAME_HEADER_BYTES:])))
    except WireError:
        return None
    return command if isinstance(command, Ack | Nack | Release) else None
