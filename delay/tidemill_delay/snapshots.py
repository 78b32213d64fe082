"""The calendar as bytes for a checkpoint, and back. Format: docs/format.md, "The checkpoint of a delay service"."""

from __future__ import annotations

from typing import Any, cast

import msgpack

from tidemill_delay.hours import Hour, Marks, file_of, names_of, rows_of
from tidemill_delay.names import NAME_BYTES
from tidemill_delay.rows import ROW_BYTES
from tidemill_delay.series import Follower
from tidemill_delay.state import State
from tidemill_journal.errors import CorruptRecord
from tidemill_wire.replication import Ends, EpochStart

VERSION, VERSION_KEPT = 2, 3
"""The latter when there are hours that are kept."""
READABLE = (1, VERSION, VERSION_KEPT)
"""What version 1 remembered of senders it had not told apart by subject: it is left."""


class Frozen:
    """A state as it was. To copy it takes a quarter of the time that it takes to pack it, or less. That is done by
    another thread, part by part: as long as one is packed, no other thread goes on.
    """

    def __init__(self, state: State, message_position: int, action_position: int) -> None:
        said: dict[str, Any] = {
            "version": VERSION_KEPT if state.kept else VERSION,
            "message": message_position,
            "action": action_position,
            "boot": state.boot,
            "hour_ms": state.hour_ms,
            "messages": state.messages,
            "closed": state.closed_ms,
            "begun": state.begun_ms,
            "cancelled": state.cancelled,
        }
        if state.kept:
            said["kept"] = sorted(state.kept)
        if state.epochs:
            said["epochs"] = [tuple(start) for start in state.epochs]
        self._said = said
        self._hours = [
            (hour.start_ms, hour.count, hour.size, hour.done.to_bytes(), hour.names, hour.cancelled.to_bytes(),
             hour.moved.to_bytes(), dict(hour.series))
            for hour in state.hours.values()
        ]  # fmt: skip
        self._lanes = [
            (lane, {producer: tuple(seen) for producer, seen in one.producers.items()}, dict(one.singles))
            for lane, one in state.lanes.items()
        ]

    def pack(self) -> bytes:
        """As bytes."""
        packer = cast("Any", msgpack.Packer())
        parts: list[bytes] = [packer.pack_map_header(len(self._said) + 2)]
        for name, value in self._said.items():
            parts += (packer.pack(name), packer.pack(value))
        parts += (packer.pack("hours"), packer.pack_array_header(len(self._hours)))
        for *hour, series in self._hours:
            after = [(number, *follower) for number, follower in series.items()]
            parts.append(packer.pack([*hour, after] if after else hour))
        parts += (packer.pack("senders"), packer.pack_array_header(len(self._lanes)))
        for lane, producers, singles in self._lanes:
            known = [(*key, first) for key, first in singles.items()]
            parts.append(packer.pack((lane, list(producers.items()), known)))
        return b"".join(parts)


def pack_state(state: State, message_position: int, action_position: int) -> bytes:
    """Everything a restart needs besides the logs from these positions on, and the files of the hours."""
    return Frozen(state, message_position, action_position).pack()


def known_ends(payload: bytes) -> Ends:
    """Up to where a checkpoint knows the logs."""
    return Ends(*unpack_state(payload)[1:])


def files_of(state: State) -> list[tuple[str, int]]:
    """What is to be there besides a checkpoint of this state: files, and how much of each."""
    hours = state.hours.values()
    return [
        one
        for hour in hours
        for one in (
            (file_of(hour.start_ms), hour.size),
            (rows_of(hour.start_ms), ROW_BYTES * hour.count),
            (names_of(hour.start_ms), NAME_BYTES * hour.names),
        )
    ]


def unpack_state(payload: bytes) -> tuple[State, int, int]:
    """The state and both positions, or ``CorruptRecord``."""
    try:
        said = cast("dict[str, Any]", msgpack.unpackb(payload, strict_map_key=False))
        if said["version"] not in READABLE:
            raise CorruptRecord(f"a checkpoint of version {said['version']}; this side reads {READABLE}")
        state = State()
        state.boot, state.hour_ms, state.messages = said["boot"], said["hour_ms"], said["messages"]
        state.closed_ms, state.cancelled = said["closed"], said["cancelled"]
        state.begun_ms = said.get("begun", 0)
        state.kept = frozenset(said.get("kept", ()))
        for start_ms, count, size, done, *more in said["hours"]:
            hour = state.hours[start_ms] = Hour(start_ms)
            hour.count, hour.size, hour.done = count, size, Marks.from_bytes(done)
            if more:  # else it is of a version that neither found nor changed anything
                hour.names, hour.cancelled, hour.moved = more[0], *map(Marks.from_bytes, more[1:3])
            for number, *follower in more[3] if len(more) > 3 else ():
                hour.series[number] = Follower(*follower)
        state.epochs = [EpochStart(*row) for row in said.get("epochs", ())]
        for lane, producers, singles in said.get("senders", ()):
            senders = state.senders(lane)
            senders.producers.update({producer: list(seen) for producer, seen in producers})
            senders.singles.update({(producer, sequence): first for producer, sequence, first in singles})
        return state, said["message"], said["action"]
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptRecord(f"a checkpoint that says nothing: {error}") from None
