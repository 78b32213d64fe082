"""Order keys that go to another partition: how a producer goes from one version of a route to the next.

    following   the route is another one, and nothing with an order key is on its way   following   that one
    following   the route is another one, and something is                              holding
    holding     all that was on its way has been answered                               following   the new one

While it is *holding* nothing more of the subject's order keys leaves, and what comes gathers where it would have: a
batch that is refused for its route has to go before what was handed in behind it. What waits is then handed out anew,
message by message in its order; what was refused is certainly not stored, so it may be taken apart. So may what is
refused out of a spool (``apart.py``): while a broker is given that, what comes after it is held, too.

A subject that is only tried in order follows at once, and what waits stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from tidemill.lane import Lane
from tidemill.parcel import Extras, Parcel, Partition
from tidemill.router import Router
from tidemill_wire.columns import Batch
from tidemill_wire.deduplication import NO_KEY
from tidemill_wire.ordering import logical_partition
from tidemill_wire.routes import Partition as Place
from tidemill_wire.routes import PartitionSet


class Desk(Protocol):
    """The producer, as what it sends anew goes through it."""

    def home_of(self, partition: Partition, extras: Extras | None) -> Partition:
        """Where a message goes by the route that is followed now."""
        ...

    def count(self, size: int) -> None:
        """So much more, or less, is held."""
        ...


class Moving:
    """See the module."""

    def __init__(self, router: Router, lanes: Mapping[str, Lane], desk: Desk) -> None:
        self._router = router
        self._lanes = lanes
        self._desk = desk
        self._followed: dict[str, PartitionSet] = {}
        self.holding: set[str] = set()
        """Subjects."""

    def place(self, subject: str, order_key: str) -> Place | None:
        """Where an order key lies, by the route that is followed; ``None``: nobody knows a route."""
        route = self._router.atlas.routes.get(subject)
        if route is None:
            return None
        followed = self._followed.get(subject)
        if followed is None:
            followed = self._followed[subject] = route.current
        return followed.of(logical_partition(order_key))

    def outdated(self, subject: str) -> None:
        """A broker refused an order key: another partition has it, or will in a moment. Meta is asked, unless it has
        said so already.
        """
        route = self._router.atlas.routes.get(subject)
        if route is None or route.current == self._followed.get(subject, route.current):
            self._router.want(subject)
            self._router.beat_soon()

    def look(self) -> None:
        """Follow the routes that changed, where nothing is in the way of that."""
        for subject, followed in list(self._followed.items()):
            route = self._router.atlas.routes.get(subject)
            if route is not None and route.current != followed:
                self._follow(subject, route.current)

    def _follow(self, subject: str, route: PartitionSet) -> None:
        keyed = list(self._keyed(subject))
        if any(partition.in_flight or _is_replaying(partition.lane) for partition in keyed):
            self.holding.add(subject)
            for partition in keyed:
                partition.held = True
            return
        self.holding.discard(subject)
        self._followed[subject] = route
        for partition in keyed:
            partition.held = False
        self.hand_out(*keyed)

    def hand_out(self, *partitions: Partition) -> None:
        """What waits in them, none of which is stored, goes where it belongs by the route that is followed."""
        waiting: list[Parcel] = []
        for partition in partitions:
            waiting += partition.lane.flights.give_up(partition)
            waiting += partition.lane.gather.give_up(partition)
        for parcel in waiting:
            self._desk.count(-parcel.size)
            self._hand_out(parcel)
        for lane in list(self._lanes.values()):
            if lane.gather or lane.flights.refused:
                lane.wake()

    def _keyed(self, subject: str) -> Iterator[Partition]:
        """The partitions of a subject that have seen an order key and are bound to it."""
        for lane in self._lanes.values():
            yield from (one for one in lane.partitions.values() if one.name == subject and one.bound)

    def _hand_out(self, parcel: Parcel) -> None:
        """Each message of a parcel anew. Those of one call that came without anything but bodies stay together."""
        bodies = parcel.bodies if hasattr(parcel, "bodies") else Batch(parcel.data).bodies()
        for waiter, place, first, messages in parcel.claims:
            if messages > 1:
                home = self._desk.home_of(parcel.partition, None)
                some = bodies[first : first + messages]
                self._desk.count(home.lane.gather.add_many(home, some, place, waiter, parcel.deadline))
                continue
            extras = _extras(parcel, first)
            home = self._desk.home_of(parcel.partition, extras)
            self._desk.count(home.add(home, bodies[first], extras, waiter, parcel.deadline, place))


def _is_replaying(lane: Lane) -> bool:
    """A broker is there, and is given what was spooled."""
    return lane.stopped and lane.link is not None


def _extras(parcel: Parcel, index: int) -> Extras | None:
    """What a message has besides its body."""
    if parcel.plain:
        return None
    return Extras(
        parcel.keys[index] if parcel.keys is not None else None,
        (parcel.tags[index] or None) if parcel.tags is not None else None,
        (parcel.properties[index] or None) if parcel.properties is not None else None,
        parcel.order_keys[index] if parcel.order_keys is not None else None,
        _keyed(parcel.dedup_keys[index]) if parcel.dedup_keys is not None else None,
    )


def _keyed(digest: bytes) -> bytes | None:
    return None if digest == NO_KEY else digest
