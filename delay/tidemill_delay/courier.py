"""Brings to brokers what is due: reads the pieces, sends them, hears what became of them.

    due ──► reading ──► addressed ──► on its way ──► done
                           ▲              │ the connection ended, or the broker refused for now
                           └──────────────┘ after a pause

What cannot leave gives back its bytes and stands aside, on a shelf of its subject (``shelves``): what was refused, what
has no route, what waits for a broker group that nobody leads or that is silent. So others go past it. What a quota
keeps waiting is read again when its turn may come, one behind the other of a subject.

A piece goes to one broker group of its subject's route, which its batch id draws out of those that take it now, and
stays with that one until it is known not to be there: so a broker that has it recognises it, whichever delay group
sends it.

One with order keys is taken apart, and goes where they are taken (``routing``): what may be there already is asked for
there until the broker has answered, whatever the route says by then; what it refused is read again, and goes by the
next version of the route. What is read or on its way is bounded in bytes; the rest waits as rows, 24 bytes a message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tidemill_delay.outcomes import is_over
from tidemill_delay.parcels import Broker, Parcel, Unit, parcels_of
from tidemill_delay.reading import Reading
from tidemill_delay.routing import Ways, home_of
from tidemill_delay.settings import DelaySettings
from tidemill_delay.shelves import LOST, REFUSED, WAIT_MS_MAX, Resting, Shelves
from tidemill_delay.wheel import Entries
from tidemill_host.machine import Buffer, Durability, Peer, Send
from tidemill_wire.batch import read_header
from tidemill_wire.commands import Failed, SendBatches, Sent, encode_command
from tidemill_wire.errors import CorruptBatch, Refused, WireError

AHEAD_BYTES = 32 * 1024 * 1024
FLIGHT_BATCHES = 512
FLIGHT_BYTES = 16 * 1024 * 1024
"""When so much is on its way to one broker, nothing more follows."""
FLIGHTS = 4
"""SENDs on their way to one broker."""
SILENT_MS = 15_000
"""A broker that has something on its way and answers nothing for so long is dialled anew: when its machine lost power,
nobody closes the connection. Its answers wait for its slaves, but not for as long as that.
"""
STALLED_MS = 1_000
"""What waits for a broker that was not heard for so long gives back its bytes, for what goes to others."""
SOON_MS, LATE_MS = 1_000, 60_000
"""Until what was refused is tried again."""


class Courier:
    """See the module."""

    def __init__(self, settings: DelaySettings, begun_ms: int) -> None:
        self.brokers: dict[str, Broker] = {}
        self.routes: dict[str, Sequence[str]] = {}
        self.ways: dict[str, Ways] = {}
        """Of subjects whose order keys lie in partitions."""
        self.everywhere: Sequence[str] = ()
        """Who takes every subject that has no route of its own."""
        self.wanted: set[str] = set()
        """Subjects whose route nobody has told."""
        self.gone: set[str] = set()
        """Subjects that there are not, says meta."""
        self.sends: list[Send] = []
        self.drops: list[Peer] = []
        self._ended: list[tuple[str, Unit]] = []
        """Those that nobody shall get, and why."""
        self.size = 0
        """Messages that are due and not done."""
        self.reading = Reading(settings, begun_ms)
        self.refused = self.reading.refused
        self.shelves = Shelves(settings.tick_ms)
        self.resting = Resting()
        self._held = 0
        """Bytes that wait for their broker. What is on its way is bounded for each broker."""
        self._turns = 0
        self._correlation = 0

    def take(self, entries: Entries) -> None:
        """What is due, the earliest first."""
        self.size += len(entries.due)
        self.reading.due.add(entries)

    @property
    def stuck(self) -> int:
        """Messages that cannot leave now, or left and nobody answers: no others have to wait for these."""
        silent = sum(broker.messages for broker in self.brokers.values() if broker.stalled)
        return self.shelves.size + self.resting.size + silent

    def work(self, now_ms: int) -> None:
        """Read and send what there is room for."""
        self.reading.again(now_ms)
        self.reading.due.extend(self.resting.ripe(now_ms))
        self.reading.due.extend(self.shelves.ripe(now_ms))
        for home, broker in list(self.brokers.items()):
            if broker.peer is not None and broker.flights and now_ms >= broker.heard_ms + SILENT_MS:
                self.drops.append(broker.peer)
                self._ground(home, broker)
            broker.stalled = bool(broker.flights) and now_ms >= broker.heard_ms + STALLED_MS
            if broker.peer is not None:
                self._fly(broker, now_ms)
            if broker.waiting and not broker.takes:
                waiting, broker.waiting = broker.waiting, deque()
                for parcel in waiting:
                    self._shelve(parcel, home)
        self.reading.kept.expire(now_ms)
        while self._held + self.reading.size < AHEAD_BYTES and not self.reading.is_full:
            self._refill()
            if not self.reading.begin():
                break

    def wake_ms(self) -> int | None:
        """When something is to be tried again."""
        waits = [self.reading.wake_ms(), self.resting.wake_ms(), self.shelves.wake_ms()]
        waits += [
            one.heard_ms + (SILENT_MS if one.stalled else STALLED_MS)
            for one in self.brokers.values()
            if one.flights
        ]
        return min((one for one in waits if one is not None), default=None)

    def _refill(self) -> None:
        """What waited for a broker group that goes on comes by turns with what is due."""
        self._turns += 1
        if not self.reading.due or self._turns % 2:
            homes = self.shelves.homes({home for home, one in self.brokers.items() if one.takes})
            if homes:
                self.reading.due.put_first(self.shelves.pull(homes[self._turns // 2 % len(homes)]))

    def loaded(self, token: int, data: Buffer, now_ms: int) -> None:
        """Bytes of an hour's file."""
        for unit, addressed in self.reading.loaded(token, data, now_ms):
            try:
                parcels = list(parcels_of(unit, addressed, self.ways))
            except CorruptBatch:
                self.reading.damaged(unit, now_ms)
                continue
            for parcel in parcels:
                self._held += len(parcel.batch)
                self._address(parcel, now_ms)

    # -- where to --------------------------------------------------------------------------------------------------

    def _address(self, parcel: Parcel, now_ms: int) -> None:
        subject, home = parcel.subject, parcel.group
        groups = self.routes.get(subject) or self.everywhere
        if not groups:
            self.wanted.add(subject)
        if home and self._is_forgotten(parcel):
            self._take_back(parcel)
            return
        if not home and not groups:
            if subject in self.gone:
                self._held -= len(parcel.batch)
                self._put_off(
                    parcel, Refused("unknown_subject", f"there is no {subject}"), now_ms, known=True
                )
            else:
                self._shelve(parcel, LOST)
            return
        if not home:
            self._settle_home(parcel, groups)
            home = parcel.home
        broker = self.brokers.setdefault(home, Broker())
        if broker.takes:
            broker.waiting.append(parcel)
        else:
            self._shelve(parcel, home)

    def _shelve(self, parcel: Parcel, home: str) -> None:
        """It cannot leave now, and gives back its bytes."""
        self._held -= len(parcel.batch)
        self.shelves.put(self._unit(parcel), parcel.subject, home)

    def _unit(self, parcel: Parcel) -> Unit:
        """A parcel without its bytes: it is made once more when they are read, or is the same one if it is bound."""
        parcel.batch = bytearray()
        parcel.unit.parcel = parcel if parcel.bound else None
        return parcel.unit

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
        self.reading.due.append(parcel.unit)

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
        self.gone.discard(subject)
        for broker in self.brokers.values():
            moved = [parcel for parcel in broker.waiting if parcel.subject == subject]
            if moved:
                broker.waiting = deque(parcel for parcel in broker.waiting if parcel.subject != subject)
            for parcel in moved:
                self._held -= len(parcel.batch)
                self.reading.due.append(self._unit(parcel))
        self.shelves.told(subject)

    def forget(self, subject: str) -> None:
        """There is no such subject. Its route is asked for again when something is to be brought there."""
        self.routes.pop(subject, None)
        self.gone.add(subject)
        self.wanted.discard(subject)
        self.shelves.told(subject)

    def route_all(self, groups: Sequence[str]) -> None:
        """Who takes every subject."""
        self.everywhere = groups
        self.wanted.clear()
        self.shelves.told_all()

    # -- brokers ---------------------------------------------------------------------------------------------------

    def met(self, peer: Peer, group: str) -> None:
        """A connection to a broker of a group."""
        broker = self.brokers.setdefault(group, Broker())
        if broker.peer is not None and broker.peer != peer:
            self.drops.append(broker.peer)
            self._ground(group, broker)
        broker.peer = peer

    def lost(self, peer: Peer) -> None:
        """A connection has ended: what was on its way may have arrived, and is sent again."""
        for home, broker in list(self.brokers.items()):
            if broker.peer == peer:
                self._ground(home, broker)

    def knows(self, peer: Peer) -> bool:
        """Whether a peer is a broker."""
        return any(broker.peer == peer for broker in self.brokers.values())

    def _ground(self, home: str, broker: Broker) -> None:
        broker.peer = None
        flights = [parcel for flight in broker.flights.values() for parcel in flight]
        broker.flights.clear()
        broker.flying = 0
        for parcel in flights:
            parcel.doubtful = True
            if self._is_forgotten(parcel):
                self.reading.due.append(self._unit(parcel))
            else:
                self.shelves.put(self._unit(parcel), parcel.subject, home)

    def _fly(self, broker: Broker, now_ms: int) -> None:
        assert broker.peer is not None
        if not broker.flights:
            broker.heard_ms = now_ms
        while broker.waiting and len(broker.flights) < FLIGHTS and broker.flying < FLIGHT_BYTES:
            flight = broker.board(FLIGHT_BATCHES - broker.batches)
            if not flight:
                return
            batches = bytearray().join(parcel.batch for parcel in flight)
            self._held -= len(batches)
            broker.flying += len(batches)
            self._correlation += 1
            broker.flights[self._correlation] = flight
            frame = encode_command(SendBatches(batches), self._correlation)
            self.sends.append(Send(broker.peer, frame, (), Durability.HERE))

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
            broker.flying -= len(parcel.batch)
            error = answer.error if isinstance(answer, Failed) else refused.get(index)
            if error is not None:
                self._put_off(parcel, error, now_ms, known=isinstance(answer, Sent))
                continue
            self._end(parcel)
            done.append(parcel.unit)
        return done

    def _end(self, parcel: Parcel) -> None:
        """It is done with."""
        self.size -= len(parcel.unit.numbers)
        if parcel.unit.tried:
            self.reading.due.extend(self.shelves.taken(parcel.subject))

    def _put_off(self, parcel: Parcel, error: WireError, now_ms: int, *, known: bool) -> None:
        """``known``: that the broker does not have it. Then its order keys may be looked for elsewhere."""
        unit, subject = parcel.unit, parcel.subject
        self.refused[error.kind.name] += len(unit.numbers)
        if known and is_over(unit, error.kind.name, now_ms):
            self._ended.append((error.kind.name, unit))
            self._end(parcel)
            return
        if known and parcel.group:
            unit.version = parcel.version + 1
            if parcel.version < self.ways[subject].newest:
                self.reading.due.append(unit)
                return
        elif known and subject in self.ways:
            unit.version = None
        if known:
            parcel.sent, parcel.doubtful, parcel.home = False, False, ""
        else:
            parcel.sent = bool(parcel.group) or parcel.doubtful
        self._unit(parcel)
        if known and not parcel.group and error.wait_ms:
            self.resting.put(unit, subject, error.wait_ms, now_ms)
            return
        wait_ms = max(SOON_MS if error.kind.retryable else LATE_MS, min(error.wait_ms, WAIT_MS_MAX))
        self.shelves.put(unit, subject, REFUSED, (now_ms + wait_ms, wait_ms))

    def take_ended(self) -> list[tuple[str, Unit]]:
        """What is given up, and why."""
        ended, self._ended = self._ended, []
        return ended

    def check(self) -> None:
        """The sums are what is there."""
        self.shelves.check()
        self.resting.check()
        self.reading.check()
        units: list[Unit] = []
        held = 0
        for broker in self.brokers.values():
            flights = [parcel for flight in broker.flights.values() for parcel in flight]
            units += [parcel.unit for parcel in (*broker.waiting, *flights)]
            held += sum(len(parcel.batch) for parcel in broker.waiting)
            assert broker.flying == sum(len(parcel.batch) for parcel in flights)
        assert self._held == held
        waiting = self.shelves.size + self.resting.size + self.reading.messages()
        assert self.size == waiting + sum(len(unit.numbers) for unit in units)
