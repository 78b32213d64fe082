"""One broker of a consumer: two pulls under way, leases kept, and its own connection.

    state      event                          next
    pulling    link lost                      pulling   asks again over the next link, under the same name
    pulling    refused                        pulling   after a wait, when it is retryable; else the consumer fails
    pulling    refused as ``over_quota``      pulling   after the wait it was told: the broker has waited already
    pulling    ``stop`` or ``leave``          leaving   nothing is asked for; what still comes is released at once
    leaving    all answered, or deadline      gone      GOODBYE

The broker keeps the leases of a consumer that is away for ``CONSUMER_GONE_MS``, so what was received before a loss
may be
acked after it. The first pull over a new link says what is still here; what else the broker gave out to this name got
lost on its way, and is given out again at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tidemill.allotment import Share
from tidemill.backoff import Backoff
from tidemill.delivery import DOUBTFUL, REVOKED, Delivery, add_range, idle
from tidemill.errors import ClientClosed, ConnectionLost, CorruptBatch, TidemillError, Unavailable, wait_of
from tidemill.inbox import Inbox
from tidemill.link import Answer, Link
from tidemill.once import OnceSettler
from tidemill.routes import Address
from tidemill.session import Locate, Session, Watchers
from tidemill.settings import ClientSettings
from tidemill.settler import BrokerSettler
from tidemill.subscription import Subscription
from tidemill.why import Why
from tidemill_wire.commands import Grant, Pull, Pulled, Yield
from tidemill_wire.fields import living_partition
from tidemill_wire.grants import Piece, add_pieces
from tidemill_wire.limits import PULL_MESSAGES_MAX
from tidemill_wire.ranges import count_of, pairs

PULLS = 2
ALLOTTED_WAIT_MS = 500
"""A pull names the partitions that the consumer had when it was sent. What is allotted meanwhile is in the next one, so
none waits for long: a partition without messages would keep one that has some from its new consumer."""
RENEWALS_A_LEASE = 3
UNRENEWED = "leases were not renewed; let what computes, or waits without await, run in a thread"
UNREADABLE_DELAY_MS = 60_000
"""It will not become readable by itself: tried again at once, it would go in a circle."""

log = logging.getLogger("tidemill")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who pulls what."""

    subscription: Subscription
    consumer: str


@dataclass(frozen=True, slots=True)
class Asked:
    """How much a pull asked for, when, and after how many doubts of the settler."""

    messages: int
    at: float
    era: int


