"""One connection to one broker: frames out, answers back to whoever asked.

    state       event                        next
    opening     WELCOME                      open
    opening     ERROR, deadline, loss        lost
    open        loss, silence, broken bytes  lost

Answers are handed over from inside of ``buffer_updated``: no task and no queue lies between the socket and the future
that a caller awaits. Invariants: every question is answered exactly once, by a command, by an error of the broker,
or by
``ConnectionLost``; ``lost`` is resolved exactly once; a link that is lost never comes back (``session.py`` makes a
new one). Silence is noticed because a ping is sent when nothing was heard for a fifth of ``dead_peer_s``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from tidemill.errors import (
    BrokerUnreachable,
    ConnectionLost,
    ProtocolError,
    TidemillError,
    Unavailable,
)
from tidemill.routes import Address
from tidemill.settings import ClientSettings
from tidemill_wire.commands import Command, Failed, Goodbye, Kind, Ping, Welcome, encode_command
from tidemill_wire.connection import Connection, Received, Role
from tidemill_wire.frame import FRAME_HEADER
from tidemill_wire.limits import CORRELATIONS_MAX
from tidemill_wire.vigil import Vigil

Answer: TypeAlias = Command | TidemillError
OnAnswer: TypeAlias = Callable[[Answer], None]

SILENT_TICKS_MAX = 4
"""Of five in ``dead_peer_s``: the first may have begun just before the last byte came."""

PART_S = 1.0
"""How long a goodbye may take to be heard."""

JOIN_BYTES = 32 * 1024
"""Below it, one copy is cheaper than a vector of writes."""

ANEW = frozenset({"not_master", "unauthenticated"})
"""What the next connection may hear otherwise: routes know who is master, and a file has the token that holds now."""


class Link(asyncio.BufferedProtocol):
    """See the module."""

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        loop = asyncio.get_running_loop()
        self.address = address
        self.opened: asyncio.Future[Welcome] = loop.create_future()
        self.lost: asyncio.Future[TidemillError] = loop.create_future()
        self.paused = False
        """The transport holds as much as it wants to: write nothing large."""
        self.on_resume: Callable[[], None] | None = None
        self._loop = loop
        self._greeting = settings.name, settings.token
        self._tick_s = settings.dead_peer_s / (SILENT_TICKS_MAX + 1)
        self._connection = Connection(Role.CLIENT)
        self._transport: asyncio.Transport | None = None
        self._answers: dict[int, OnAnswer] = {}
        self._correlation = 0
        self._corked: list[bytes] | None = None
        self._seconds = settings.seconds
        self._vigil = Vigil(enabled=settings.stay_awake)
        self._looking = False
        self._heard = True
        self._silent_ticks = 0
        self._timer: asyncio.TimerHandle | None = None

    # -- asking ------------------------------------------------------------------------------------------------

    def ask(self, command: Command, on_answer: OnAnswer) -> None:
        """Say it; ``on_answer`` is called once."""
        correlation = self._expect(on_answer)
        self._write(encode_command(command, correlation))

    def send(self, batches: Sequence[bytes | bytearray], size: int, on_answer: OnAnswer) -> None:
        """A SEND frame of batches that are ``size`` bytes together. They must not change until it is answered."""
        correlation = self._expect(on_answer)
        assert self._transport is not None
        header = FRAME_HEADER.pack(size, Kind.SEND, 0, correlation)
        if size <= JOIN_BYTES:
            self._transport.write(b"".join((header, *batches)))
        else:
            self._transport.writelines((header, *batches))
        if self._vigil.began(self._seconds()) and not self._looking:
            self._looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Come back instead of falling asleep: the loop asks the kernel for the answer in between."""
        self._looking = self._vigil.look(self._seconds()) and not self.lost.done()
        if self._looking:
            self._loop.call_soon(self._look)

    def tell(self, command: Command) -> None:
        """Say it and expect no answer."""
        if self._transport is not None and not self.lost.done():
            self._write(encode_command(command, 0))

    def cork(self) -> None:
        """What is asked and told from now on leaves together, at ``uncork``: a call of the kernel is dear."""
        self._corked = self._corked or []

    def uncork(self) -> None:
        """Let it leave."""
        corked, self._corked = self._corked, None
        if corked and self._transport is not None and not self.lost.done():
            self._transport.write(b"".join(corked))

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        if self._corked is not None:
            self._corked.append(data)
        elif not self._transport.is_closing():  # else it is lost, and will say so in this turn
            self._transport.write(data)

    async def part(self, reason: str) -> None:
        """Say goodbye, and close when that was heard. Closed at once, what the broker is just saying would reset the
        connection, and it might never read the goodbye: it would wait for this consumer to come back.
        """
        heard: asyncio.Future[None] = self._loop.create_future()
        if not self.lost.done():
            self.tell(Goodbye(reason))
            self._ping(lambda _answer: None if heard.done() else heard.set_result(None))
            await asyncio.wait((heard, self.lost), timeout=PART_S, return_when=asyncio.FIRST_COMPLETED)
        self.close()

    def close(self) -> None:
        """End it from this side, after what was written has left."""
        if self._transport is not None:
            self._transport.close()
        if self._timer is not None:
            self._timer.cancel()  # also when who waited for the loss was cancelled, and the future with it
        self._lose(ConnectionLost(f"the connection to {self.address} was closed by this side"))

    def _expect(self, on_answer: OnAnswer) -> int:
        if self.lost.done():
            raise ConnectionLost(f"the connection to {self.address} is lost")
        if len(self._answers) >= CORRELATIONS_MAX:
            raise Unavailable(
                "too_many_requests", f"{CORRELATIONS_MAX} requests to {self.address} wait for answers"
            )
        return self._number(on_answer)

    def _ping(self, on_answer: OnAnswer) -> None:
        """Beyond the bound of questions, too: it is asked because the others are not answered."""
        self._write(encode_command(Ping(), self._number(on_answer)))

    def _number(self, on_answer: OnAnswer) -> int:
        self._correlation = correlation = self._correlation + 1
        self._answers[correlation] = on_answer
        return correlation

    # -- what the event loop calls -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast: uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        if self.lost.done():  # nobody waited for it any more
            self._transport.abort()
            return
        self._transport.write(self._connection.greet(*self._greeting))
        self._timer = self._loop.call_later(self._tick_s, self._tick)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._connection.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = True
        if self.lost.done():
            return
        self._vigil.ended(self._seconds())
        try:
            events = self._connection.advance(nbytes)
        except ProtocolError as error:
            self._lose(ConnectionLost(f"{self.address} does not speak as a tidemill broker should: {error}"))
            return
        for event in events:
            if isinstance(event, Received):
                command = event.command
                on_answer = self._answers.pop(event.correlation, None)
                if on_answer is None:
                    self._unasked(command)
                elif isinstance(command, Failed):
                    refusal = command.error
                    if refusal.kind.name in ANEW:
                        self._answers[event.correlation] = on_answer
                        self._lose(ConnectionLost(str(refusal)))
                        return
                    on_answer(refusal)
                else:
                    on_answer(command)
            elif (on_answer := self._answers.pop(event.correlation, None)) is not None:
                on_answer(event.error)
            elif not self.opened.done():
                self._lose(event.error)

    def eof_received(self) -> bool:
        self._lose(ConnectionLost(f"{self.address} closed the connection"))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        why = f": {exc}" if exc else ""
        self._lose(ConnectionLost(f"the connection to {self.address} ended{why}"))

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self.on_resume is not None:
            self.on_resume()

    # -- life and death ----------------------------------------------------------------------------------------

    def _unasked(self, command: Command) -> None:
        match command:
            case Welcome():
                if not self.opened.done():
                    self.opened.set_result(command)
            case Failed():
                refusal = command.error
                # Its token was rotated, or a grant was taken back: what holds now the next connection hears.
                known = self.opened.done() and refusal.kind.name in {"unauthenticated", "forbidden"}
                self._lose(ConnectionLost(str(refusal)) if known else refusal)
            case Goodbye():
                pass  # It answers what it has, and refuses the rest as shutting_down; then it closes.
            case _:
                self._lose(ConnectionLost(f"{self.address} answered what was not asked"))

    def _tick(self) -> None:
        if self._heard:
            self._heard = False
            self._silent_ticks = 0
        else:
            self._silent_ticks += 1
            if self._silent_ticks >= SILENT_TICKS_MAX:
                self._lose(ConnectionLost(f"{self.address} was silent for too long"))
                return
            if self._silent_ticks == 1 and self.opened.done():
                self._ping(_ignore)
        self._timer = self._loop.call_later(self._tick_s, self._tick)

    def _lose(self, error: TidemillError) -> None:
        if self.lost.done():
            return
        self.lost.set_result(error)
        if not self.opened.done():
            self.opened.cancel()
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()
        answers = list(self._answers.values())
        self._answers.clear()
        lost = error if isinstance(error, ConnectionLost) else ConnectionLost(str(error))
        for on_answer in answers:
            on_answer(lost)


def _ignore(_answer: Answer) -> None:
    """A ping's answer was heard like everything else; that is all it is for."""


async def dial(address: Address, settings: ClientSettings) -> Link:
    """A link that is open, or why there is none."""
    link = Link(address, settings)
    try:
        async with asyncio.timeout(settings.connect_timeout_s):
            await settings.connect(lambda: link, address.host, address.port)
            await asyncio.wait((link.opened, link.lost), return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError:
        link.close()
        raise BrokerUnreachable(f"{address} did not answer within {settings.connect_timeout_s} s") from None
    except OSError as error:
        link.close()
        raise BrokerUnreachable(f"{address} cannot be reached: {error.strerror or error}") from error
    except asyncio.CancelledError:
        link.close()
        raise
    if link.lost.done():
        raise link.lost.result()
    return link
