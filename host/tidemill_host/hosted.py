"""One machine that serves: on a disk, on the loop, behind a port. What every service does alike.

``failed`` is done when the disk, a lane or the machine's own code failed and only a restart helps; ``turned`` when a
machine with replicas is to be something else among them, for which it is ended and another one begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from tidemill_host.clock import Clock
from tidemill_host.disk import Disk
from tidemill_host.files import Files
from tidemill_host.machine import HOST, Machine, Send
from tidemill_host.persist import Lanes
from tidemill_host.server import Server
from tidemill_host.stalls import Stalls
from tidemill_host.turn import Turn
from tidemill_wire.access import Charter
from tidemill_wire.commands import parse_command
from tidemill_wire.connection import Event
from tidemill_wire.errors import Unavailable, WireError
from tidemill_wire.frame import FrameDecoder
from tidemill_wire.replication import Begin

SPACE_CHECK_SECONDS = 1.0
POLL_SECONDS = 0.005

Runs = TypeVar("Runs", bound=Machine[Event])


class Intake(Protocol):
    """What takes messages in, or refuses all of them with a reason."""

    refusal: WireError | None


class Room(NamedTuple):
    """What is to refuse while less than so many percent of the disk are free, and whose disk it is."""

    intake: Intake
    percent: int
    whose: str


class Hosted(Generic[Runs]):
    """See the module."""

    def __init__(self, machine: Runs, disk: Disk, lanes: Lanes, clock: Clock, name: str, room: Room) -> None:
        self.machine = machine
        self._room = room
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.turned: asyncio.Future[Begin] = asyncio.get_running_loop().create_future()
        self.free_bytes = self.total_bytes = 0
        self.is_stopping = False
        """It was told to stop, and says goodbye."""
        self.problem = ""
        """What meta said and it cannot do yet, and why, in a sentence; it has done all of it when that is empty."""
        self.stalls = Stalls()
        self._disk = disk
        self._clock = clock
        self._files = Files(disk)
        self._space_timer: asyncio.TimerHandle | None = None
        self.turn: Turn[Event] = Turn(machine, self._files, lanes, clock, self._fail)
        self.server = Server(self.turn, self._files, lanes, name)

    def hear_itself(self) -> None:
        """What the machine says to its own process is heard: it is one of a group."""
        self.server.connections[HOST] = Itself(self.turned)

    async def listen(self, host: str, port: int) -> int:
        """Serve; the port that was taken."""
        self._check_space()
        self.turn.start()
        return await self.server.listen(host, port)

    def ward(self, charter: Charter) -> None:
        """Somebody was granted something, or lost it: that holds at once, for who is connected, too."""
        self.server.gate.access.obey(charter)
        self.server.judge_again()

    async def settle(self, settled: Callable[[], bool], deadline_seconds: float) -> bool:
        """Until it is so, or the service has failed; whether there was time enough."""
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline_seconds
        while not (self.failed.done() or settled()):
            if loop.time() >= end:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    async def rest(self, deadline_seconds: float = 10.0) -> None:
        """Stop as it is, when nothing is on its way to the disk any more: another machine begins with what is there."""
        self.server.stop_listening()
        if not await self.settle(lambda: self.turn.settled, deadline_seconds):
            self._fail(TimeoutError("the disk did not take in time what it had been given"))
        self.close("this server is something else from now on")

    def close(self, reason: str) -> None:
        """Stop at once."""
        if self._space_timer is not None:
            self._space_timer.cancel()
        self.turn.stop()
        self.server.close(reason)
        self._files.close()

    def _fail(self, error: Exception) -> None:
        """The log can no longer be trusted: answer nobody, let a restart find out what is there."""
        if not self.failed.done():
            self.failed.set_result(error)
        self.turn.stop()
        for connection in list(self.server.connections.values()):
            connection.abort()

    def _check_space(self) -> None:
        """Take nothing while less is free than is to be, or nobody can tell: what is not known may be nothing."""
        intake, percent, whose = self._room
        detail = f"less than {percent} % of {whose} disk is free"
        try:
            self.free_bytes, self.total_bytes = self._disk.space()
            full = self.free_bytes * 100 < self.total_bytes * percent
        except OSError as error:
            full = percent > 0
            detail = f"{whose} disk does not say how much of it is free ({error.strerror or error})"
        intake.refusal = Unavailable("disk_full", detail) if full else None
        self._space_timer = asyncio.get_running_loop().call_later(SPACE_CHECK_SECONDS, self._check_space)


class Itself:
    """The process as a peer of its machine: what is said to it is for the process."""

    pending = 0
    """It never holds half a frame."""

    def __init__(self, turned: asyncio.Future[Begin]) -> None:
        self._turned = turned

    def send(self, send: Send) -> None:
        [frame] = FrameDecoder().feed(send.head)
        begin = parse_command(frame)
        assert isinstance(begin, Begin)
        if not self._turned.done():
            self._turned.set_result(begin)

    def refuse(self, reason: str, detail: str) -> None:
        """It sends nothing that could be refused."""

    def goodbye(self, reason: str) -> None:
        """It knows."""

    def abort(self) -> None:
        """It knows."""

    def check(self, now: float) -> None:
        """It is not slow."""

    def judge_again(self) -> None:
        """It is this process."""
