"""A peer within the process: what stands behind it asks the machine as a connection does, without a socket between.

It is numbered like a connection, its commands go through the same turn, and its answers wait for the same disk. So
what is promised to a connection is promised to it. An answer whose asker has gone is handed to ``unclaimed``: the
machine has acted on the question, and somebody must know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain

from tidemill_host.machine import Buffer, Send, Unread
from tidemill_host.server import Server
from tidemill_wire.commands import Command, Failed, SendBatches, parse_command
from tidemill_wire.connection import Received
from tidemill_wire.errors import Unavailable, WireError
from tidemill_wire.frame import FRAME_HEADER, FRAME_HEADER_BYTES, Frame


class LocalPeer:
    """One peer. Its states: open, then closed for good, by either side."""

    pending = 0
    """It never holds half a frame."""

    def __init__(self, server: Server, unclaimed: Callable[[Command], object]) -> None:
        self._server = server
        self._unclaimed = unclaimed
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._correlation = 0
        self._ended: WireError | None = None
        self._loop = asyncio.get_running_loop()
        self.number = server.enrol(self)
        server.turn.connected(self.number)

    @property
    def waiting(self) -> int:
        """Questions without an answer."""
        return len(self._waiting)

    def ask(self, command: Command) -> asyncio.Future[Command]:
        """The answer to be: a command, or the ``WireError`` that it is refused with. Whoever cancels it may go."""
        future: asyncio.Future[Command] = self._loop.create_future()
        if self._ended is not None:
            future.set_exception(self._ended)
            return future
        self._correlation += 1
        self._waiting[self._correlation] = future
        turn = self._server.turn
        turn.post(self.number, Received(self._correlation, command))
        if isinstance(command, SendBatches):
            turn.collected(len(command.batches))
        return future

    def close(self) -> None:
        """The machine hears that it is gone."""
        if self._ended is None:
            self._end(Unavailable("shutting_down", "this side has closed"))
            self._server.turn.disconnected(self.number)

    # What the server asks of every peer.

    def send(self, send: Send) -> None:
        """An answer, and what it needs from the disk. Answers overtake each other: each has its own asker."""
        if not send.slices:
            self._answer((send.head,))
            return
        found = self._server.files.gather_now(send.slices)
        if found is None:
            self._read_cold(send)
            return
        self._answer([send.head, *found])

    def goodbye(self, reason: str) -> None:
        self._end(Unavailable("shutting_down", reason))

    def abort(self) -> None:
        """The disk refused: nobody knows what became of the questions."""
        self._end(Unavailable("internal", "the broker cannot go on, and says nothing about this request"))

    def check(self, now: float) -> None:
        """A peer within the process is not slow."""

    def judge_again(self) -> None:
        """It is this process."""

    def refuse(self, reason: str, detail: str) -> None:
        self._end(Unavailable(reason, detail))

    # Answers.

    def _end(self, error: WireError) -> None:
        if self._ended is not None:
            return
        self._ended = error
        self._server.forget(self.number)
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)

    def _answer(self, parts: Sequence[Buffer]) -> None:
        _, kind, flags, correlation = FRAME_HEADER.unpack_from(parts[0])
        future = self._waiting.pop(correlation, None)
        if future is None:
            return
        body = bytearray().join(chain((memoryview(parts[0])[FRAME_HEADER_BYTES:],), parts[1:]))
        command = parse_command(Frame(kind, flags, correlation, body))
        if future.done():
            self._unclaimed(command)
        elif isinstance(command, Failed):
            future.set_exception(command.error)
        else:
            future.set_result(command)

    def _read_cold(self, send: Send) -> None:
        self._server.statistics.cold_reads += 1
        files = self._server.files
        job = self._loop.run_in_executor(self._server.lanes.read, files.gather, send.slices)
        job.add_done_callback(lambda done: self._read_done(send, done))

    def _read_done(self, send: Send, done: asyncio.Future[list[bytes] | Unread]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
        pieces = [] if error is not None else done.result()
        if isinstance(pieces, Unread):
            if self._server.turn.unsent(send, pieces):
                return
            pieces = []
        if [len(data) for data in pieces] == [piece.size for piece in send.slices]:
            self._answer([send.head, *pieces])
            return
        self._server.statistics.refused["read_failed"] += 1
        future = self._waiting.pop(FRAME_HEADER.unpack_from(send.head)[3], None)
        if future is not None and not future.done():
            future.set_exception(
                Unavailable("read_failed", "what was stored could not be read from the disk")
            )
