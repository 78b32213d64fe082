"""Processes for handlers that compute, or that must be killed when they take too long.

    child      event                          next
    new        begun                          loading   it imports the handler's module, within ``LOAD_S``
    loading    it says so                     idle
    idle       given a message                busy
    busy       it answers                     idle
    busy       takes too long, dies           ended     it is killed; another one takes its place
    any        its pipe ends, by its worker   ended     when the message in hand is handled

Each child handles one message at a time, over a pipe. It is made when it is needed. What a handler forks has no part in
the pipe: it cannot answer for another message, and does not keep the pipe open when its parent dies.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from tidemill.caught import Caught
from tidemill.why import FailedElsewhere, why_of
from tidemill.worker.handler import Function, check_found, name_of
from tidemill.worker.plain import PlainMessage
from tidemill.worker.verdicts import Reject, RetryAfter, Skip

KILL_WAIT_S = 5.0
LOAD_S = 120.0
"""How long the imports of a handler's module may take, on a busy machine too; they are not the handler's time."""


class ProcessDied(Exception):
    """The process that handled the message ended in the middle of it."""


class Processes:
    """As many children as calls at once; who calls bounds them."""

    def __init__(self, function: Function) -> None:
        self._function = pickled(function)
        self._name = name_of(function)
        self._idle: list[Child] = []
        self._busy: dict[Child, None] = {}

    async def call(self, message: PlainMessage, timeout_s: float | None = None) -> None:
        """Returns or raises as the handler does; ``TimeoutError`` when it takes longer. When the caller is cancelled,
        the child is killed.
        """
        child = self._idle.pop() if self._idle else Child(self._function, self._name)
        self._busy[child] = None
        well = False
        try:
            await child.load()  # the handler's time begins when it is there
            async with asyncio.timeout(timeout_s):
                answer = await child.ask(message)
            well = True
        finally:
            del self._busy[child]
            if well:
                self._idle.append(child)
            else:
                await asyncio.shield(asyncio.to_thread(child.kill))
        if answer is not None:
            raise answer

    async def close(self) -> None:
        """End them all."""
        children = [*self._idle, *self._busy]
        self._idle.clear()
        for child in children:
            await asyncio.to_thread(child.kill)


class Child:
    """One process, and this side of its pipe."""

    def __init__(self, function: bytes, name: str) -> None:
        context = multiprocessing.get_context(
            "spawn"
        )  # a fork would copy the loop, its sockets and its leases
        self._pipe, self._far = context.Pipe()
        self._process: SpawnProcess = context.Process(
            target=handle_all, args=(self._far, function), name=f"tidemill {name}", daemon=True
        )
        self._loaded = False
        self._beginning = threading.Lock()
        """Of who begins it and who kills it meanwhile."""

    async def load(self) -> None:
        """It is there, and has imported what it needs."""
        if self._loaded:
            return
        try:
            async with asyncio.timeout(LOAD_S):
                await asyncio.to_thread(self._begin)
                await self._answer()
        except TimeoutError:
            raise ProcessDied(f"the handler's module was not imported within {LOAD_S:g} s") from None
        self._loaded = True

    async def ask(self, message: PlainMessage) -> BaseException | None:
        """What the handler raised."""
        await self.load()
        answer = await self._answer(message)
        assert answer is None or isinstance(answer, BaseException)
        return answer

    async def _answer(self, message: PlainMessage | None = None) -> Any:
        """What it says, to a message if one is given."""
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()
        descriptor = self._pipe.fileno()
        loop.add_reader(descriptor, _wake, readable)
        try:
            if message is not None:
                await asyncio.to_thread(self._pipe.send, message)
            await readable
            return self._pipe.recv()
        except (EOFError, OSError):
            await asyncio.to_thread(self._process.join, KILL_WAIT_S)
            code = self._process.exitcode
            raise ProcessDied(f"the process of the handler ended, exit code {code}") from None
        finally:
            loop.remove_reader(descriptor)

    def _begin(self) -> None:
        with self._beginning:
            self._process.start()
            self._far.close()

    def kill(self) -> None:
        """It ends now, whatever it does."""
        with self._beginning:
            if self._process.pid is not None:
                self._process.kill()
                self._process.join(KILL_WAIT_S)
            self._pipe.close()
            self._far.close()


def pickled(function: Function) -> bytes:
    """The function by its name, as another process can find it."""
    try:
        return pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"{name_of(function)} cannot be found by another process ({error}): "
            "a handler of a process pool is a function at the top of its module"
        ) from None


def handle_all(pipe: Connection, function: bytes) -> None:
    """The child's whole life."""
    # The worker decides when it ends: a Ctrl-C reaches the whole group, and the message in hand is to be finished.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.register_at_fork(after_in_child=pipe.close)
    handler: Function | None = None
    with suppress(EOFError, OSError):  # the worker is gone
        with Caught(everything=True):  # told with each message that it is why it was not handled
            handler = pickle.loads(function)  # noqa: S301 - our parent wrote it
        pipe.send(None)
        while True:
            message: PlainMessage = pipe.recv()
            with Caught(everything=True) as caught:
                if handler is None:
                    handler = pickle.loads(function)  # noqa: S301
                assert handler is not None
                check_found(handler, handler(message), awaited=False)
            pipe.send(_portable(caught.error, handler))


def _portable(error: BaseException | None, handler: Function | None) -> BaseException | None:
    match error:
        case None:
            return None
        case RetryAfter():
            return RetryAfter(error.seconds, error.reason)
        case Reject():
            return Reject(error.reason)
        case Skip():
            return Skip(str(error))
        case _:
            return FailedElsewhere(why_of(error, handler))


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
