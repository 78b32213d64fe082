"""Between settlers and the spool of acks: what goes into the file, who says it, and what leaves it.

    record    event                                             next
    -         no broker for ``spool_after_s``                   kept      on the disk; who awaits it goes on
    -         its consumer ends without an answer               kept
    kept      answered, whatever the answer                     told      counted, and noted in the file
    kept      older than ``AGE_MS_MAX``                         dropped   counted and logged

    place     event                                             next
    orphan    a consumer of that name begins                    claimed   it says what is kept, before its first pull
    claimed   the consumer ends                                 orphan    the courier says it

A place is a consumer of a group at a broker. After a start all places are orphans. Their records are said by a courier
at once, not only when a consumer of their name comes: a worker's name is never used again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from tidemill.ack_spool import AGE_MS_MAX, AckSpool, Fate, Kept, Place
from tidemill.courier import Courier
from tidemill.errors import not_opened
from tidemill.router import Router
from tidemill.routes import Address
from tidemill.settings import ClientSettings
from tidemill.settler import BrokerSettler
from tidemill.tasks import Tasks
from tidemill_wire.ranges import count_of

AGE_LOOK_S = 60.0
SUFFIX = ".acks"

T = TypeVar("T")
OnCrash: TypeAlias = Callable[[BaseException], None]

log = logging.getLogger("tidemill")


class Keeper:
    """See the module. It is the only one that touches the file, one piece of work after the other."""

    def __init__(self, spool: Path, settings: ClientSettings, router: Router, on_crash: OnCrash) -> None:
        self.counts = {"spooled": 0, "told": 0, "too_late": 0, "dropped": 0, "unkept": 0}
        self._path = spool.with_name(spool.name + SUFFIX)
        self._settings = settings
        self._router = router
        self._tasks = Tasks(on_crash)
        self._turn = asyncio.Lock()
        self._spool: AckSpool | None = None
        self._waiting: dict[Place, dict[int, Kept]] = {}
        """What the file holds and nobody has answered, by who says it."""
        self._claimed: set[Place] = set()
        self._couriers: dict[str, Courier] = {}
        self._told: list[int] = []
        """Answered, and not noted in the file yet."""
        self._full = False

    @property
    def waiting(self) -> int:
        """Messages whose fate lies in the file and was not told yet."""
        return sum(kept.messages for found in self._waiting.values() for kept in found.values())

    # -- life --------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the file, once, and let couriers tell what it holds; or an error why it cannot be."""
        async with self._turn:
            if self._spool is not None:
                return
            self._spool = spool = await self._blocking(self._opened)
        if spool.cut or spool.unread:
            log.error(
                "spooled_acks_cut %s: %d bytes and %d records could not be read; their messages come again",
                self._path, spool.cut, spool.unread,
            )  # fmt: skip
        for kept in spool.kept.values():
            self._waiting.setdefault(kept.place, {})[kept.number] = kept
        self._expire()
        if self._waiting:
            log.info("spooled_acks_found %s messages=%d", self._path, self.waiting)
        for place in list(self._waiting):
            self._send_for(place)
        self._tasks.start(self._look(), "tidemill spool of acks")

    def _opened(self) -> AckSpool:
        try:
            file = self._settings.open_ack_file(self._path)
        except OSError as error:
            raise not_opened(self._path, error) from error
        try:
            return AckSpool(file, str(self._path), self._settings.spool_bytes_max)
        except BaseException:
            file.close()
            raise

    async def close(self) -> None:
        """When all consumers have ended. What is not told by now, the next process tells."""
        spool = self._spool
        if spool is None:
            return
        for courier in list(self._couriers.values()):
            await courier.finish()
        await self._tasks.close()
        await self._note()
        if self._waiting:
            log.warning(
                "spooled_acks_left %s messages=%d: told when the spool is opened again",
                self._path,
                self.waiting,
            )
        async with self._turn:
            self._spool = None
            await self._blocking(spool.close)

    # -- consumers ---------------------------------------------------------------------------------------------

    async def claim(self, place: Place, settler: BrokerSettler) -> None:
        """A consumer begins: what is kept for it, it says itself."""
        if place in self._claimed:  # by a namesake, of which the broker will refuse one
            settler.shelf = PlaceShelf(self, place)
            return
        courier = self._couriers.get(place.broker)
        if courier is not None:
            await courier.hand_over(place)
            self._without(place.broker)
        self._claimed.add(place)
        self._give(place, settler)

    async def leave(self, place: Place) -> None:
        """It has ended."""
        self._claimed.discard(place)
        if place in self._waiting:
            self._send_for(place)

    def _give(self, place: Place, settler: BrokerSettler) -> None:
        now_ms = self._settings.now_ms()
        settler.shelf = PlaceShelf(self, place)
        settler.adopt([(kept.number, kept.due(now_ms)) for kept in self._waiting.get(place, {}).values()])

    def _send_for(self, place: Place) -> None:
        """A courier says what is kept for it."""
        courier = self._couriers.get(place.broker)
        if courier is None:
            courier = self._couriers[place.broker] = Courier(
                partial(self._locate, place.broker), self._settings
            )
            self._tasks.start(courier.run(), f"tidemill courier to {place.broker}")
        settler = BrokerSettler(place.group, place.consumer, self._settings)
        self._give(place, settler)
        courier.add(place, settler)

    async def _locate(self, broker: str) -> Address:
        return await self._router.of_group(broker)

    def _without(self, broker: str) -> None:
        """A courier with nothing to tell is on its way home."""
        courier = self._couriers.get(broker)
        if courier is not None and courier.empty:
            del self._couriers[broker]

    # -- records -----------------------------------------------------------------------------------------------

    async def keep(self, place: Place, fates: Sequence[Fate]) -> Sequence[int]:
        """Write them: their numbers; none when there is no room, or the disk fails."""
        messages = sum(count_of(fate.ranges) for fate in fates)
        if not messages:
            return ()
        at_ms = self._settings.now_ms()
        try:
            async with self._turn:
                spool = self._spool
                assert spool is not None
                said = [(place.broker, fate) for fate in fates]
                numbers = await self._blocking(lambda: spool.keep(said, at_ms))
        except OSError as error:
            self._refuse(messages, f"cannot be written: {error.strerror or error}")
            return ()
        if numbers is None:
            self._refuse(messages, "is full: raise spool_bytes_max")
            return ()
        self._full = False
        level = logging.DEBUG if self._waiting else logging.WARNING  # an outage is told once
        log.log(level, "acks_spooled %s messages=%d %s", place.consumer, messages, self._path)
        mine = self._waiting.setdefault(place, {})
        mine.update((number, spool.kept[number]) for number in numbers)
        self.counts["spooled"] += messages
        return numbers

    def told(self, place: Place, number: int, lost: int) -> None:
        """The broker has answered."""
        kept = self._gone(place, number)
        if kept is not None:
            self.counts["told"] += kept.messages - lost
            self.counts["too_late"] += lost

    def _gone(self, place: Place, number: int) -> Kept | None:
        mine = self._waiting.get(place, {})
        kept = mine.pop(number, None)
        if kept is None:
            return None
        if not self._told:
            self._tasks.start(self._note(), "tidemill notes what was told")
        self._told.append(number)
        if not mine:
            del self._waiting[place]
            if place not in self._claimed and place.broker in self._couriers:
                self._couriers[place.broker].drop(place)
                self._without(place.broker)
            if not self._waiting:
                log.info("spooled_acks_told %s %s", self._path, self._sentence())
        return kept

    async def _note(self) -> None:
        async with self._turn:
            spool, (numbers, self._told) = self._spool, (self._told, [])
            if spool is None or not numbers:
                return
            try:
                await self._blocking(lambda: spool.told(numbers))
            except OSError as error:
                log.warning("spooled_acks_not_noted %s: %s: they may be told twice", self._path, error)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(AGE_LOOK_S)
            self._expire()

    def _expire(self) -> None:
        """Their leases have ended long ago, and whoever was given the messages since then has them."""
        before_ms = self._settings.now_ms() - AGE_MS_MAX
        old = [
            (place, kept)
            for place, found in self._waiting.items()
            for kept in found.values()
            if kept.at_ms < before_ms
        ]
        if not old:
            return
        for place, kept in old:
            self._gone(place, kept.number)
        messages = sum(kept.messages for _, kept in old)
        self.counts["dropped"] += messages
        log.error("spooled_acks_dropped %s messages=%d: no broker took them in a day", self._path, messages)

    def _refuse(self, messages: int, why: str) -> None:
        self.counts["unkept"] += messages
        if not self._full:  # said once, until it is written to again
            self._full = True
            log.error("acks_not_spooled messages=%d: %s %s", messages, self._path, why)

    def _sentence(self) -> str:
        return " ".join(f"{name}={count}" for name, count in self.counts.items() if count)

    def start(self, job: Coroutine[Any, Any, None]) -> None:
        """Run it beside the caller."""
        self._tasks.start(job, "tidemill spools acks")

    async def _blocking(self, job: Callable[[], T]) -> T:
        """In a thread, and to its end: a piece of work that was begun is not left to itself."""
        future = asyncio.get_running_loop().run_in_executor(None, job)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise


class PlaceShelf:
    """The part of a keeper that is about one place."""

    __slots__ = ("_keeper", "place")

    def __init__(self, keeper: Keeper, place: Place) -> None:
        self._keeper = keeper
        self.place = place

    async def keep(self, fates: Sequence[Fate]) -> Sequence[int]:
        """Write them: their numbers; none when that could not be, which was logged."""
        return await self._keeper.keep(self.place, fates)

    def told(self, number: int, lost: int) -> None:
        """The broker has answered it, ``lost`` of its messages as too late."""
        self._keeper.told(self.place, number, lost)

    def start(self, job: Coroutine[Any, Any, None]) -> None:
        """Run it beside the caller."""
        self._keeper.start(job)

    async def leave(self) -> None:
        """The consumer has ended: somebody else tells the rest."""
        await self._keeper.leave(self.place)
