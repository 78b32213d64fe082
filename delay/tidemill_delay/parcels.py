"""What is due, on its way to brokers: units as they lie in their hours, parcels as brokers take them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tidemill_delay.hours import Numbers
from tidemill_delay.pieces import Addressed
from tidemill_delay.routing import Ways
from tidemill_host.machine import Peer
from tidemill_wire import limits


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
    parcel: Parcel | None = None
    """As what it was sent, or would be sent again: it waits without its bytes."""
    tried: bool = False
    """It was refused, and is tried again."""


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
    partition: str = ""
    """That partition."""
    version: int = 0
    """By which that is so."""
    sent: bool = False
    """The broker may have it."""
    home: str = ""
    """Without order keys: the broker group that may have it."""
    doubtful: bool = False
    """A connection ended before it was answered, and who refuses a whole frame has not looked for it."""

    @property
    def bound(self) -> bool:
        """Where it goes is settled, as it may be there: whoever reads it again must not ask anew."""
        return self.sent or self.doubtful or bool(self.home and self.unit.version is not None)


@dataclass(slots=True)
class Broker:
    """A broker group, and what waits for it, or is on its way."""

    peer: Peer | None = None
    waiting: deque[Parcel] = field(default_factory=deque[Parcel])
    flights: dict[int, list[Parcel]] = field(default_factory=dict[int, list[Parcel]])
    heard_ms: int = 0
    """When it answered last, or was sent something with nothing on its way."""
    stalled: bool = False
    """It has something on its way, and was not heard for a while."""
    flying: int = 0
    """Bytes on their way."""

    @property
    def takes(self) -> bool:
        """Whether what comes for it may wait with its bytes, for they leave soon."""
        return self.peer is not None and not self.stalled

    def board(self, most: int) -> list[Parcel]:
        """The next that fit into one SEND, and not more than so many."""
        flight: list[Parcel] = []
        size = 0
        while self.waiting and len(flight) < most:
            size += len(self.waiting[0].batch)
            if flight and size > limits.FRAME_BYTES_MAX - limits.CONTROL_BYTES_MAX:
                break
            parcel = self.waiting.popleft()
            parcel.sent = True
            flight.append(parcel)
        return flight

    @property
    def batches(self) -> int:
        """On their way."""
        return sum(map(len, self.flights.values()))

    @property
    def messages(self) -> int:
        """In these."""
        return sum(len(parcel.unit.numbers) for flight in self.flights.values() for parcel in flight)


def parcels_of(unit: Unit, addressed: Addressed, routes: Mapping[str, Ways]) -> Iterator[Parcel]:
    """What becomes of a unit: one parcel, or one for each partition that has order keys of it. What may be somewhere is
    the same one as before.
    """
    if (known := unit.parcel) is not None:
        known.batch = addressed.resend(known.partition, unit.numbers)
        unit.parcel = None
        yield known
        return
    subject, ordered = addressed.subject, addressed.ordered
    ways = routes.get(subject) if ordered else None
    logical = addressed.logical(unit.numbers) if ways is not None else []
    if ways is None or not any(one is not None for one in logical):
        yield Parcel(unit, subject, addressed.send(unit.numbers), ordered)
        return
    version = ways.newest if unit.version is None else min(unit.version, ways.newest)
    for partition, asked, rows in ways.parts(logical, version):
        some = replace(unit, numbers=unit.numbers[rows])
        batch = addressed.send_to(partition.name, some.numbers)
        yield Parcel(some, subject, batch, ordered, partition.group, partition.name, asked)
