"""Brings to brokers what is due: reads the pieces, sends them, hears what became of them.

    due ──► reading ──► addressed ──► on its way ──► done
                           ▲              │ the connection ended, or the broker refused for now
                           └──────────────┘ after a pause

What a broker refuses waits by itself and is tried again: soon when waiting may help, else once a minute, for nothing
that was accepted is ever dropped. A piece goes to one broker group of its subject's route, the same each time, so a
broker that has it recognises it. What is read or on its way is bounded in bytes; the rest waits as rows, 24 bytes a
message.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from tidemill_delay.hours import Numbers, file_of
from tidemill_delay.pieces import Addressed
from tidemill_delay.rows import PLACE_MASK, length_of, place_of
from tidemill_delay.wheel import Entries
from tidemill_host.machine import Buffer, Durability, Peer, Read, Send, Slice
from tidemill_wire import limits
from tidemill_wire.commands import Failed, SendBatches, Sent, encode_command
from tidemill_wire.errors import KIND_BY_NUMBER, CorruptBatch

READ_BYTES = 1024 * 1024
AHEAD_BYTES = 32 * 1024 * 1024
FLIGHT_BATCHES = 512
FLIGHTS = 4
"""SENDs on their way to one broker."""
SOON_MS, LATE_MS = 1_000, 60_000
"""Until what was refused is tried again."""


@dataclass(slots=True)
class Unit:
    """Numbers of one piece that are due at one tick: what is sent as one batch, whenever it is sent."""

    hour: int
    piece: int
    numbers: Numbers
    due_ms: int
    """The tick."""


@dataclass(slots=True)
class Parcel:
    """A unit as a broker takes it."""

    unit: Unit
    subject: str
    batch: bytearray


@dataclass(slots=True)
class Broker:
    """A broker group, and what waits for it."""

    peer: Peer | None = None
    waiting: deque[Parcel] = field(default_factory=deque[Parcel])
    flights: dict[int, list[Parcel]] = field(default_factory=dict[int, list[Parcel]])

    @property
    def batches(self) -> int:
        """On their way."""
        return sum(map(len, self.flights.values()))


class Courier:
    """See the module."""

    def __init__(self, tick_ms: int) -> None:
        self.brokers: dict[str, Broker] = {}
        self.routes: dict[str, Sequence[str]] = {}
        self.everywhere: Sequence[str] = ()
        """Who takes every subject that has no route of its own."""
        self.wanted: set[str] = set()
        """Subjects whose route nobody has told."""
        self.refused: Counter[str] = Counter()
        self.reads: list[Read] = []
        self.sends: list[Send] = []
        self.drops: list[Peer] = []
        self.size = 0
        """Messages that are due and not done."""
        self._tick_ms = tick_ms
        self._due: deque[Unit] = deque()
        self._reading: dict[int, list[Unit]] = {}
        self._unreadable: list[tuple[int, int, Unit]] = []
        """When to read again, and a number that sorts."""
        self._lost: deque[Parcel] = deque()
        """Those without a route."""
        self._put_off: list[tuple[int, int, Parcel]] = []
        """When to try again, and a number that sorts."""
        self._held = 0
        self._token = 0
        self._correlation = 0

    def take(self, entries: Entries) -> None:
        """What is due, the earliest first."""
        self.size += len(entries.due)
        ticks = -(-entries.due // self._tick_ms)
        order = np.lexsort((entries.numbers, entries.pieces & PLACE_MASK, ticks))
        pieces, numbers, ticks = entries.pieces[order], entries.numbers[order], ticks[order]
        cuts = np.flatnonzero((pieces[1:] != pieces[:-1]) | (ticks[1:] != ticks[:-1])) + 1
        edges = [0, *cuts.tolist(), len(pieces)]
        begin = np.asarray(edges[:-1])
        firsts, due = pieces[begin].tolist(), (ticks[begin] * self._tick_ms).tolist()
        for piece, due_ms, start, end in zip(firsts, due, edges, edges[1:], strict=False):
            self._due.append(Unit(entries.hour, piece, numbers[start:end], due_ms))

    def work(self, now_ms: int) -> None:
        """Read and send what there is room for."""
        while self._unreadable and self._unreadable[0][0] <= now_ms:
            self._read([heappop(self._unreadable)[2]])
        while self._due and self._held < AHEAD_BYTES:
            self._read(self._neighbours())
        while self._put_off and self._put_off[0][0] <= now_ms:
            self._address(heappop(self._put_off)[2])
        for broker in self.brokers.values():
            if broker.peer is not None:
                self._fly(broker)

    def wake_ms(self) -> int | None:
        """When something is to be tried again."""
        waits = [one[0][0] for one in (self._put_off, self._unreadable) if one]
        return min(waits, default=None)

    # -- reading ---------------------------------------------------------------------------------------------------

    def _neighbours(self) -> list[Unit]:
        """The next units that lie one behind the other, or in one piece: they are read in one go."""
        first = self._due[0]
        start = place_of(first.piece)
        end = start + length_of(first.piece)
        units = [self._due.popleft()]
        while self._due:
            other = self._due[0]
            place = place_of(other.piece)
            stop = place + length_of(other.piece)
            if other.hour != first.hour or not start <= place <= end or stop - start > READ_BYTES:
                break
            end = max(end, stop)
            units.append(self._due.popleft())
        return units

    def _read(self, units: list[Unit]) -> None:
        start = place_of(units[0].piece)
        size = place_of(units[-1].piece) + length_of(units[-1].piece) - start
        self._token += 1
        self._held += size
        self._reading[self._token] = units
        self.reads.append(Read(self._token, Slice(file_of(units[0].hour), start, size)))

    def loaded(self, token: int, data: Buffer, now_ms: int) -> None:
        """Bytes of an hour's file. A piece that is damaged harms no other one."""
        units = self._reading.pop(token)
        view = memoryview(data)
        base = place_of(units[0].piece)
        self._held -= len(view)
        for unit in units:
            place, length = place_of(unit.piece), length_of(unit.piece)
            try:
                addressed = Addressed(view[place - base : place - base + length], place)
                parcel = Parcel(unit, addressed.subject, addressed.send(unit.numbers))
            except CorruptBatch:
                self.refused["corrupt_batch"] += len(unit.numbers)
                self._read_later(unit, now_ms)
                continue
            self._held += len(parcel.batch)
            self._address(parcel)

    def unread(self, token: int, now_ms: int) -> None:
        """What the disk did not read is tried again, piece by piece: one of them may be good."""
        units = self._reading.pop(token)
        first, last = units[0], units[-1]
        self._held -= place_of(last.piece) + length_of(last.piece) - place_of(first.piece)
        for unit in units:
            self._read_later(unit, now_ms)

    def _read_later(self, unit: Unit, now_ms: int) -> None:
        self._token += 1
        heappush(self._unreadable, (now_ms + LATE_MS, self._token, unit))

    # -- where to --------------------------------------------------------------------------------------------------

    def _address(self, parcel: Parcel) -> None:
        groups = self.routes.get(parcel.subject) or self.everywhere
        if not groups:
            self.wanted.add(parcel.subject)
            self._lost.append(parcel)
            return
        group = groups[parcel.unit.piece % len(groups)]
        self.brokers.setdefault(group, Broker()).waiting.append(parcel)

    def route(self, subject: str, groups: Sequence[str]) -> None:
        """Who takes a subject's messages; nobody, when there are none."""
        if self.routes.get(subject) == groups:
            return
        self.routes[subject] = groups
        self.wanted.discard(subject)
        moved = [parcel for parcel in self._lost if parcel.subject == subject]
        self._lost = deque(parcel for parcel in self._lost if parcel.subject != subject)
        for broker in self.brokers.values():
            moved += [parcel for parcel in broker.waiting if parcel.subject == subject]
            broker.waiting = deque(parcel for parcel in broker.waiting if parcel.subject != subject)
        for parcel in moved:
            self._address(parcel)

    def route_all(self, groups: Sequence[str]) -> None:
        """Who takes every subject."""
        self.everywhere = groups
        lost, self._lost = self._lost, deque()
        self.wanted.clear()
        for parcel in lost:
            self._address(parcel)

    # -- brokers ---------------------------------------------------------------------------------------------------

    def met(self, peer: Peer, group: str) -> None:
        """A connection to a broker of a group."""
        broker = self.brokers.setdefault(group, Broker())
        if broker.peer is not None and broker.peer != peer:
            self.drops.append(broker.peer)
            self._ground(broker)
        broker.peer = peer

    def lost(self, peer: Peer) -> None:
        """A connection has ended: what was on its way may have arrived, and is sent again."""
        for broker in self.brokers.values():
            if broker.peer == peer:
                self._ground(broker)

    def knows(self, peer: Peer) -> bool:
        """Whether a peer is a broker."""
        return any(broker.peer == peer for broker in self.brokers.values())

    def _ground(self, broker: Broker) -> None:
        broker.peer = None
        for flight in reversed(broker.flights.values()):
            broker.waiting.extendleft(reversed(flight))
        broker.flights.clear()

    def _fly(self, broker: Broker) -> None:
        assert broker.peer is not None
        while broker.waiting and len(broker.flights) < FLIGHTS:
            room = FLIGHT_BATCHES - broker.batches
            flight: list[Parcel] = []
            size = 0
            while broker.waiting and len(flight) < room:
                size += len(broker.waiting[0].batch)
                if flight and size > limits.FRAME_BYTES_MAX - limits.CONTROL_BYTES_MAX:
                    break
                flight.append(broker.waiting.popleft())
            if not flight:
                return
            self._correlation += 1
            broker.flights[self._correlation] = flight
            batches = bytearray().join(parcel.batch for parcel in flight)
            self.sends.append(
                Send(
                    broker.peer, encode_command(SendBatches(batches), self._correlation), (), Durability.HERE
                )
            )

    def answered(self, peer: Peer, correlation: int, answer: Sent | Failed, now_ms: int) -> list[Unit]:
        """What a broker says of a SEND; the units that it has."""
        broker = next(one for one in self.brokers.values() if one.peer == peer)
        flight = broker.flights.pop(correlation, None)
        if flight is None:
            self.drops.append(peer)
            return []
        refused = {index: number for index, number, _ in answer.refused} if isinstance(answer, Sent) else {}
        done: list[Unit] = []
        for index, parcel in enumerate(flight):
            number = answer.number if isinstance(answer, Failed) else refused.get(index)
            if number is not None:
                self._put_off_for(parcel, number, now_ms)
                continue
            self._held -= len(parcel.batch)
            self.size -= len(parcel.unit.numbers)
            done.append(parcel.unit)
        return done

    def _put_off_for(self, parcel: Parcel, number: int, now_ms: int) -> None:
        kind = KIND_BY_NUMBER.get(number)
        self.refused[kind.name if kind is not None else str(number)] += len(parcel.unit.numbers)
        wait_ms = SOON_MS if kind is None or kind.retryable else LATE_MS
        self._token += 1
        heappush(self._put_off, (now_ms + wait_ms, self._token, parcel))

    def check(self) -> None:
        """``size`` is what is there."""
        units = [*self._due, *(unit for units in self._reading.values() for unit in units)]
        units += [unit for _, _, unit in self._unreadable]
        units += [parcel.unit for parcel in (*self._lost, *(parcel for _, _, parcel in self._put_off))]
        for broker in self.brokers.values():
            parcels = [*broker.waiting, *(parcel for flight in broker.flights.values() for parcel in flight)]
            units += [parcel.unit for parcel in parcels]
        assert self.size == sum(len(unit.numbers) for unit in units)
