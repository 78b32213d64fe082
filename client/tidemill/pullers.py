"""The brokers of a consumer: a puller for each broker group with something of its subjects, as the routes go.

A broker group that comes into a route is pulled from at once. One that leaves it is pulled from for as long as a former
version of the route names it: something may still lie there. A puller is never taken away, for what it gave out is told
to its broker; it has nothing to ask for then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from tidemill.ack_spool import Place
from tidemill.allotment import Allotment, Share
from tidemill.backoff import Backoff
from tidemill.delivery import Delivery, Settler
from tidemill.elsewhere import Elsewhere
from tidemill.errors import TidemillError
from tidemill.far import Far
from tidemill.inbox import Inbox
from tidemill.keeper import Keeper
from tidemill.link import Link
from tidemill.naming import Member
from tidemill.puller import Identity, Puller
from tidemill.router import Router
from tidemill.routes import Address
from tidemill.settings import ClientSettings
from tidemill.tasks import Tasks
from tidemill.tenure import Moment
from tidemill_wire.fields import living_subject
from tidemill_wire.filters import is_pattern, matches_pattern
from tidemill_wire.kinds import Mode

LOOK_S = 0.1
"""How often is looked whether what is to be let go was settled: a worker settles when nobody looks."""

log = logging.getLogger("tidemill")


class Pullers:
    """See the module."""

    def __init__(
        self,
        identity: Identity,
        settings: ClientSettings,
        inbox: Inbox,
        router: Router,
        keeper: Keeper | None,
        tasks: Tasks,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._inbox = inbox
        self._router = router
        self._keeper = keeper
        self._tasks = tasks
        self._pullers: dict[str, Puller] = {}
        self._changed = asyncio.Event()
        self._closing = False
        mine = identity.subscription
        router.listeners.append(self._changed.set)
        self.allotment = self._allotment()
        member = Member(mine.subjects, mine.base or mine.group, identity.consumer, mine.mode, self.allotment)
        self._lapses = 0
        router.join(self, member)
        router.begin()

    def __iter__(self) -> Iterator[Puller]:
        return iter(self._pullers.values())

    def owner(self, delivery: Delivery) -> Puller:
        """Whose delivery it is."""
        return next(one for one in self._pullers.values() if one.settler is delivery.settler)

    # -- what meta allots --------------------------------------------------------------------------------------

    def _allotment(self) -> Allotment | None:
        mine = self._identity.subscription
        if mine.mode is Mode.EXCLUSIVE and any(map(is_pattern, mine.subjects)):
            return None  # meta allots subjects by their names; each broker group has one such consumer
        if mine.mode not in (Mode.KEYED, Mode.EXCLUSIVE):
            return None
        loop, now_ms = asyncio.get_running_loop(), self._settings.now_ms
        made = Allotment(lambda: Moment(loop.time(), now_ms() / 1000))
        made.listeners.append(self._allotted)
        return made

    def _allotted(self) -> None:
        """What is not ours any more is given back before anybody can begin it; after a lapse the broker is asked."""
        allotment = self.allotment
        assert allotment is not None
        if allotment.error is not None:
            self._inbox.fail(allotment.error)
        for group, puller in self._pullers.items():
            for subject in dict.fromkeys(one.subject for one in puller.settler.outstanding):
                if not allotment.is_ours(group, subject):
                    puller.give_back(subject)
                elif allotment.lapses > self._lapses:
                    puller.settler.doubt(subject)
        self._lapses = allotment.lapses
        self._changed.set()
        self._inbox.wake()

    def look(self) -> None:
        """Something was handled: perhaps all of a partition that is to be let go."""
        if self.allotment is not None and self.allotment.leaving():
            self._changed.set()

    def _sources(self) -> Mapping[str, tuple[str, ...]]:
        atlas, allotment = self._router.atlas, self.allotment
        if allotment is None or not atlas.routed:
            return atlas.sources(self._identity.subscription.subjects)
        return {group: tuple(names) for group, names in allotment.ours().items()}

    def _let_go(self) -> None:
        """Yield what is to be let go and at work no more."""
        allotment = self.allotment
        for group, name in allotment.leaving() if allotment is not None else ():
            puller = self._pullers.get(group)
            if puller is not None and puller.works_at(name):
                continue
            assert allotment is not None
            if allotment.drained(group, name):
                over = partial(self._yielded, group, name)
                if puller is None or not puller.give_up(name, over):
                    over()

    def _yielded(self, group: str, name: str) -> None:
        assert self.allotment is not None
        self.allotment.yielded(group, name)
        self._router.beat_soon()

    def group_of(self, settler: Settler) -> str:
        """The broker group that a settler tells."""
        return next(group for group, one in self._pullers.items() if one.settler is settler)

    def _other(self, away: Puller, subject: str) -> Link | None:
        """A connection to another broker that has something of a subject."""
        for puller in self._pullers.values():
            named = any(
                matches_pattern(name, subject) if is_pattern(name) else living_subject(name) == subject
                for name in puller.subjects
            )
            if puller is not away and named and puller.settler.link is not None:
                return puller.settler.link
        return None

    def pull(self) -> None:
        """There may be room."""
        for puller in self._pullers.values():
            puller.pull()

    async def run(self) -> None:
        """Find brokers, until cancelled; also those that come later."""
        settings, router = self._settings, self._router
        backoff = Backoff(settings.backoff_base_s, settings.backoff_max_s, settings.random)
        said = told = False
        while True:
            self._changed.clear()
            try:
                if not told:
                    await router.refresh()
            except (OSError, TimeoutError) as error:
                if not said and not self._pullers:
                    said = True
                    log.warning("no_broker_yet %s: %s", self._identity.consumer, " ".join(str(error).split()))
            except TidemillError as error:
                self._inbox.fail(error)
                return
            await self._follow(self._sources())
            self._let_go()
            told = True
            leaving = self.allotment is not None and bool(self.allotment.leaving())
            wait_s = settings.routes_poll_s if self._pullers else backoff.next()
            try:
                async with asyncio.timeout(LOOK_S if leaving else wait_s):
                    await self._changed.wait()
            except TimeoutError:
                told = leaving

    async def _follow(self, sources: Mapping[str, tuple[str, ...]]) -> None:
        """Pull from where the routes lead, and nothing from where they do not lead any more."""
        atlas = self._router.atlas
        for group, subjects in sources.items():
            if group not in self._pullers:
                await self._start(group, subjects)
        if atlas.routed:
            for group, puller in self._pullers.items():
                puller.follow(sources.get(group, ()), atlas.brokers.get(group))

    async def _start(self, group: str, subjects: tuple[str, ...]) -> None:
        async def locate() -> Address:
            return await self._router.of_group(group)

        mine = self._identity
        identity = Identity(replace(mine.subscription, subjects=subjects), mine.consumer)
        puller = Puller(identity, self._settings, self._inbox, locate)
        if not mine.subscription.once and mine.subscription.mode is Mode.AS_DECLARED:
            puller.settler.elsewhere = Elsewhere(
                self._settings,
                lambda subject: self._other(puller, subject),
                lambda job: self._tasks.start(job, "tidemill takes failures elsewhere"),
                Far(self._settings, self._router, mine.subscription.group),
            )
        if self._keeper is not None and not mine.subscription.once:
            place = Place(group, mine.subscription.group, mine.consumer)
            await self._keeper.claim(place, puller.settler)
            if self._closing:
                await self._keeper.leave(place)
                return
        if self.allotment is not None:
            puller.share = Share(group, self.allotment, self._router.beat_soon)
        self._pullers[group] = puller
        self._tasks.start(puller.session.run(), f"tidemill consumes from {group}")

    # -- the end -----------------------------------------------------------------------------------------------

    def stop(self, rest: list[Delivery]) -> None:
        """Ask for nothing more, and give back what was not begun."""
        for puller in self._pullers.values():
            puller.stop(rest)

    def close(self) -> None:
        """No broker that is found from now on is pulled from."""
        self._closing = True

    async def leave(self, rest: list[Delivery], current: list[tuple[Puller, str, list[int]]]) -> None:
        """Give back what was not handled, and leave every broker."""
        try:
            leaving = [
                puller.leave(rest, [one[1:] for one in current if one[0] is puller]) for puller in self
            ]
            await asyncio.gather(*leaving)
        finally:
            self._router.leave(self)
            self._router.listeners.remove(self._changed.set)
