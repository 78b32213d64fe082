"""All that goes to one broker group: from a batch's first message to its answer, over as many connections as it takes.

    a message is   gathered   waits for room in a frame                        -> in flight, spooled, elsewhere, fails
                   in flight  its batch was written to the link at least once  -> stored, refused, fails
                   refused    the broker cannot take it now                    -> in flight again after a wait,
                                                                                  elsewhere, fails

Invariants: a batch's bytes never change once it was sealed, and batches of a partition leave in their order, also
after a reconnect; at most ``PRODUCER_BATCHES_REMEMBERED`` frames are in flight, so the broker recognises whatever
comes twice; every waiter hears exactly once. What was in flight may be stored, so it is sent again to this broker group
and to no other; *elsewhere* goes only what certainly is not (``producer.py`` decides, ``relieve`` gives it up). A lane
has a producer id of its own: numbers of one broker group mean nothing to another.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from tidemill.backoff import Backoff
from tidemill.budget import Budget
from tidemill.doubts import denied, unreached
from tidemill.doubts import unanswered as no_answer
from tidemill.errors import ConnectionLost, Refused, TidemillError, Unavailable, wait_of
from tidemill.flights import Flight, Flights
from tidemill.gather import Gather, Signature
from tidemill.link import Answer, Link
from tidemill.parcel import Parcel, Partition
from tidemill.receipts import SPOOLED
from tidemill.settings import ClientSettings
from tidemill.spread import Key, Standing
from tidemill.steadiness import SLOW_S, Steadiness
from tidemill_wire.commands import Sent
from tidemill_wire.fields import parse_subject

OUTDATED = "route_outdated"
CHECK_S = 0.25
"""How often deadlines are looked at while something waits."""

log = logging.getLogger("tidemill")


class Keeper(Protocol):
    """Who takes over while no broker is there."""

    def needed(self) -> None: ...


class Owner(Protocol):
    """The producer, as a lane tells it of changes."""

    def stands(self, lane: Lane) -> None:
        """It is better or worse off than before."""
        ...

    def outdated(self, partition: Partition) -> None:
        """An order key of it lies elsewhere, says its broker."""

    def landed(self) -> None:
        """Something on its way was answered."""


class Lane:
    """See the module."""

    def __init__(self, group: str, settings: ClientSettings, budget: Budget, owner: Owner) -> None:
        self.group = group
        self.keeper: Keeper | None = None
        self.stopped = False
        """The spool has the word: what is gathered waits until it has been replayed."""
        self.retired = False
        """What has no route waits here, and is sent from here no more."""
        self.scheduled: asyncio.Handle | None = None
        self.producer_id = settings.random.getrandbits(63)
        self.gather = Gather(
            Signature(self.producer_id, settings.codec, settings.now_ms), settings.batch_bytes
        )
        backoff = Backoff(settings.backoff_base_s, settings.backoff_max_s, settings.random)
        self.flights = Flights(backoff, settings.random)
        self.partitions: dict[Key, Partition] = {}
        self.link: Link | None = None
        """The connection there is."""
        self.failure: TidemillError | None = None
        """Why there is none."""
        self._settings = settings
        self._budget = budget
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._linger_s = settings.linger_ms / 1000
        self._steadiness = Steadiness()
        self._trial: asyncio.TimerHandle | None = None
        self._checking: asyncio.TimerHandle | None = None
        self.down_since: float | None = self._loop.time()

    def partition(self, subject: str, priority: int = 0, stored_as: str = "") -> Partition:
        """A partition of a subject in this lane; without a name the one that is named as the subject is."""
        name = stored_as or subject
        key = (name, priority) if priority else name
        partition = self.partitions.get(key)
        if partition is None:
            partition = self.partitions[key] = Partition(parse_subject(subject), priority, name)
            partition.lane, partition.add, partition.tally = self, self.gather.add, self._budget.tally
        return partition

    @property
    def standing(self) -> Standing:
        """How good it is to send here now."""
        if self.link is None or self.stopped:
            return Standing.AWAY
        return Standing.STEADY if self._trial is None else Standing.AVOIDED

    @property
    def forsaken(self) -> bool:
        """Order keys of a subject that is only tried do not wait for it: it failed, or keeps them waiting. The first
        connection has as long as an answer.
        """
        if self.link is None and self.failure is None and self.down_since is not None and not self.stopped:
            return self._loop.time() - self.down_since > SLOW_S
        return self.standing is not Standing.STEADY

    @property
    def halted(self) -> bool:
        """Nothing new may leave."""
        return self.stopped or self.retired

    # -- leaving -----------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something waits: let it leave, at once when the wire is idle, else with its company."""
        if self._checking is None:
            self._checking = self._loop.call_later(CHECK_S, self._check)
        if self.stopped and self.keeper is not None:
            self.keeper.needed()
        elif self._linger_s > 0:
            if self.scheduled is None:
                self.scheduled = self._loop.call_later(self._linger_s, self._flush)
        elif not self.flights:
            self._flush()
        elif self.scheduled is None:
            self.scheduled = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self.scheduled is not None:
            self.scheduled.cancel()
            self.scheduled = None
        link = self.link
        while link is not None and not self.halted and not self.flights.full and not link.paused:
            refused = self.flights.again(self._loop.time()) if self.flights.refused else None
            batches = [refused] if refused is not None else self.gather.take()
            if not batches:
                return
            self._write(self.flights.depart(batches, 0 if refused is None else refused.passed), link)

    def _write(self, flight: Flight, link: Link) -> None:
        data = [batch.data for batch in flight.batches]
        try:
            link.send(data, flight.size, lambda answer: self._answered(flight, answer, link))
        except ConnectionLost:
            return  # It is written again when the session has a new link.
        flight.asked_at = self._loop.time()

    def resume(self) -> None:
        """The spool is empty: what is gathered may leave."""
        self._owner.stands(self)
        self.wake()

    # -- answers -----------------------------------------------------------------------------------------------

    def _answered(self, flight: Flight, answer: Answer, link: Link) -> None:
        if isinstance(answer, ConnectionLost) or flight not in self.flights:
            return
        if isinstance(answer, Sent) and len(answer.first_sequences) == len(flight.batches):
            self.flights.land(flight)
            if answer.refused or answer.duplicates:
                self._settle_some(flight, answer)
            else:
                size = 0
                for batch, first_sequence in zip(flight.batches, answer.first_sequences, strict=True):
                    size += batch.size
                    batch.stored(first_sequence)
                self.flights.taken()
                self._steadiness.answered(flight.asked_at, self._loop.time())
                if not self._steadiness.steady:
                    self._avoid()
                self._budget.give_back(size)
        elif isinstance(answer, TidemillError) and not flight.doubtful:
            self.flights.land(flight)
            for batch in flight.batches:
                self._refuse(batch, answer)
        else:
            link.close()  # An answer that is none, or is no answer to a doubt: the bytes are sent once more.
            return
        self._owner.landed()
        if (self.gather or self.flights.refused) and self.scheduled is None:
            # In the next turn: those who were just answered may have more to send.
            self.scheduled = self._loop.call_soon(self._flush)

    def _settle_some(self, flight: Flight, answer: Sent) -> None:
        refused, duplicates = answer.errors, dict(answer.duplicates)
        for index, batch in enumerate(flight.batches):
            error = refused.get(index)
            if error is not None:
                self._refuse(batch, self._judged(batch, error) if flight.doubtful else error)
            else:
                self._budget.give_back(batch.size)
                batch.stored(answer.first_sequences[index], duplicates.get(index, b""))

    def _refuse(self, batch: Parcel, error: TidemillError) -> None:
        now = self._loop.time()
        wait_s = wait_of(error)
        again_at = self.flights.after(now, wait_s) if wait_s else self.flights.next_try(now)
        elsewhere = not wait_s and batch.partition.spread is not None and not batch.partition.bound
        tries_again = elsewhere or again_at < batch.deadline
        if not isinstance(error, Unavailable) or not tries_again or batch.waiter is None:
            self._budget.give_back(batch.size)
            batch.failed(error)
            return
        batch.error = error
        if self.flights.refuse(batch, again_at):
            self._loop.call_at(again_at, self.wake)
        if error.kind.name == OUTDATED:
            self._owner.outdated(batch.partition)
            return
        if not wait_s:  # who has used up a quota has a broker that is well
            self._steadiness.failed(now)
            self._avoid()
        if self.retired:
            self._owner.stands(self)

    def _judged(self, batch: Parcel, error: TidemillError) -> TidemillError:
        """What is told of a batch that was sent before, and was not answered."""
        partition, batch.doubtful = batch.partition, True
        partition.reached = max(partition.reached, batch.number)
        return denied(f"a batch for {partition.name}", error)

    # -- standing ----------------------------------------------------------------------------------------------

    def _avoid(self) -> None:
        """For as long as ``steadiness`` says; what waits may go elsewhere meanwhile."""
        wait = self._steadiness.until - self._loop.time()
        if wait > 0 and self._trial is None:
            self._trial = self._loop.call_later(wait, self._try_again)
            self._owner.stands(self)

    def _try_again(self) -> None:
        """Unless it still owes an answer: what was sent now would wait behind that."""
        self._trial = None
        self._look()
        if self._trial is None:
            self._owner.stands(self)

    def _look(self) -> None:
        now, oldest = self._loop.time(), self.flights.oldest_asked()
        if self.link is not None and oldest is not None and now - oldest > SLOW_S:
            self._steadiness.failed(now)
            self._avoid()

    @property
    def laden(self) -> list[Partition]:
        """Partitions with something that may go elsewhere."""
        return [] if self.stopped else list(dict.fromkeys((*self.gather.waiting, *self.flights.held)))

    def refuse(self, partition: Partition, error: TidemillError) -> None:
        """Nobody will ever take what waits for a partition."""
        for batch in (*self.gather.give_up(partition), *self.flights.give_up(partition)):
            self._budget.give_back(batch.size)
            batch.failed(error)

    def relieve(self, partition: Partition, by: Partition) -> int:
        """What of a partition no broker can have goes to another lane: how many messages with an order key."""
        lane = by.lane
        by.ordered = by.ordered or partition.ordered
        waiting, refused = self.gather.give_up(partition), self.flights.give_up(partition)
        lane.gather.adopt(by, waiting)
        for batch in refused:
            lane.flights.refuse(batch.rehomed(by, lane.producer_id), self._loop.time())
        lane.wake()
        return sum(batch.keyed for batch in (*waiting, *refused)) if partition.ordered else 0

    # -- connections -------------------------------------------------------------------------------------------

    def up(self, link: Link) -> None:
        """A connection is there: first what was in flight, in its order and with its bytes, then the rest."""
        self.link = link
        if not self.retired:
            self.down_since = self.failure = None
        link.on_resume = self._flush
        self._avoid()
        for flight in self.flights:
            self._write(flight, link)
        if self.keeper is not None:
            self.keeper.needed()
        self._flush()
        self._owner.stands(self)

    def down(self, error: TidemillError) -> None:
        """The connection is gone, or could not be made."""
        if self.link is None and self.failure is None:  # there never was one
            log.warning(
                "no_broker_yet %s: %s", self.group or self._settings.name, " ".join(str(error).split())
            )
        if self.link is not None:
            self.link = None
            self._steadiness.failed(self._loop.time())
        self.failure = error
        if self.down_since is None and not self.retired:
            self.down_since = self._loop.time()
        self.flights.forget_abandoned()
        self.flights.ground(self._loop.time())
        if isinstance(error, Refused):
            self.expire(float("inf"), error)
        self._owner.stands(self)

    def retire(self, *, waits: bool) -> None:
        """Nothing new leaves here. What was sent is still answered, and what waits goes to another lane."""
        self.retired = True
        if not waits:
            self.down_since = None
        elif self.down_since is None:
            self.down_since = self._loop.time()

    # -- deadlines ---------------------------------------------------------------------------------------------

    def _check(self) -> None:
        now = self._loop.time()
        self._checking = None
        self.expire(now, None)
        self._look()
        if self.link is None and self.failure is None:
            self._owner.stands(self)  # it is still dialled for the first time, and may be forsaken by now
        if self.keeper is not None and self.overdue:
            self.keeper.needed()
        if self.gather or self.flights or self.flights.refused:
            self._checking = self._loop.call_later(CHECK_S, self._check)

    def expire(self, now: float, error: TidemillError | None) -> None:
        """What has waited too long fails; ``error`` says why, when it is not the deadline."""
        unanswered = self.flights.unanswered(now)
        waited_s = self._settings.send_timeout_s
        for batch in unanswered:
            name = batch.partition.name
            what = f"a batch for {name}"
            told = no_answer(name, waited_s) if error is None else denied(what, error, looked=False)
            self._abandon(batch, told)
        gone = self.flights.expired(now)
        for batch in (*gone, *self.gather.expired(now)):
            self._budget.give_back(batch.size)
            late = error or batch.error or unreached(waited_s, self.failure, linked=self.link is not None)
            batch.failed(late)
        if unanswered and self.link is not None:
            self.link.close()  # It answers pings and no sends: a new connection may do better.

    def _abandon(self, batch: Parcel, error: TidemillError) -> None:
        """Nobody waits for it any more. It stays in its frame, whose answer counts its place."""
        partition = batch.partition
        partition.reached = max(partition.reached, batch.number)
        self._budget.give_back(batch.size)
        batch.failed(error)
        batch.abandon()

    @property
    def overdue(self) -> bool:
        """No broker was reached for so long that the spool is to be used."""
        down_since = self.down_since
        return down_since is not None and self._loop.time() - down_since >= self._settings.spool_after_s

    # -- the spool's side --------------------------------------------------------------------------------------

    def hand_over(self) -> list[Parcel]:
        """All that has not ended, sealed and in order, for the spool. ``stopped`` must be set."""
        assert self.stopped
        batches = self.flights.hand_over()
        while more := self.gather.take():
            batches += more
        return batches

    def take_back(self, batches: list[Parcel]) -> None:
        """The spool could not take them."""
        for batch in batches:
            self.flights.refuse(batch, self._loop.time())

    def spooled(self, batches: list[Parcel]) -> None:
        """They lie in the spool now."""
        size = sum(batch.size for batch in batches)
        for batch in batches:
            batch.stored(SPOOLED)
        self._budget.give_back(size)

    # -- the end -----------------------------------------------------------------------------------------------

    def fail(self, error: TidemillError) -> None:
        """It is over: everything fails with ``error``."""
        self.expire(float("inf"), error)
        for handle in (self.scheduled, self._checking, self._trial):
            if handle is not None:
                handle.cancel()
        self.flights.clear()
        self.partitions.clear()
