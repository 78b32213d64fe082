"""Brings to brokers what is due: reads the pieces, sends them, hears what became of them.

    due ──► reading ──► addressed ──► on its way ──► done
                           ▲              │ the connection ended, or the broker refused for now
                           └──────────────┘ after a pause

What a broker refuses waits by itself and is tried again: soon when waiting may help, else once a minute, for nothing
that was accepted is ever dropped. What a quota keeps waiting is read again when its turn may come, one behind the other
of a subject, and holds no bytes until then: others go past it.

A piece goes to one broker group of its subject's route, which its batch id draws out of those that take it now, and
stays with that one until it is known not to be there: so a broker that has it recognises it, whichever delay group
sends it.

One with order keys is taken apart, and goes where they are taken (``routing``): what may be there already is asked for
there until the broker has answered, whatever the route says by then; what it refused is read again, and goes by the
next version of the route. What is read or on its way is bounded in bytes; the rest waits as rows, 24 bytes a message.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush

import numpy as np

from tidemill_delay.hours import file_of
from tidemill_delay.parcels import Broker, Parcel, Unit, span
from tidemill_delay.pieces import Addressed
from tidemill_delay.routing import Ways, home_of
from tidemill_delay.rows import PLACE_MASK, length_of, place_of
from tidemill_delay.wheel import Entries
from tidemill_host.machine import Buffer, Durability, Peer, Read, Send, Slice
from tidemill_wire import limits
from tidemill_wire.batch import read_header
from tidemill_wire.commands import Failed, SendBatches, Sent, encode_command
from tidemill_wire.errors import CorruptBatch, WireError

READ_BYTES = 1024 * 1024
AHEAD_BYTES = 32 * 1024 * 1024
FLIGHT_BATCHES = 512
FLIGHTS = 4
"""SENDs on their way to one broker."""
SILENT_MS = 15_000
"""A broker that has something on its way and answers nothing for so long is dialled anew: when its machine lost power,
nobody closes the connection. Its answers wait for its slaves, but not for as long as that.
"""
SOON_MS, LATE_MS = 1_000, 60_000
"""Until what was refused is tried again."""
WAIT_MS_MAX = 30_000
"""However long a broker says: the quota may be lifted meanwhile."""


class Courier:
    """See the module."""

    def __init__(self, tick_ms: int, begun_ms: int = 0) -> None:
        self.brokers: dict[str, Broker] = {}
        self.routes: dict[str, Sequence[str]] = {}
        self.ways: dict[str, Ways] = {}
        """Of subjects whose order keys lie in partitions."""
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
        self._begun_ms = begun_ms
        """The last tick of which a former life may have sent something."""
        self._due: deque[Unit] = deque()
        self._reading: dict[int, list[Unit]] = {}
        self._unreadable: list[tuple[int, int, Unit]] = []
        """When to read again, and a number that sorts."""
        self._lost: deque[Parcel] = deque()
        """Those without a route."""
        self._put_off: list[tuple[int, int, Parcel]] = []
        """When to try again, and a number that sorts."""
        self._resting: list[tuple[int, int, Unit]] = []
        """When what a quota keeps waiting is read again, and a number that sorts: it holds no bytes meanwhile."""
        self._rest_until: dict[str, int] = {}
        """By subject, when the last of these comes: one behind the other, as the quota lets them."""
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
            version = 0 if due_ms <= self._begun_ms else None
            self._due.append(Unit(entries.hour, piece, numbers[start:end], due_ms, version))

    def work(self, now_ms: int) -> None:
        """Read and send what there is room for."""
        while self._unreadable and self._unreadable[0][0] <= now_ms:
            self._read([heappop(self._unreadable)[2]])
        while self._resting and self._resting[0][0] <= now_ms:
            self._due.append(heappop(self._resting)[2])
        while self._put_off and self._put_off[0][0] <= now_ms:
            self._address(heappop(self._put_off)[2])
        for broker in list(self.brokers.values()):
            if broker.peer is not None and broker.flights and now_ms >= broker.heard_ms + SILENT_MS:
                self.drops.append(broker.peer)
                self._ground(broker)
        for broker in self.brokers.values():
            if broker.peer is not None:
                self._fly(broker, now_ms)
        while self._due and self._held < AHEAD_BYTES:
            self._read(self._neighbours())

    def wake_ms(self) -> int | None:
        """When something is to be tried again."""
        waits = [one[0][0] for one in (self._put_off, self._unreadable, self._resting) if one]
        waits += [one.heard_ms + SILENT_MS for one in self.brokers.values() if one.flights]
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
        start, size = span(units)
        self._token += 1
        self._held += size
        self._reading[self._token] = units
        self.reads.append(Read(self._token, Slice(file_of(units[0].hour), start, size)))

    def loaded(self, token: int, data: Buffer, now_ms: int) -> None:
        """Bytes of an hour's file. A piece that is damaged harms no other one."""
        units = self._reading.pop(token)
        view = memoryview(data)
        base, _ = span(units)
        self._held -= len(view)
        for unit in units:
            place, length = place_of(unit.piece), length_of(unit.piece)
            try:
                addressed = Addressed(view[place - base : place - base + length], place)
                parcels = list(self._parcels(unit, addressed))
            except CorruptBatch:
                self.refused["corrupt_batch"] += len(unit.numbers)
                self._read_later(unit, now_ms)
                continue
            for parcel in parcels:
                self._held += len(parcel.batch)
                self._address(parcel)

    def _parcels(self, unit: Unit, addressed: Addressed) -> Iterator[Parcel]:
        """What becomes of a unit: one parcel, or one for each partition that has order keys of it."""
        subject, ordered = addressed.subject, addressed.ordered
        ways = self.ways.get(subject) if ordered else None
        logical = addressed.logical(unit.numbers) if ways is not None else []
        if ways is None or not any(one is not None for one in logical):
            yield Parcel(unit, subject, addressed.send(unit.numbers), ordered)
            return
        version = ways.newest if unit.version is None else min(unit.version, ways.newest)
        for partition, asked, rows in ways.parts(logical, version):
            some = replace(unit, numbers=unit.numbers[rows])
            batch = addressed.send_to(partition.name, some.numbers)
            yield Parcel(some, subject, batch, ordered, partition.group, asked)

    def unread(self, token: int, now_ms: int) -> None:
        """What the disk did not read is tried again, piece by piece: one of them may be good."""
        units = self._reading.pop(token)
        self._held -= span(units)[1]
        for unit in units:
            self._read_later(unit, now_ms)

    def _read_later(self, unit: Unit, now_ms: int, wait_ms: int = LATE_MS) -> None:
        self._token += 1
        heappush(self._unreadable, (now_ms + wait_ms, self._token, unit))

    # -- where to --------------------------------------------------------------------------------------------------

    def _address(self, parcel: Parcel) -> None:
        if parcel.group:
            if self._is_forgotten(parcel):
                self._take_back(parcel)
            else:
                self.brokers.setdefault(parcel.group, Broker()).waiting.append(parcel)
            return
        groups = self.routes.get(parcel.subject) or self.everywhere
        if not groups:
            self.wanted.add(parcel.subject)
            self._lost.append(parcel)
            return
        self._settle_home(parcel, groups)
        self.brokers.setdefault(parcel.home, Broker()).waiting.append(parcel)

    def _settle_home(self, parcel: Parcel, groups: Sequence[str]) -> None:
        """Where it may be, as long as somebody could say so; else one of those that take it now. What a former life may
        have sent is asked for where it went if all of them took it then.
        """
        ways = self.ways.get(parcel.subject)
        former = parcel.unit.version is not None
        if parcel.home and (parcel.sent or former) and (ways is None or parcel.home in ways.listed):
            return
        if former and ways is not None:
            groups = ways.takers(parcel.subject) or groups
        parcel.sent = parcel.doubtful = False
        parcel.home = home_of(read_header(parcel.batch).batch_id, groups)

    def _is_forgotten(self, parcel: Parcel) -> bool:
        """Nobody is there any more who could say whether it has a parcel."""
        ways = self.ways.get(parcel.subject)
        if ways is None or (parcel.group or parcel.home) in ways.listed:
            return False
        return parcel.sent or parcel.version < ways.newest

    def _take_back(self, parcel: Parcel) -> None:
        """It is read again, and goes where its order keys lie by now."""
        self._held -= len(parcel.batch)
        if parcel.sent:
            parcel.unit.version = parcel.version + 1
        self._due.append(parcel.unit)

    def route(self, subject: str, groups: Sequence[str], ways: Ways | None = None) -> None:
        """Who takes a subject's messages; nobody, when there are none. And of those with order keys, where that is
        known: what was sent stays where the answer is to come from.
        """
        if self.routes.get(subject) == groups and self.ways.get(subject) == ways:
            return
        self.routes[subject] = groups
        if ways is not None:
            self.ways[subject] = ways
        self.wanted.discard(subject)
        moved = [parcel for parcel in self._lost if parcel.subject == subject]
        self._lost = deque(parcel for parcel in self._lost if parcel.subject != subject)
        for broker in self.brokers.values():
            moved += [parcel for parcel in broker.waiting if parcel.subject == subject]
            broker.waiting = deque(parcel for parcel in broker.waiting if parcel.subject != subject)
        for parcel in moved:
            if parcel.ordered and subject in self.ways and not parcel.sent:
                self._take_back(parcel)
            else:
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
        for broker in list(self.brokers.values()):
            if broker.peer == peer:
                self._ground(broker)

    def knows(self, peer: Peer) -> bool:
        """Whether a peer is a broker."""
        return any(broker.peer == peer for broker in self.brokers.values())

    def _ground(self, broker: Broker) -> None:
        broker.peer = None
        for flight in reversed(broker.flights.values()):
            for parcel in reversed(flight):
                parcel.doubtful = True
                if self._is_forgotten(parcel):
                    self._address(parcel)
                else:
                    broker.waiting.appendleft(parcel)
        broker.flights.clear()

    def _fly(self, broker: Broker, now_ms: int) -> None:
        assert broker.peer is not None
        if not broker.flights:
            broker.heard_ms = now_ms
        while broker.waiting and len(broker.flights) < FLIGHTS:
            room = FLIGHT_BATCHES - broker.batches
            flight: list[Parcel] = []
            size = 0
            while broker.waiting and len(flight) < room:
                size += len(broker.waiting[0].batch)
                if flight and size > limits.FRAME_BYTES_MAX - limits.CONTROL_BYTES_MAX:
                    break
                parcel = broker.waiting.popleft()
                parcel.sent = True
                flight.append(parcel)
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
        broker.heard_ms = now_ms
        refused = answer.errors if isinstance(answer, Sent) else {}
        done: list[Unit] = []
        for index, parcel in enumerate(flight):
            error = answer.error if isinstance(answer, Failed) else refused.get(index)
            if error is not None:
                self._put_off_for(parcel, error, now_ms, known=isinstance(answer, Sent))
                continue
            self._held -= len(parcel.batch)
            self.size -= len(parcel.unit.numbers)
            done.append(parcel.unit)
        return done

    def _put_off_for(self, parcel: Parcel, error: WireError, now_ms: int, *, known: bool) -> None:
        """``known``: that the broker does not have it. Then its order keys may be looked for elsewhere."""
        self.refused[error.kind.name] += len(parcel.unit.numbers)
        wait_ms = max(SOON_MS if error.kind.retryable else LATE_MS, min(error.wait_ms, WAIT_MS_MAX))
        if parcel.group and known:
            self._held -= len(parcel.batch)
            parcel.unit.version = parcel.version + 1
            wait_ms = 0 if parcel.version < self.ways[parcel.subject].newest else wait_ms
            self._read_later(parcel.unit, now_ms, wait_ms)
            return
        if known:
            parcel.home = ""
            if parcel.subject in self.ways:
                parcel.unit.version = None
        if known and error.wait_ms:
            self._held -= len(parcel.batch)
            if not self._resting:
                self._rest_until.clear()
            again_ms = max(now_ms, self._rest_until.get(parcel.subject, 0)) + error.wait_ms
            again_ms = min(again_ms, now_ms + WAIT_MS_MAX)
            self._rest_until[parcel.subject] = again_ms
            self._token += 1
            heappush(self._resting, (again_ms, self._token, parcel.unit))
            return
        parcel.sent &= not known and (bool(parcel.group) or parcel.doubtful)
        self._token += 1
        heappush(self._put_off, (now_ms + wait_ms, self._token, parcel))

    def check(self) -> None:
        """``size`` is what is there."""
        units = [*self._due, *(unit for units in self._reading.values() for unit in units)]
        units += [unit for _, _, unit in (*self._unreadable, *self._resting)]
        units += [parcel.unit for parcel in (*self._lost, *(parcel for _, _, parcel in self._put_off))]
        for broker in self.brokers.values():
            parcels = [*broker.waiting, *(parcel for flight in broker.flights.values() for parcel in flight)]
            units += [parcel.unit for parcel in parcels]
        assert self.size == sum(len(unit.numbers) for unit in units)
