"""The command to a ConsumerGroup to move to another place: an annotation, obeyed once.

``tidemill.dev/seek: '{"requestId": "a1", "to": "Timestamp", "timestamp": "2026-09-01T00:00:00Z"}'``; ``to`` is
Earliest, Latest or Timestamp. ``"force": true`` moves it also while consumers are there.

The id of the last command that was obeyed stands in ``status.lastReset``; only after that the annotation is taken away.
A crash in between finds the id and does not move again; a crash between moving and writing the id moves twice to the
same place, which loses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from tidemill_operator import marks
from tidemill_operator.steps import Manifest
from tidemill_wire.errors import TidemillError
from tidemill_wire.schema import parse_timestamp

NOTED = "lastReset"
"""The field of the status that has the last command which was obeyed."""
PLACES: Mapping[str, Literal["earliest", "latest"]] = {"Earliest": "earliest", "Latest": "latest"}
FIELDS = frozenset({"requestId", "to", "timestamp", "force"})
REQUEST_ID_MAX = 64
SAID = 'write {"requestId": "a new one", "to": "Earliest"}, or Latest, or Timestamp with a timestamp'


class SeekError(TidemillError):
    """An annotation that is no command. Its text is one sentence."""


@dataclass(frozen=True, slots=True)
class SeekCommand:
    """An annotation, proven."""

    request_id: str
    place: str
    to: Literal["earliest", "latest"] | int
    force: bool


def parse_seek(written: str) -> SeekCommand:
    try:
        said = json.loads(written)
    except (ValueError, RecursionError):
        raise SeekError(f"the annotation {marks.SEEK} is no JSON: {SAID}") from None
    if not isinstance(said, dict) or not cast("dict[str, Any]", said).keys() <= FIELDS:
        raise SeekError(f"the annotation {marks.SEEK} is not as it should be: {SAID}")
    return _parse_fields(cast("dict[str, Any]", said))


def _parse_fields(said: Mapping[str, Any]) -> SeekCommand:
    request_id, place, force = said.get("requestId"), said.get("to"), said.get("force", False)
    if not isinstance(request_id, str) or not 0 < len(request_id) <= REQUEST_ID_MAX:
        raise SeekError(f"requestId of the annotation {marks.SEEK} is missing or too long: {SAID}")
    if not isinstance(force, bool):
        raise SeekError(f"force of the annotation {marks.SEEK} is neither true nor false: write one of them")
    if isinstance(place, str) and place in PLACES and "timestamp" not in said:
        return SeekCommand(request_id, place, PLACES[place], force)
    at_ms = parse_timestamp(said["timestamp"]) if isinstance(said.get("timestamp"), str) else None
    if place != "Timestamp" or at_ms is None:
        raise SeekError(f"the annotation {marks.SEEK} says no place: {SAID}")
    return SeekCommand(request_id, place, at_ms, force)


def is_obeyed(resource: Manifest, command: SeekCommand) -> bool:
    return marks.part(resource, "status", NOTED).get("requestId") == command.request_id


def hindrance(resource: Manifest, command: SeekCommand, lag: Mapping[str, Any] | None) -> str:
    """Why the group is not moved yet; empty when nothing stands against it."""
    if command.force or marks.spec(resource).get("state") == "Suspended":
        return ""
    if lag is None:
        return "its brokers do not say whether consumers are there"
    if lag.get("consumers"):
        return f"{lag['consumers']} consumers are there: stop them, set state to Suspended, or write force"
    return ""
