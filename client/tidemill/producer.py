"""Sending: from ``send`` to the answer, over as many connections as it takes.

    a message is   gathered   waits for room in a frame                        -> in flight, spooled, or fails
                   in flight  its batch was written to the link at least once  -> stored, refused, or fails
                   refused    the broker cannot take it now                    -> in flight again after a wait, or
                   fails

Invariants: a batch's bytes never change once it was sealed, and batches of a partition leave in their order, also
after a reconnect; at most ``PRODUCER_BATCHES_REMEMBERED`` frames are in flight, so the broker recognises whatever
comes
twice; every waiter hears exactly once; ``_memory`` is the size of all that has not ended, and callers wait above the
bound.
A crash of the process loses what was not answered, but for the spool (``spool.py``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from tidemill.backoff import Backoff
from tidemill.errors import (
    BrokerUnreachable,
    ConnectionLost,
    OutcomeUnknown,
    Refused,
    TidemillError,
    Unavailable,
    again,
    wire_error,
)
from tidemill.flights import Flight, Flights
from tidemill.gather import Gather, Signature, cut
from tidemill.link import Answer, Link
from tidemill.parcel import Extras, Parcel, Partition, Waiter
from tidemill.receipts import SPOOLED
from tidemill.settings import ClientSettings
from tidemill_wire.commands import Sent
from tidemill_wire.fields import parse_subject

CHECK_S = 0.25
"""How often deadlines are looked at while something waits."""


class Keeper(Protocol):
    """Who takes over while no broker is there."""

    def needed(self) -> None: ...


class Producer:
    """All sends of a client to one broker."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._linger_s = settings.linger_ms / 1000
        self._gather = Gather(
            Signature(settings.random.getrandbits(63), settings.codec, settings.now_ms), settings.batch_bytes
        )
        self._partitions: dict[str | tuple[str, int], Partition] = {}
        """By subject; with a priority, by both."""
        self._link: Link | None = None
        self._flights = Flights()
        self._backoff = Backoff(settings.backoff_base_s, settings.backoff_max_s, settings.random)
        self._scheduled: asyncio.Handle | None = None
        self._checking: asyncio.TimerHandle | None = None
        self._memory = 0
        self._room: deque[asyncio.Future[None]] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._down_since: float | None = self._loop.time()
        self._failure: TidemillError | None = None
        self._closed: TidemillError | None = None
        self.keeper: Keeper | None = None
        self.stopped = False
        """The spool has the word: what is gathered waits until it has been replayed."""

    # -- handing in --------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """There is no room for more: ``await room()`` first."""
        return self._memory >= self._settings.memory_bytes_max

    async def room(self) -> None:
        """Until there is room."""
        while self.full and self._closed is None:
            future: asyncio.Future[None] = self._loop.create_future()
            self._room.append(future)
            await future

    def put(
        self, subject: str, body: bytes, extras: Extras | None, waiter: Waiter, priority: int = 0
    ) -> None:
        """One message. It leaves now when nothing is under way, else with the next frame."""
        key = (subject, priority) if priority else subject
        partition = self._partitions.get(key) or self._partition(subject, priority)
        deadline = self._loop.time() + self._settings.send_timeout_s
        self._memory += self._gather.add(partition, body, extras, waiter, deadline)
        if self._scheduled is None:
            self.wake()

    def put_each(self, messages: list[tuple[str, bytes]], place: int, waiter: Waiter) -> None:
        """Messages of many subjects: they leave together. One that is refused ends it; those before it leave."""
        deadline = self._loop.time() + self._settings.send_timeout_s
        partitions, add = self._partitions, self._gather.add
        try:
            for subject, body in messages:
                partition = partitions.get(subject) or self._partition(subject)
                self._memory += add(partition, body, None, waiter, deadline, place)
                place += 1
        finally:
            self.wake()

    def put_many(
        self, subject: str, bodies: list[bytes], place: int, waiter: Waiter, priority: int = 0
    ) -> None:
        """Bodies for one subject, about a batch of them."""
        key = (subject, priority) if priority else subject
        partition = self._partitions.get(key) or self._partition(subject, priority)
        deadline = self._loop.time() + self._settings.send_timeout_s
        self._memory += self._gather.add_many(partition, bodies, place, waiter, deadline)
        if self._scheduled is None:
            self.wake()

    def pieces(self, bodies: list[bytes]) -> list[list[bytes]]:
        """``bodies`` cut into batches; new lists, which belong to the producer."""
        ends = cut(bodies, self._settings.batch_bytes)
        return [bodies[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _partition(self, subject: str, priority: int = 0) -> Partition:
        if self._closed is not None:
            raise again(self._closed)
        key = (subject, priority) if priority else subject
        partition = self._partitions[key] = Partition(parse_subject(subject), priority)
        return partition

    # -- leaving -----------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something waits: let it leave, at once when the wire is idle, else with its company."""
        if self._checking is None:
            self._checking = self._loop.call_later(CHECK_S, self._check)
        if self.stopped and self.keeper is not None:
            self.keeper.needed()
        elif self._linger_s > 0:
            if self._scheduled is None:
                self._scheduled = self._loop.call_later(self._linger_s, self._flush)
        elif not self._flights:
            self._flush()
        elif self._scheduled is None:
            self._scheduled = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        link = self._link
        while link is not None and not self.stopped and not self._flights.full and not link.paused:
            refused = self._flights.again(self._loop.time()) if self._flights.refused else None
            batches = [refused] if refused is not None else self._gather.take()
            if not batches:
                return
            self._write(self._flights.depart(batches), link)

    def _write(self, flight: Flight, link: Link) -> None:
        data = [batch.data for batch in flight.batches]
        try:
            link.send(data, flight.size, lambda answer: self._answered(flight, answer, link))
        except ConnectionLost:
            return  # It is written again when the session has a new link.

    # -- answers -----------------------------------------------------------------------------------------------

    def _answered(self, flight: Flight, answer: Answer, link: Link) -> None:
        if isinstance(answer, ConnectionLost) or flight not in self._flights:
            return
        if isinstance(answer, Sent) and len(answer.first_sequences) == len(flight.batches):
            self._flights.land(flight)
            if answer.refused:
                self._settle_some(flight, answer)
            else:
                for batch, first_sequence in zip(flight.batches, answer.first_sequences, strict=True):
                    self._memory -= batch.size
                    batch.stored(first_sequence)
                if self._memory == 0:
                    self._rest()
        elif isinstance(answer, TidemillError):
            self._flights.land(flight)
            for batch in flight.batches:
                self._refuse(batch, answer)
        else:
            link.close()  # An answer that is none: the bytes are sent again over a new connection.
            return
        if self._room:
            self._admit()
        if (self._gather or self._flights.refused) and self._scheduled is None:
            # In the next turn: those who were just answered may have more to send.
            self._scheduled = self._loop.call_soon(self._flush)

    def _settle_some(self, flight: Flight, answer: Sent) -> None:
        refused = {index: wire_error(number, detail) for index, number, detail in answer.refused}
        for index, batch in enumerate(flight.batches):
            error = refused.get(index)
            if error is not None:
                self._refuse(batch, error)
            else:
                self._end(batch)
                batch.stored(answer.first_sequences[index])

    def _refuse(self, batch: Parcel, error: TidemillError) -> None:
        now = self._loop.time()
        wait = self._backoff.next()
        if not isinstance(error, Unavailable) or now + wait >= batch.deadline or batch.waiter is None:
            self._end(batch)
            batch.failed(error)
            return
        batch.error = error
        self._flights.refuse(batch, now + wait)
        self._loop.call_later(wait, self.wake)

    def _end(self, batch: Parcel) -> None:
        self._memory -= batch.size
        if self._memory == 0:
            self._rest()

    def _admit(self) -> None:
        if self.full:
            return
        # All of them look again, one after the other in their order, and wait anew when there is no room left.
        waiting, self._room = self._room, deque()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _rest(self) -> None:
        idle, self._idle = self._idle, []
        for future in idle:
            if not future.done():
                future.set_result(None)

    # -- connections -------------------------------------------------------------------------------------------

    def up(self, link: Link) -> None:
        """A connection is there: first what was in flight, in its order and with its bytes, then the rest."""
        self._link = link
        self._down_since = None
        self._failure = None
        link.on_resume = self._flush
        for flight in self._flights:
            self._write(flight, link)
        if self.keeper is not None:
            self.keeper.needed()
        self._flush()

    def down(self, error: TidemillError) -> None:
        """The connection is gone, or could not be made."""
        self._link = None
        self._failure = error
        if self._down_since is None:
            self._down_since = self._loop.time()
        self._flights.forget_abandoned()
        if isinstance(error, Refused):
            self._expire(float("inf"), error)

    # -- deadlines ---------------------------------------------------------------------------------------------

    def _check(self) -> None:
        now = self._loop.time()
        self._checking = None
        self._expire(now, None)
        if self.keeper is not None and self.overdue:
            self.keeper.needed()
        if self._room:
            self._admit()
        if self._memory or self._flights:
            self._checking = self._loop.call_later(CHECK_S, self._check)

    def _expire(self, now: float, error: TidemillError | None) -> None:
        """What has waited too long fails; ``error`` says why, when it is not the deadline."""
        unanswered = self._flights.unanswered(now)
        for batch in unanswered:
            self._abandon(batch, error or self._unknown(batch))
        for batch in self._flights.expired(now):
            self._end(batch)
            batch.failed(error or batch.error or self._unreachable())
        for batch in self._gather.expired(now):
            self._end(batch)
            batch.failed(error or self._unreachable())
        if unanswered and self._link is not None:
            self._link.close()  # It answers pings and no sends: a new connection may do better.
        if self._memory == 0:
            self._rest()

    def _abandon(self, batch: Parcel, error: TidemillError) -> None:
        """Nobody waits for it any more. It stays in its frame, whose answer counts its place."""
        partition = batch.partition
        partition.reached = max(partition.reached, batch.number)
        self._end(batch)
        batch.failed(error)
        batch.abandon()

    def _unknown(self, batch: Parcel) -> TidemillError:
        waited = self._settings.send_timeout_s
        return OutcomeUnknown(
            f"no answer within {waited} s to a batch for {batch.partition.name}: it may be stored, or not"
        )

    def _unreachable(self) -> TidemillError:
        if self._link is not None:
            return Unavailable("too_slow", "the broker did not take it before the deadline; it is not stored")
        why = f": {self._failure}" if self._failure is not None else ""
        return BrokerUnreachable(
            f"no broker was reached within {self._settings.send_timeout_s} s; not stored{why}"
        )

    @property
    def link(self) -> Link | None:
        """The connection there is."""
        return self._link

    @property
    def overdue(self) -> bool:
        """No broker was reached for so long that the spool is to be used."""
        down_since = self._down_since
        return down_since is not None and self._loop.time() - down_since >= self._settings.spool_after_s

    # -- the spool's side --------------------------------------------------------------------------------------

    def hand_over(self) -> list[Parcel]:
        """All that has not ended, sealed and in order, for the spool. ``stopped`` must be set."""
        assert self.stopped
        batches = self._flights.hand_over()
        while more := self._gather.take():
            batches += more
        return batches

    def take_back(self, batches: list[Parcel]) -> None:
        """The spool could not take them."""
        for batch in batches:
            self._flights.refuse(batch, self._loop.time())

    def spooled(self, batches: list[Parcel]) -> None:
        """They lie in the spool now."""
        for batch in batches:
            self._end(batch)
            batch.stored(SPOOLED)
        if self._room:
            self._admit()

    # -- the end -----------------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Until all that was handed in has ended, one way or the other: at the latest at its deadline."""
        while self._memory and self._closed is None:
            future: asyncio.Future[None] = self._loop.create_future()
            self._idle.append(future)
            await future

    def fail(self, error: TidemillError) -> None:
        """It is over: everything fails with ``error``, and whatever comes later."""
        self._closed = error
        self._expire(float("inf"), error)
        for handle in (self._scheduled, self._checking):
            if handle is not None:
                handle.cancel()
        self._flights.clear()
        self._partitions.clear()
        waiting, self._room = self._room, deque()
        for future in waiting:
            if not future.done():
                future.set_result(None)  # They hand in next, and hear of it there.
