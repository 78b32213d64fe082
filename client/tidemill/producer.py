"""Sending: which broker group a message goes to, and what becomes of it when that one cannot be reached.

A lane (``lane.py``) is all that goes to one broker group. A subject's partitions lie on several; ``spread.py`` says
whose turn it is. The lane without a group is for what nobody knows a route of: where a broker lists itself that is
everything, and the lane has the connection to it; else messages wait there until meta has said where they go.

    a lane becomes      then
    away, or avoided    what no broker can have of it goes to a better one of its subject, and so does what comes
    better              it takes over what waits in worse ones

Invariants: a batch whose outcome is unknown stays in its lane, with its number; ``Budget.held`` is the size of all that
has not ended, and callers wait above the bound. A crash of the process loses what was not answered, but for the spools.
"""

from __future__ import annotations

import asyncio
import logging
from functools import cached_property, partial

from tidemill.apart import take_apart
from tidemill.budget import Budget
from tidemill.errors import TidemillError, again
from tidemill.gather import cut
from tidemill.lane import Lane
from tidemill.later import Later
from tidemill.link import Link
from tidemill.moving import Moving
from tidemill.parcel import Extras, Partition, Waiter
from tidemill.router import Router
from tidemill.routes import Address
from tidemill.session import Session, Watchers
from tidemill.settings import ClientSettings
from tidemill.spooler import Places
from tidemill.spread import Key, Spread, Standing
from tidemill.tasks import Tasks
from tidemill.ways import Ways
from tidemill_wire.columns import Batch
from tidemill_wire.fields import living_subject
from tidemill_wire.routes import Partition as Place

log = logging.getLogger("tidemill")

ANYWHERE = ""
"""The lane of what has no route."""


