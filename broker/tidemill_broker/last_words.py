"""What a dead letter remembers of its message: where that lay, in which group it died, when, and of what."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import msgpack

from tidemill_broker.actions import FailureDetail
from tidemill_broker.messages import Found
from tidemill_broker.standings import Event
from tidemill_wire.fields import DEAD_PROPERTY

ELSEWHERE = -1
"""For a sequence: the message was never stored here, but at the broker from which this one adopted it."""


class Death(NamedTuple):
    """Of one message in one group."""

    subject: str
    group: str
    sequence: int
    since_ms: int
    """When it failed first; 0: nobody knows."""
    event: Event


def death_of(letter: Found) -> Death:
    """The broker itself has written the property; one that died again is still of its first subject."""
    properties = cast("dict[str, Any]", msgpack.unpackb(letter.properties, strict_map_key=False))
    known: dict[str, Any] = properties[DEAD_PROPERTY]
    detail = FailureDetail(known["reason"], known["error"], known["place"], known["fingerprint"])
    event = Event(known["failed_at"], "dead", attempts=known["attempts"], detail=detail)
    sequence = ELSEWHERE if known.get("adopted") else known["sequence"]
    return Death(known["subject"], known["group"], sequence, known["since"], event)
