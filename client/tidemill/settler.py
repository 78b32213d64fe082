"""What became of deliveries, on its way to the broker they came from.

Acks of a loop that advances gather into ranges and leave after ``linger``, with ``RANGES_GATHERED_MAX`` of them, or
before the next pull, whichever is first; nobody waits for their answers. What is awaited leaves at once. What was not
answered when a connection ends is said again over the next one: to ack twice is harmless. Ranges that the broker
answers as lost are counted: their messages are given out again.

With a spool, what cannot be told for ``spool_after_s`` is written to it, and who awaits it goes on. It stays in the
queue here all the same, and is said over the next connection like everything else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from tidemill.ack_spool import Fate
from tidemill.backoff import Backoff
from tidemill.delivery import DOUBTFUL, REVOKED, Delivery, add_range
from tidemill.elsewhere import Elsewhere
from tidemill.errors import (
    BrokerUnreachable,
    ConnectionLost,
    LeaseLost,
    TidemillError,
    Unavailable,
    WireError,
)
from tidemill.link import Answer, Link
from tidemill.saying import Saying, Shelf, joined, within
from tidemill.settings import ClientSettings
from tidemill.why import GROUPS_POLICY, Why
from tidemill_wire.commands import Ack, Done, Extend, Nack, Release
from tidemill_wire.limits import CORRELATIONS_MAX, HELD_RANGES_MAX
from tidemill_wire.ranges import count_of, pairs, portions

RANGES_GATHERED_MAX = 1000
UNANSWERED_MAX = CORRELATIONS_MAX // 2
"""Commands under way at once; more wait in the queue, so that pulls and pings find room."""

log = logging.getLogger("tidemill")


class BrokerSettler:
    """See the module."""

    def __init__(self, group: str, consumer: str, settings: ClientSettings) -> None:
        self.lost = 0
        """Messages that were acked or extended too late."""
        self.outstanding: dict[Delivery, None] = {}
        """Deliveries with a lease to keep, in the order they came."""
        self.ordered = False
        """The group is consumed in order."""
        self.lease_s = 0.0
        self.era = 0
        """Counts the doubts; what was said before one says nothing about it."""
        self.doubted: dict[str, int] = {}
        self.shelf: Shelf | None = None
        """Where to keep what cannot be told."""
        self.elsewhere: Elsewhere | None = None
        """Who may take failures to another broker, or to the delay service."""
        self._group = group
        self._consumer = consumer
        self._loop = asyncio.get_running_loop()
        self._linger_s = settings.ack_linger_ms / 1000
        self._patience_s = settings.spool_after_s
        self._impatient = False
        """No broker for so long that things go to the spool as they come."""
        self._waiting: asyncio.TimerHandle | None = None
        self._keeping = asyncio.Lock()
        self._keep_wanted = False
        self._backoff = Backoff(settings.backoff_base_s, settings.backoff_max_s, settings.random)
        self.link: Link | None = None
        self._pending: dict[str, list[int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._queue: deque[Saying] = deque()
        self._under_way: dict[Saying, None] = {}
        self._idle: list[asyncio.Future[None]] = []

    # -- what deliveries say -----------------------------------------------------------------------------------

    def ack(self, subject: str, ranges: list[int]) -> None:
        pending = self._pending.get(subject)
        if pending is None:
            pending = self._pending[subject] = []
        for first, last in pairs(ranges):
            add_range(pending, first, last)
        if len(pending) >= 2 * RANGES_GATHERED_MAX:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._linger_s, self.flush)

    async def ack_now(self, subject: str, ranges: list[int]) -> bool:
        return await self._await(Ack(self._group, self._consumer, subject, ranges))

    async def nack(self, subject: str, ranges: list[int], why: Why, of: Delivery | None = None) -> bool:
        self.doubt(subject)
        elsewhere = self.elsewhere
        try:
            kept = await elsewhere.keeps(of, ranges, why, self.lease_s) if elsewhere is not None else 0
        except WireError:  # it may not wait for so long: it failed all the same, and comes as its group says
            await self._await(self._nack(subject, ranges, why._replace(delay_ms=GROUPS_POLICY)), of)
            raise
        ack = Ack(self._group, self._consumer, subject, ranges, kept)
        return await self._await(ack if kept else self._nack(subject, ranges, why), of)

    def doubt(self, subject: str) -> None:
        """In order, the broker takes back what it gave out behind a message that failed. One has, or may have: nothing
        that was given out before is begun until the broker, asked from now on, says that it is still ours.
        """
        if not self.ordered:
            return
        self.era += 1
        self.doubted[subject] = self.era
        for delivery in self.outstanding:
            if delivery.subject == subject and delivery.until != REVOKED:
                delivery.until = DOUBTFUL

    async def extend(self, subject: str, ranges: list[int], parked: Why | None = None) -> None:
        about = parked or Why()  # its delay is none: at work
        told = (about.delay_ms, about.reason, about.error, about.place)
        await self._await(Extend(self._group, self._consumer, subject, ranges, *told))

    def nack_soon(self, subject: str, ranges: list[int], why: Why) -> None:
        """The same without waiting: what could not be read."""
        self.doubt(subject)
        self._say(Saying(self._nack(subject, ranges, why)))

    def _nack(self, subject: str, ranges: list[int], why: Why) -> Nack:
        return Nack(self._group, self._consumer, subject, ranges, *why.told)

    def release(self, subject: str, ranges: list[int]) -> None:
        """They were not begun."""
        self.doubt(subject)
        for part in portions(ranges):
            self._say(Saying(Release(self._group, self._consumer, subject, part)))

    def parted(self, delivery: Delivery, into: list[Delivery]) -> None:
        """Its parts are settled in its stead; what belongs to none of them is. Without any, all of it is."""
        self.outstanding.pop(delivery, None)
        self.outstanding.update(dict.fromkeys(into))

    def renew(self) -> None:
        """Begin all leases anew."""
        ranges: dict[str, list[int]] = {}
        for delivery in self.outstanding:
            for first, last in pairs(delivery.leased):
                add_range(ranges.setdefault(delivery.subject, []), first, last)
        for subject, found in ranges.items():
            for part in portions(found):
                self._say(Saying(Extend(self._group, self._consumer, subject, part)))

    def held(self, ranges_max: int = HELD_RANGES_MAX) -> list[int]:
        """What the broker must not take back: deliveries with a lease, and those whose fate it has not answered. Of a
        group in order only the latter, and what is at work by key: the rest comes again (``begin_anew``). A renewal
        that waits for a broker says of no fate, and what it is about may have been given up since.
        """
        sayings = (*self._under_way, *self._queue)
        said = [one.command.ranges for one in sayings if not isinstance(one.command, Extend)]
        unsettled = (delivery.leased for delivery in self.outstanding)
        spans = [span for ranges in (*unsettled, *self._pending.values(), *said) for span in pairs(ranges)]
        return joined(spans, ranges_max)

    # -- what leaves -------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Say the acks that have gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pending:
            return
        pending, self._pending = self._pending, {}
        for subject, ranges in pending.items():
            self._say(Saying(Ack(self._group, self._consumer, subject, ranges)))

    async def _await(self, command: Fate | Extend, of: Delivery | None = None) -> bool:
        """Whether a broker has answered. Else it is in the spool."""
        self.flush()
        future: asyncio.Future[bool] = self._loop.create_future()
        self._say(Saying(command, waiters=[future], of=of))
        return await future

    def _say(self, saying: Saying) -> None:
        link = self.link
        if link is None or len(self._under_way) >= UNANSWERED_MAX or self._retry is not None:
            self._queue.append(saying)
            if self._impatient:
                self._keep_soon()
            return
        self._under_way[saying] = None
        saying.at, saying.era = self._loop.time(), self.era
        try:
            link.ask(saying.command, lambda answer: self._answered(saying, answer))
        except (ConnectionLost, Unavailable) as error:
            self._answered(saying, error)

    def _answered(self, saying: Saying, answer: Answer) -> None:
        self._under_way.pop(saying, None)
        match answer:
            case Done():
                self._backoff.reset()
                self._done(saying, answer)
            case ConnectionLost():
                self.link = None
                if not isinstance(saying.command, Extend) or saying.waiters:
                    self._queue.append(saying)
            case Unavailable():
                self._queue.appendleft(saying)
                if self._retry is None:
                    self._retry = self._loop.call_later(self._backoff.next(), self._resume)
            case WireError() if answer.kind.name == "lease_lost":
                self._done(saying, Done(saying.command.ranges))
            case TidemillError():
                log.warning(
                    "settling_refused %s %s: %s", saying.command.subject, saying.command.kind.name, answer
                )
                self._over(saying, answer)
            case _:
                self._over(saying, BrokerUnreachable("the broker answered what was not asked"))
        while self._queue and self.link is not None and self._retry is None:
            if len(self._under_way) >= UNANSWERED_MAX:
                break
            self._say(self._queue.popleft())
        if not self._under_way and not self._queue and not self._pending:
            self._wake()

    def _wake(self) -> None:
        idle, self._idle = self._idle, []
        for future in idle:
            if not future.done():
                future.set_result(None)

    def _done(self, saying: Saying, answer: Done) -> None:
        command = saying.command
        if isinstance(command, Extend):
            news = self._extended(saying, answer.lost)
        else:
            news = bool(answer.lost) and not isinstance(command, Release)
        if news:
            self.doubt(command.subject)
        if not answer.lost or isinstance(command, Release):
            self._over(saying, None)
            return
        saying.lost = count_of(answer.lost)
        self.lost += saying.lost
        if isinstance(command, Ack) and not any(isinstance(one.command, Extend) for one in self._under_way):
            self.renew()  # a lease was lost, or the group was moved: is what lies here still ours?
        gone = LeaseLost(f"the lease of a message of {saying.command.subject} had ended", answer.lost)
        self._over(saying, gone)

    def _over(self, saying: Saying, error: TidemillError | None) -> None:
        """The broker has answered."""
        saying.over = True
        saying.tell(error)
        if saying.number and self.shelf is not None:
            self.shelf.told(saying.number, saying.lost)

    def _extended(self, saying: Saying, lost: Sequence[int]) -> bool:
        """Deliveries that belong to somebody else by now are not begun here as well: whether that is news. The others
        may be, if the group is in order, for as long as the lease runs at least.
        """
        news, subject, ranges = False, saying.command.subject, saying.command.ranges
        certain = saying.era >= self.doubted.get(subject, 0)
        for delivery in self.outstanding:
            first, last = delivery.pull_sequence, delivery.pull_sequence + delivery.count - 1
            if delivery.subject != subject or not within([first, last], ranges, whole=False):
                continue
            delivery.lose(lost)
            if within(delivery.unsettled(), lost, whole=True):
                news = delivery.revoke() or news
            elif within([first, last], lost, whole=False) and delivery.until != REVOKED:
                delivery.until = DOUBTFUL  # one that was parked may be kept for longer than those beside it
            elif self.ordered and certain and delivery.until != REVOKED:
                delivery.until = max(delivery.until, saying.at + self.lease_s)
        return news

    # -- the spool ---------------------------------------------------------------------------------------------

    def adopt(self, kept: Sequence[tuple[int, Fate]]) -> None:
        """Say this, too, which an earlier consumer of this name could not, before anything else."""
        self._queue.extend(Saying(fate, number=number) for number, fate in kept)

    async def keep(self) -> None:
        """What was not answered goes to the spool; who awaits it goes on."""
        self.flush()
        shelf = self.shelf
        async with self._keeping:
            self._keep_wanted = False
            await self._offer()
            found = self.unkept
            if shelf is None or not found:
                return
            numbers = await shelf.keep([fate for _, fate in found])
            if not numbers and self._impatient:  # no room, or no disk
                self._wait_again()
            for (saying, _), number in zip(found, numbers, strict=False):  # all, or none
                saying.number = number
                saying.tell(None, told=False)
                if saying.over:  # answered just now
                    shelf.told(number, saying.lost)
        self._wake()

    @property
    def unkept(self) -> list[tuple[Saying, Fate]]:
        """What was not answered and lies in no file."""
        untold = [one for one in (*self._under_way, *self._queue) if not one.number]
        return [(one, one.command) for one in untold if not isinstance(one.command, Extend)]

    @property
    def keeps(self) -> bool:
        """Whether something lies in the spool that was not answered."""
        return any(saying.number for saying in (*self._under_way, *self._queue))

    def _lose_patience(self) -> None:
        self._waiting, self._impatient = None, True
        self._keep_soon()

    def _keep_soon(self) -> None:
        starter = self.shelf or (self.elsewhere if any(one.may_move for one in self._queue) else None)
        if starter is not None and not self._keep_wanted:
            self._keep_wanted = True
            starter.start(self.keep())

    async def _offer(self) -> None:
        """What failed goes to another broker, if one is there: nobody else says it meanwhile."""
        for saying in list(self._queue):
            elsewhere = None if self.ordered or self.link is not None else self.elsewhere
            if elsewhere is None or not elsewhere.there(saying):
                continue
            self._queue.remove(saying)
            self._under_way[saying] = None
            taken = False
            try:
                taken = await elsewhere.offer(saying)
            finally:
                self._under_way.pop(saying, None)
                if taken or self.link is not None:
                    self._say(saying)
                else:
                    self._queue.appendleft(saying)
        if self.shelf is None and self._impatient:
            self._wait_again()

    def _wait_again(self) -> None:
        """Try again, but not with each that comes."""
        self._impatient = False
        self._waiting = self._loop.call_later(self._patience_s, self._lose_patience)

    # -- connections and the end -------------------------------------------------------------------------------

    def up(self, link: Link) -> None:
        """Say what waits."""
        self.link, self._impatient = link, False
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        self._resume()

    def begin_anew(self) -> None:
        """In order, a new connection begins with the first message that was not acked: nothing of before is begun."""
        if self.ordered:
            for delivery in self.outstanding:
                delivery.until = REVOKED

    def down(self) -> None:
        """What is under way comes back by itself, as ``ConnectionLost``."""
        self.link = None
        if (self.shelf or self.elsewhere) and self._waiting is None and not self._impatient:
            self._waiting = self._loop.call_later(self._patience_s, self._lose_patience)

    def _resume(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        waiting, self._queue = self._queue, deque()
        for saying in waiting:
            self._say(saying)

    async def drained(self) -> None:
        """Until all that was said has been answered; or lies in the spool, when there is no broker to answer."""
        self.flush()
        while self._under_way or self._queue:
            if self._impatient and not self.unkept:
                break
            self._idle.append(self._loop.create_future())
            await self._idle[-1]

    def close(self, error: TidemillError) -> None:
        """Nobody listens any more."""
        for handle in filter(None, (self._timer, self._retry, self._waiting)):
            handle.cancel()
        self.link = None
        for saying in [*self._under_way, *self._queue]:
            saying.tell(error)
        for told in (self._under_way, self._queue, self._pending):
            told.clear()