class Producer:
    """All sends of a client."""

    def __init__(
        self, settings: ClientSettings, router: Router, tasks: Tasks, places: Places | None = None
    ) -> None:
        self.budget = Budget(settings.memory_bytes_max)
        self.room = self.budget.room
        self.drain = self.budget.drained
        self._settings = settings
        self._router = router
        self._tasks = tasks
        self._places = places
        self._loop = asyncio.get_running_loop()
        self._closed: TidemillError | None = None
        self._partitions: dict[Key, Partition] = {}
        """By subject, and with a priority by both: whose turn it is."""
        self._spreads: dict[Key, Spread] = {}
        self._lanes: dict[str, Lane] = {}
        self._moving = Moving(router, self._lanes, self)
        self._sessions: dict[str, Session] = {}
        self._unrouted: dict[Key, Partition] = {}
        """Those that wait for a route."""
        self._routed = asyncio.Event()
        self._listed = ANYWHERE
        """The broker group that listed itself, before meta was heard of."""
        self.unordered = 0
        """Messages with an order key that were sent to another partition than their own."""
        self._forsaken: set[str] = set()
        """Broker groups that it was said of."""
        self.ways = Ways(router, settings.send_timeout_s if places is None else settings.spool_after_s)
        router.listeners.append(self._routes_changed)
        self.anywhere = self.lane(ANYWHERE)
        self._note_mode()

    # -- handing in --------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """There is no room for more: ``await room()`` first."""
        return self.budget.held >= self._settings.memory_bytes_max

    def put(
        self, subject: str, body: bytes, extras: Extras | None, waiter: Waiter, priority: int = 0
    ) -> None:
        """One message. It leaves now when nothing is under way, else with the next frame."""
        key = (subject, priority) if priority else subject
        partition = self._partitions.get(key) or self._partition(subject, priority)
        if extras is not None and extras.order_key is not None and self._routed.is_set():
            partition = self._ordered(partition, extras)
        deadline = self._loop.time() + self._settings.send_timeout_s
        self.budget.held += partition.add(partition, body, extras, waiter, deadline)
        lane = partition.lane
        if lane.scheduled is None:
            lane.wake()

    @cached_property
    def later(self) -> Later:
        """What is sent for later."""
        return Later(self._settings, self._router, self._tasks, self.budget, self._places)

    def put_each(self, messages: list[tuple[str, bytes]], place: int, waiter: Waiter) -> None:
        """Messages of many subjects: they leave together. One that is refused ends it; those before it leave."""
        deadline = self._loop.time() + self._settings.send_timeout_s
        partitions = self._partitions
        size = 0
        try:
            for subject, body in messages:
                partition = partitions.get(subject) or self._partition(subject)
                size += partition.add(partition, body, None, waiter, deadline, place)
                place += 1
        finally:
            self.budget.held += size
            for lane in list(self._lanes.values()):
                if lane.gather:
                    lane.wake()

    def put_many(
        self, subject: str, bodies: list[bytes], place: int, waiter: Waiter, priority: int = 0
    ) -> None:
        """Bodies for one subject, about a batch of them."""
        key = (subject, priority) if priority else subject
        partition = self._partitions.get(key) or self._partition(subject, priority)
        deadline = self._loop.time() + self._settings.send_timeout_s
        lane = partition.lane
        self.budget.held += lane.gather.add_many(partition, bodies, place, waiter, deadline)
        if partition.spread is not None:
            partition.spread.turn()
        if lane.scheduled is None:
            lane.wake()

    def pieces(self, bodies: list[bytes]) -> list[list[bytes]]:
        """``bodies`` cut into batches; new lists, which belong to the producer."""
        ends = cut(bodies, self._settings.batch_bytes)
        return [bodies[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _partition(self, subject: str, priority: int = 0) -> Partition:
        """The first message of a subject: where it goes."""
        if self._closed is not None:
            raise again(self._closed)
        home = self.anywhere.partition(subject, priority)
        key = (subject, priority) if priority else subject
        self._router.want(subject)
        if not self._routed.is_set():
            # A broker that lists itself has everything; who has not answered yet may be one.
            self._partitions[key] = home
            return home
        found = self._find_way(key, home)
        if found is None and subject in self._router.refused:
            raise again(self._router.refused[subject])
        return found or self._wait_for_route(key, home)

    def _wait_for_route(self, key: Key, home: Partition) -> Partition:
        """Not in the dict by which messages find their way: each looks whether there is a route by now."""
        if not self._unrouted:
            self.anywhere.down_since = self._loop.time()
        self._unrouted[key] = home
        return home

    # -- order keys --------------------------------------------------------------------------------------------

    def _ordered(self, partition: Partition, extras: Extras) -> Partition:
        """Where an order key lies, whatever may be said of the broker there; of a subject that is only tried, the
        partition whose turn it is, when that is better off.
        """
        place = self._moving.place(partition.name, extras.order_key) if extras.order_key is not None else None
        if place is None:
            return partition
        owner = self._at(partition, place)
        if extras.dedup_key or not owner.best_tried or owner is partition or partition.lane is self.anywhere:
            return owner
        takes = partition.spread is not None and owner in partition.spread.partitions
        if takes and (not owner.lane.forsaken or owner.lane.standing >= partition.lane.standing):
            return owner
        self._stray(owner, 1)
        return partition

    def home_of(self, partition: Partition, extras: Extras | None) -> Partition:
        """Where a message of a partition goes that is handed out anew."""
        key = (partition.name, partition.priority) if partition.priority else partition.name
        turn = self._partitions.get(key, partition)
        return turn if extras is None else self._ordered(turn, extras)

    def count(self, size: int) -> None:
        """So much more, or less, is held."""
        self.budget.held += size

    def outdated(self, partition: Partition) -> None:
        """An order key of it lies elsewhere, says its broker."""
        self._moving.outdated(partition.name)
        self._loop.call_soon(self._moving.look)  # when all of the answer was heard

    def landed(self) -> None:
        """Something on its way was answered."""
        if self._moving.holding:
            self._loop.call_soon(self._moving.look)

    def _stray(self, owner: Partition, messages: int) -> None:
        """Messages with an order key go to another partition than that one, which is said once an outage."""
        self.unordered += messages
        group = owner.lane.group
        if messages and group not in self._forsaken:
            self._forsaken.add(group)
            log.warning("order_given_up %s: its order keys of %s go elsewhere meanwhile", owner.name, group)

    def _at(self, home: Partition, place: Place) -> Partition:
        """A partition of the route of ``home``'s subject."""
        partition = self.lane(place.group).partition(home.name, home.priority, place.name)
        partition.best_tried = self._router.atlas.routes[home.name].best_tried
        return partition

    # -- routes ------------------------------------------------------------------------------------------------

    def _routes_changed(self) -> None:
        """Somebody said who serves what."""
        self.ways.news()
        self._note_mode()
        if not self._routed.is_set():
            return
        for group, session in self._sessions.items():
            address = self._router.atlas.brokers.get(group)
            if address is not None:
                session.moved(address)
        for key, home in list(self._unrouted.items()):
            refusal = self._router.refused.get(home.name)
            if self._find_way(key, home) is None and refusal is not None:
                del self._unrouted[key]
                self.anywhere.refuse(home, refusal)
        self.anywhere.failure = self._router.hindrance
        if not self._unrouted:
            self.anywhere.down_since = None
        for key, spread in list(self._spreads.items()):
            self._reroute(key, spread)
        self._moving.look()
        self._tell_spool()

    def _note_mode(self) -> None:
        """Meta has answered: nothing goes out of the lane without a group any more."""
        if self._router.atlas.routed and not self._routed.is_set():
            self._routed.set()
            self._unrouted = {
                key: one for key, one in self.anywhere.partitions.items() if one.open or one.refused
            }
            self._partitions.clear()
            self.anywhere.retire(waits=bool(self._unrouted))
            if self.anywhere.keeper is not None:
                self.anywhere.keeper.needed()

    def _find_way(self, key: Key, home: Partition) -> Partition | None:
        """The partition whose turn it is, for a subject that waited; ``None`` without a route to one."""
        places = self._router.atlas.takers(home.name)
        if not places:
            return None
        partitions = [self._at(home, place) for place in places]
        start = self._settings.random.randrange(len(partitions))
        self._spreads[key] = Spread(key, partitions, self._partitions, start)
        found = self._partitions[key]
        self._unrouted.pop(key, None)
        if home.open or home.refused:
            self._take_home(home, found)
        return found

    def _take_home(self, home: Partition, found: Partition) -> None:
        """What waited for a route has one: all of it to the partition whose turn it is, but for order keys."""
        if home.ordered:
            self._moving.hand_out(home)
        else:
            self.anywhere.relieve(home, found)

    def _reroute(self, key: Key, spread: Spread) -> None:
        """A subject's route may be another one: what may leave the former partitions does."""
        home = spread.partitions[0]
        places = self._router.atlas.takers(home.name)
        if not places:
            return  # nobody takes it just now, and who did is asked again: it says why not
        partitions = tuple(self._at(home, place) for place in places)
        if partitions == spread.partitions:
            return
        before = spread.partitions
        spread.become(partitions)
        for left in before:
            if left not in partitions:
                left.spread = None
            if left not in partitions and not left.bound:
                self._stray(left, left.lane.relieve(left, self._partitions[key]))

    # -- lanes -------------------------------------------------------------------------------------------------

    def lane(self, group: str) -> Lane:
        """The lane to a broker group; its connection is dialled from now on."""
        lane = self._lanes.get(group)
        if lane is None:
            lane = self._lanes[group] = Lane(group, self._settings, self.budget, self)
            session = Session(partial(self._locate, group), self._settings, Watchers(lane.up, lane.down))
            self._sessions[group] = session
            self._tasks.start(session.run(), f"tidemill sends to {group or 'anywhere'}")
            if self._places is not None:
                self._places.add(lane, self)
        return lane

    async def _locate(self, group: str) -> Address:
        if group != ANYWHERE:
            return await self._router.of_group(group)
        if not self._routed.is_set():
            address = await self._router.writable()
            if not self._routed.is_set():
                self._listed = address.group
                return address
        if not self.anywhere.flights:
            await self._loop.create_future()  # for ever: there is no such connection any more
        return await self._router.of_group(self._listed)  # it may have them, and turned out to have a meta

    def stands(self, lane: Lane) -> None:
        """A lane is better or worse off than before."""
        if lane is self._lanes.get(ANYWHERE) and lane.retired:
            self._send_away()
            return
        self.landed()
        if lane.standing is Standing.STEADY:
            self._forsaken.discard(lane.group)
        for key, spread in self._spreads.items():
            if self._partitions[key].lane.standing is not Standing.STEADY:
                spread.turn()
        if lane.standing is not Standing.STEADY:
            for partition in lane.laden:
                self._relieve(partition)
            return
        for other in self._lanes.values():
            if other is not lane and other.standing is not Standing.STEADY:
                for partition in other.laden:
                    self._relieve(partition)
        self._tell_spool()

    def _tell_spool(self) -> None:
        """What was spooled without a route may have one now, or a broker that takes it."""
        if self.anywhere.keeper is not None and self.anywhere.stopped:
            self.anywhere.keeper.needed()

    def _send_away(self) -> None:
        """What the lane without a group cannot send any more goes where its subject has a route to."""
        for home in self.anywhere.laden:
            key = (home.name, home.priority) if home.priority else home.name
            found = self._partitions.get(key)
            if found is not None:
                self._take_home(home, found)
            elif self._find_way(key, home) is None:
                self._unrouted[key] = home

    def _relieve(self, partition: Partition) -> None:
        spread = partition.spread
        if spread is None or partition.bound or (partition.ordered and not partition.lane.forsaken):
            return
        better = spread.better_than(partition)
        if better is not None:
            self._stray(partition, partition.lane.relieve(partition, better))

    def carrier(self, subject: str, group: str = "") -> Lane | None:
        """Who can send a batch for a partition of its subject's name that was never bound; the one it was bound to."""
        if group:
            return self.lane(group)
        if not self._routed.is_set():
            return self.anywhere
        self._router.want(subject)
        named = [one for one in self._router.atlas.takers(subject) or () if one.name == subject]
        lanes = (lane for one in named if (lane := self.lane(one.group)).link is not None)
        return max(lanes, key=lambda one: one.standing, default=None)

    def pieces_of(self, batch: bytes, lane: Lane) -> list[tuple[str, bytes]]:
        """A spooled batch as ``apart.py`` takes it apart, by the newest route."""
        subject = living_subject(Batch(batch).partition)
        (self._moving.outdated if lane.group else self._router.want)(subject)
        route = self._router.atlas.routes.get(subject)
        return [] if route is None else take_apart(batch, lane.group, route.current)

    @property
    def link(self) -> Link | None:
        """The connection of what has no route."""
        return self.anywhere.link

    # -- the end -----------------------------------------------------------------------------------------------

    def fail(self, error: TidemillError) -> None:
        """It is over: everything fails with ``error``, and whatever comes later."""
        self._closed = error
        self.ways.close()
        for lane in self._lanes.values():
            lane.fail(error)
        if "later" in vars(self):
            self.later.fail(error)
        self._partitions.clear()
        self._unrouted.clear()
        self.budget.close()
