"""The calendar as bytes for a checkpoint, and back. Format: docs/format.md, "The checkpoint of a delay service"."""

from __future__ import annotations

from typing import Any, cast

import msgpack

from tidemill_delay.hours import Hour, Marks
from tidemill_delay.state import State
from tidemill_journal.errors import CorruptRecord
from tidemill_wire.batch import SINGLES_FROM

VERSION = 1


def pack_state(state: State, message_position: int, action_position: int) -> bytes:
    """Everything a restart needs besides the logs from these positions on, and the files of the hours."""
    said = {
        "version": VERSION,
        "message": message_position,
        "action": action_position,
        "boot": state.boot,
        "hour_ms": state.hour_ms,
        "messages": state.messages,
        "closed": state.closed_ms,
        "begun": state.begun_ms,
        "cancelled": state.cancelled,
        "hours": [
            (
                hour.start_ms,
                hour.count,
                hour.size,
                hour.done.to_bytes(),
                hour.names,
                hour.cancelled.to_bytes(),
                hour.moved.to_bytes(),
            )
            for hour in state.hours.values()
        ],
        "producers": list(state.producers.items()),
        "singles": [(*key, first) for key, first in state.singles.items()],
    }
    return cast("bytes", msgpack.packb(said))


def unpack_state(payload: bytes) -> tuple[State, int, int]:
    """The state and both positions, or ``CorruptRecord``."""
    try:
        said = cast("dict[str, Any]", msgpack.unpackb(payload, strict_map_key=False))
        if said["version"] != VERSION:
            raise CorruptRecord(f"a checkpoint of version {said['version']}; this side reads {VERSION}")
        state = State()
        state.boot, state.hour_ms, state.messages = said["boot"], said["hour_ms"], said["messages"]
        state.closed_ms, state.cancelled = said["closed"], said["cancelled"]
        state.begun_ms = said.get("begun", 0)
        for start_ms, count, size, done, *more in said["hours"]:
            hour = state.hours[start_ms] = Hour(start_ms)
            hour.count, hour.size, hour.done = count, size, Marks.from_bytes(done)
            if more:  # else it is of a version that neither found nor changed anything
                hour.names, hour.cancelled, hour.moved = more[0], *map(Marks.from_bytes, more[1:3])
        state.producers.update({producer: list(seen) for producer, seen in said["producers"]})
        for producer, sequence, first in said["singles"]:
            assert producer >= SINGLES_FROM
            state.singles[producer, sequence] = first
        return state, said["message"], said["action"]
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptRecord(f"a checkpoint that says nothing: {error}") from None
