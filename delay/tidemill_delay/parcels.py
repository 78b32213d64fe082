"""What is due, on its way to brokers: units as they lie in their hours, parcels as brokers take them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidemill_delay.hours import Numbers
from tidemill_delay.rows import length_of, place_of
from tidemill_host.machine import Peer


@dataclass(slots=True)
class Unit:
    """Numbers of one piece that are due at one tick: what is sent as one batch, whenever it is sent."""

    hour: int
    piece: int
    numbers: Numbers
    due_ms: int
    """The tick."""
    version: int | None = None
    """Of the route, by which its order keys are looked for next; ``None``: the newest."""


@dataclass(slots=True)
class Parcel:
    """A unit as a broker takes it."""

    unit: Unit
    subject: str
    batch: bytearray
    ordered: bool = False
    """It has order keys."""
    group: str = ""
    """The broker group that has the partition of its order keys; nothing: any of the subject's."""
    version: int = 0
    """By which that is so."""
    sent: bool = False
    """The broker may have it."""
    home: str = ""
    """Without order keys: the broker group that may have it."""
    doubtful: bool = False
    """A connection ended before it was answered, and who refuses a whole frame has not looked for it."""


@dataclass(slots=True)
class Broker:
    """A broker group, and what waits for it."""

    peer: Peer | None = None
    waiting: deque[Parcel] = field(default_factory=deque[Parcel])
    flights: dict[int, list[Parcel]] = field(default_factory=dict[int, list[Parcel]])
    heard_ms: int = 0
    """When it answered last, or was sent something with nothing on its way."""

    @property
    def batches(self) -> int:
        """On their way."""
        return sum(map(len, self.flights.values()))


def span(units: Sequence[Unit]) -> tuple[int, int]:
    """Where the pieces of some units begin, and how many bytes that is: the last one need not end last."""
    start = min(place_of(unit.piece) for unit in units)
    return start, max(place_of(unit.piece) + length_of(unit.piece) for unit in units) - start