class Puller:
    """See the module."""

    def __init__(self, identity: Identity, settings: ClientSettings, inbox: Inbox, locate: Locate) -> None:
        settler = OnceSettler if identity.subscription.once else BrokerSettler
        self.settler = settler(identity.subscription.group, identity.consumer, settings)
        self.session = Session(locate, settings, Watchers(self._up, self._down))
        inbox.join(self.settler)
        self.share: Share | None = None
        self.corrupt = 0
        """Messages that could not be read."""
        self._identity = identity
        self.subjects = identity.subscription.subjects
        self._settings = settings
        self._inbox = inbox
        self._loop = asyncio.get_running_loop()
        self._backoff = Backoff(settings.backoff_base_s, settings.backoff_max_s, settings.random)
        self._link: Link | None = None
        self._under_way = 0
        self._known = False
        """The broker has answered a pull that said what is held: what it gives from then on is ours."""
        self._resumed = False
        """The same of the link that is up. Until then there is one pull only: a second one's messages could be on
        their way while the broker compares what it gave with what is here."""
        self._leaving = False
        self._full = False
        """Too much is in flight, and that was said."""
        self._away = False
        self._pause: asyncio.TimerHandle | None = None
        self._renewal: asyncio.TimerHandle | None = None
        self._lease_s = 0.0

    def follow(self, subjects: tuple[str, ...], address: Address | None) -> None:
        """The routes are others: what is pulled here from now on, and where the broker is."""
        news = subjects != self.subjects
        self.subjects = subjects
        if not subjects:
            self._inbox.shares.rest(self.settler)
        if address is not None:
            self.session.moved(address)
        if news:
            self.pull()

    def pull(self) -> None:
        """Ask for more, if there is room for more."""
        link = self._link
        if (
            not self.subjects
            or link is None
            or self._under_way >= PULLS
            or self._leaving
            or self._pause is not None
        ):
            return
        link.cork()
        self._ask(link)
        link.uncork()

    def _ask(self, link: Link) -> None:
        settings, inbox = self._settings, self._inbox
        while self._under_way < (PULLS if self._resumed else 1) and inbox.room(
            self.settler, self._under_way * settings.pull_bytes
        ):
            if self.settler.ordered or not self._resumed:
                # In order nothing more comes before they are told, and what is told need not be said to be held. Else
                # they may gather: at 5,000 messages a second each frame of acks cost the broker a third of its turns.
                self.settler.flush()
            subscription = self._identity.subscription
            messages = min(inbox.wanted(self.settler), PULL_MESSAGES_MAX)
            wait_ms = settings.pull_wait_ms
            if self.share is not None and self.share.allotment.governs:
                wait_ms = min(wait_ms, ALLOTTED_WAIT_MS)
            on_answer = partial(self._pulled, Asked(messages, self._loop.time(), self.settler.era), link)
            versions = (
                self.share.of(self.subjects) if self.share is not None else dict.fromkeys(self.subjects, 0)
            )
            if not versions:
                return  # what is ours no more; what is ours instead is told in a moment
            least, most = min(versions.values()), max(versions.values())
            command = Pull(
                subscription.group, self._identity.consumer, tuple(versions), messages,
                settings.pull_bytes, wait_ms, subscription.start,
                None if self._resumed else self.settler.held(), not self._known,
                subscription.once, subscription.mode, subscription.base, subscription.wanted,
                least, tuple(versions.values()) if least < most else (),
            )  # fmt: skip
            self._under_way += 1
            try:
                link.ask(command, on_answer)
            except (ConnectionLost, Unavailable) as error:
                on_answer(error)
                return

    def corrupted(self, delivery: Delivery, error: TidemillError) -> None:
        """A delivery could not be read: the broker shall note that, and the loop goes on."""
        self._nack_corrupt(delivery.subject, delivery.settle(0, delivery.count - 1), error)

    def stop(self, rest: list[Delivery]) -> None:
        """Ask for nothing more, and give back what was not begun. Leases of the others are still kept."""
        self._leaving = True
        self._release(rest)

    async def leave(self, rest: list[Delivery], current: list[tuple[str, list[int]]]) -> None:
        """Give back what was not handled, hear that all is answered, and go."""
        self._leaving = True
        for subject, ranges in current:
            self.settler.release(subject, ranges)
        self._release([*rest, *self.settler.outstanding])
        try:
            async with asyncio.timeout(self._settings.close_timeout_s):
                await self.settler.drained()
        except TimeoutError:
            await self.settler.keep()
            if self.settler.unkept:
                log.warning(
                    "consumer_left_unanswered %s: its leases end by themselves", self._identity.consumer
                )
        if self._link is not None and self.settler.keeps:
            self._link.close()  # without a goodbye, which would end the leases before they are told
        elif self._link is not None:
            await self._link.part("the consumer is done")
        for handle in (self._renewal, self._pause):
            if handle is not None:
                handle.cancel()
        self.settler.close(ClientClosed("the consumer is closed"))
        if self.settler.shelf is not None:
            await self.settler.shelf.leave()

    # -- connections -------------------------------------------------------------------------------------------

    def _up(self, link: Link) -> None:
        if self._away:
            log.info("broker_back %s", self._identity.consumer)
            self._away = False
        self._link = link
        self._inbox.shares.join(self.settler)
        self._under_way = 0
        self._resumed = False
        self.settler.begin_anew()
        self.settler.up(link)
        if self.share is not None and not self.subjects:
            self._give_all_back()  # else the first pull says what is held
        self.pull()

    def _down(self, error: TidemillError) -> None:
        self._link = None
        self._inbox.shares.rest(self.settler)
        if not self._away and not self._leaving:
            self._away = True  # said once; it is dialled again until somebody answers
            log.warning("broker_away %s: %s", self._identity.consumer, " ".join(str(error).split()))
        self.settler.down()
        if not isinstance(error, ConnectionLost | Unavailable) and not isinstance(error, ConnectionError):
            self._inbox.fail(error)  # Refused at the door: it will not become better.

    # -- answers -----------------------------------------------------------------------------------------------

    def _pulled(self, asked: Asked, link: Link, answer: Answer) -> None:
        if link is not self._link or isinstance(answer, ConnectionLost):
            return
        self._under_way -= 1
        match answer:
            case Pulled():
                self._known = self._resumed = True
                self._backoff.reset()
                self._granted(answer, asked)
            case Unavailable():
                if answer.kind.name == "allocation_outdated" and self.share is not None:
                    self.share.ask()
                    self._give_all_back()
                wait_s = wait_of(answer)
                if answer.kind.name == "over_quota":
                    self._inbox.shares.answered(self.settler, asked.messages, 0)
                    self._say_full(answer)
                elif self._pause is None:
                    wait_s = max(self._backoff.next(), wait_s)
                if self._pause is None:
                    self._pause = self._loop.call_later(wait_s, self._go_on)
            case TidemillError():
                self._inbox.fail(answer)
                return
            case _:
                link.close()
                return
        self.pull()

    def _say_full(self, error: Unavailable) -> None:
        """Once, until something is given again."""
        if not self._full:
            self._full = True
            log.warning("consumer_over_quota %s: %s", self._identity.consumer, error.detail)

    def _go_on(self) -> None:
        self._pause = None
        self.pull()

    def _granted(self, answer: Pulled, asked: Asked) -> None:
        self._inbox.shares.answered(self.settler, asked.messages, sum(grant.count for grant in answer.grants))
        if not answer.grants:
            return
        self._full = False
        deliveries: list[Delivery] = []
        total = at = 0
        broken: CorruptBatch | None = None
        for grant in answer.grants:
            total += grant.count
            cut = 0
            if broken is None:
                try:
                    at, cut = self._cut(grant, answer, at, deliveries)
                except CorruptBatch as error:
                    broken = error
                    cut = sum(
                        one.count for one in deliveries if one.settler is self.settler and _of(one, grant)
                    )
            if cut < grant.count:
                ranges = [grant.pull_sequence + cut, grant.pull_sequence + grant.count - 1]
                self._nack_corrupt(
                    grant.subject, ranges, broken or CorruptBatch("a grant without its batches")
                )
        strange = self.share is not None and not self.share.allotment.is_ours(
            self.share.group, answer.grants[0].subject
        )
        if self._leaving or strange or self._inbox.stuck:
            self._release(deliveries)
            return
        if answer.ordered:
            self._in_order(deliveries, asked, answer.lease_ms / 1000)
        self.settler.outstanding.update(dict.fromkeys(deliveries))
        self._keep(answer.lease_ms / 1000)
        if total >= asked.messages:
            self._inbox.filled()
        self._inbox.put(deliveries)

    def _in_order(self, deliveries: list[Delivery], asked: Asked, lease_s: float) -> None:
        """In order nothing is begun unless the lease runs for certain: it began when the pull was sent, or later. What
        was asked for before something failed may have been given out before it, too, and been taken back.
        """
        self.settler.ordered = True
        for delivery in deliveries:
            certain = asked.era >= self.settler.doubted.get(delivery.subject, 0)
            delivery.until = asked.at + lease_s if certain else DOUBTFUL

    def _cut(self, grant: Grant, answer: Pulled, at: int, into: list[Delivery]) -> tuple[int, int]:
        """Deliveries of a grant; where its batches end, and how many of its messages were found."""
        pieces: list[Piece] = []
        try:
            at = add_pieces(grant, answer.batches, at, pieces)
        finally:
            for piece in pieces:
                place = piece.batch, piece.rows[0], len(piece.rows)
                delivery = Delivery(grant.subject, grant.attempts, piece.pull_sequence, place)
                if not isinstance(piece.rows, range):
                    delivery.mask(piece.rows)
                delivery.settler, delivery.wanted = self.settler, answer.filter
                into.append(delivery)
        return at, sum(len(piece.rows) for piece in pieces)

    def _nack_corrupt(self, subject: str, ranges: list[int], error: TidemillError) -> None:
        count = count_of(ranges)
        self.corrupt += count
        log.error("batch_corrupt %s messages=%d: %s", subject, count, error)
        if ranges:
            self.settler.nack_soon(
                subject, ranges, Why(f"undecodable: {error}", delay_ms=UNREADABLE_DELAY_MS)
            )

    def _release(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if delivery.settler is self.settler:
                delivery.give_back()

    # -- giving up ---------------------------------------------------------------------------------------------

    def works_at(self, name: str) -> bool:
        """Whether a handler is at something of a partition."""
        return any(one.begun and living_partition(one.subject) == name for one in self.settler.outstanding)

    def give_back(self, subject: str) -> None:
        """Hand back all that was not begun, and begin none of it."""
        for delivery, indexes in idle(self.settler.outstanding, subject):
            ranges: list[int] = []
            for index in indexes:
                for first, last in pairs(delivery.settle(index, index)):
                    add_range(ranges, first, last)
            delivery.until = REVOKED
            if ranges:
                self.settler.release(subject, ranges)

    def _give_all_back(self) -> None:
        """Left to their leases, those that are not begun would take what is at work along when these end."""
        for subject in dict.fromkeys(delivery.subject for delivery in self.settler.outstanding):
            self.give_back(subject)

    def give_up(self, name: str, over: Callable[[], None]) -> bool:
        """Say YIELD; ``over`` is called when it was answered, or never will be. Whether there was a broker to tell."""
        link = self._link
        if link is None:
            return False
        self.settler.flush()
        subscription = self._identity.subscription
        try:
            link.ask(Yield(subscription.group, self._identity.consumer, [name]), lambda _answer: over())
        except (ConnectionLost, Unavailable):
            return False
        return True

    # -- leases ------------------------------------------------------------------------------------------------

    def _keep(self, lease_s: float) -> None:
        self._lease_s = self.settler.lease_s = lease_s
        if self._renewal is None and lease_s > 0:
            self._renewal = self._loop.call_later(lease_s / RENEWALS_A_LEASE, self._renew)

    def _renew(self) -> None:
        assert self._renewal is not None
        late_s, self._renewal = self._loop.time() - self._renewal.when(), None
        if late_s > self._lease_s / RENEWALS_A_LEASE:
            log.warning("event_loop_blocked %s %.1f s: %s", self._identity.consumer, late_s, UNRENEWED)
        for delivery in self._inbox.stick([one for one in self.settler.outstanding if one.gone]):
            delivery.give_back()
        if self.settler.outstanding:
            self.settler.renew()
            self._keep(self._lease_s)


def _of(delivery: Delivery, grant: Grant) -> bool:
    end = grant.pull_sequence + grant.count
    return delivery.subject == grant.subject and grant.pull_sequence <= delivery.pull_sequence < end
