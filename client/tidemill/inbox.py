"""What was pulled and not begun, of all brokers of a consumer; and how much of it there should be.

The window is in messages. It grows fourfold when a broker gave all that was asked for, and the handler waited or does
all of the window in a moment; up to what the handler did in a second as far as is known. It shrinks by half when a
delivery lay here for a second: so a fast handler gets whole batches, and a slow one does not sit on messages that other
consumers of the group could handle.

A handler that awaits the ack of each delivery never waits while several brokers give it a little each: the moment is
what lets it out of a window that became small in an outage, when all that lay here had to wait for one broker.
"""

from __future__ import annotations

import asyncio
from collections import deque

from tidemill.delivery import Delivery, Settler
from tidemill.errors import TidemillError
from tidemill.shares import Shares

WINDOW_FIRST = 256
WINDOW_MIN = 16
STALE_S = 1.0
SHORT_S = STALE_S / 16
"""Four times as much, and what two pulls may bring beyond it, is handled before it is stale."""


class Window:
    """How many messages to ask for."""

    __slots__ = ("_max", "_pace_s", "size")

    def __init__(self, messages_max: int) -> None:
        self._max = messages_max
        self._pace_s = STALE_S / WINDOW_FIRST
        """Seconds that the handler needs for a message."""
        self.size = min(WINDOW_FIRST, messages_max)

    def handled(self, messages: int, seconds: float) -> None:
        """The handler asks for more after so long."""
        self._pace_s = seconds / messages

    @property
    def short(self) -> bool:
        """The handler does all of it in a moment."""
        return self.size * self._pace_s < SHORT_S

    def starved(self) -> None:
        """The handler could do with more, and there would have been more."""
        in_a_second = int(STALE_S / max(self._pace_s, 1e-9))
        self.size = min(self._max, self.size * 4, max(self.size, in_a_second))

    def stale(self) -> None:
        """A delivery waited for the handler."""
        self.size = min(self.size, max(WINDOW_MIN, self.size // 2))


class Lying:
    """What is here of one broker."""

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0


class Inbox:
    """Deliveries in the order they came."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.window = Window(messages_max)
        self.error: TidemillError | None = None
        self.closed = False
        self.waiting = False
        """The handler has nothing to do."""
        self.stuck = False
        """The handler has had something for so long that it is lost: until it comes back, nothing is asked for."""
        self.received = 0
        """Messages that came, ever."""
        self._bytes_max = bytes_max
        self._popped = (0, 0.0)
        """How many messages the handler took last, and when."""
        self._ready: deque[Delivery] = deque()
        self.shares = Shares()
        self._lying: dict[Settler, Lying] = {}
        self._wake: asyncio.Future[None] | None = None

    def join(self, settler: Settler) -> None:
        """Deliveries of one more broker will come."""
        self._lying[settler] = Lying()
        self.shares.join(settler)

    @property
    def lying(self) -> int:
        """Messages that are here."""
        return sum(one.messages for one in self._lying.values())

    def wanted(self, settler: Settler) -> int:
        """How many messages to ask a broker for."""
        return max(1, int(self.window.size * self.shares.of(settler)))

    def room(self, settler: Settler, bytes_on_their_way: int) -> bool:
        """A broker may be asked for more: it has not filled its share."""
        share, lying = self.shares.of(settler), self._lying[settler]
        few = lying.messages < max(1, self.window.size * share)
        open_still = not self.closed and not self.stuck
        return few and lying.bytes + bytes_on_their_way < self._bytes_max * share and open_still

    def filled(self) -> None:
        """A broker gave all that was asked for, so it has more."""
        if self.waiting or self.window.short:
            self.window.starved()

    def put(self, deliveries: list[Delivery]) -> None:
        """They came."""
        now = self._loop.time()
        for delivery in deliveries:
            delivery.arrived = now
            self.received += delivery.count
            lying = self._lying[delivery.settler]
            lying.messages += delivery.count
            lying.bytes += delivery.size
        self._ready.extend(deliveries)
        self.wake()

    def stick(self, lost: list[Delivery]) -> list[Delivery]:
        """These are lost. If one of them is in the handler's hands, and that is all it does: what lies here, which
        others may handle. It is gone from here.
        """
        if self.waiting or self.closed or all(one in self._ready for one in lost):
            return []
        self.stuck = True
        rest = list(self._ready)
        self._ready.clear()
        for lying in self._lying.values():
            lying.messages = lying.bytes = 0
        return rest

    def pop(self) -> Delivery | None:
        """The next one, if there is one."""
        self.stuck = False
        now = self._loop.time()
        if self._popped[0]:
            self.window.handled(self._popped[0], now - self._popped[1])
            self._popped = (0, now)
        if not self._ready:
            return None
        delivery = self._ready.popleft()
        lying = self._lying[delivery.settler]
        lying.messages -= delivery.count
        lying.bytes -= delivery.size
        self._popped = (delivery.count, now)
        if now - delivery.arrived > STALE_S:
            self.window.stale()
        return delivery

    def put_back(self, delivery: Delivery) -> None:
        """It was taken and is not handled now: it is the next one."""
        lying = self._lying[delivery.settler]
        lying.messages += delivery.count
        lying.bytes += delivery.size
        self._popped = (0, 0.0)
        self._ready.appendleft(delivery)

    async def wait(self) -> None:
        """Until something may have changed."""
        self.waiting = True
        self._wake = self._loop.create_future()
        try:
            await self._wake
        finally:
            self._wake = None
            self.waiting = False

    def wake(self) -> None:
        """Let the handler look."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def fail(self, error: TidemillError) -> None:
        """No more will come, and this is why."""
        self.error = self.error or error
        self.wake()

    def close(self) -> list[Delivery]:
        """No more will be handled; what lies here."""
        self.closed = True
        rest = list(self._ready)
        self._ready.clear()
        self.wake()
        return rest
