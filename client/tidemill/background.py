"""An event loop in a thread of its own, for callers who have none."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from tidemill.errors import ClientClosed

P = ParamSpec("P")
T = TypeVar("T")
Behind = TypeVar("Behind", covariant=True)

END_S = 5.0
"""How long what was cancelled may take to end."""


class Lock:
    """Of the threads of one process. A fork leaves the child the parent's lock, taken by nobody who is there, and any
    number of the child's threads may find that at once.
    """

    def __init__(self) -> None:
        self._locks: dict[int, threading.Lock] = {}

    def of_this_process(self) -> threading.Lock:
        """To be held by ``with``."""
        return self._locks.setdefault(os.getpid(), threading.Lock())


class Background:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._turn = threading.Lock()
        """Of those who begin something and whoever ends all."""
        self.stopped = False
        """All that was there is closed."""
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="tidemill", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises; it is cancelled when the caller is interrupted."""
        if os.getpid() != self.pid:
            coroutine.close()
            raise ClientClosed("this consumer was entered before a fork: enter one in the child process")
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError(
                "a blocking client was called from the thread of its own event loop, which would wait for itself: a "
                "filter does not use it, nor does an iterator of bodies"
            )
        with self._turn:
            if self.stopped:
                coroutine.close()
                raise ClientClosed("the client is closed")
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except CancelledError:
            if self.stopped:
                raise ClientClosed("the client was closed before this call was done") from None
            raise
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End what other threads wait for, and the thread."""
        with self._turn:
            if self.stopped:
                return
            self.stopped = True
            ending = asyncio.run_coroutine_threadsafe(_end_others(), self.loop)
        try:
            ending.result()
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()


async def _end_others() -> None:
    """Whoever waits for a task of a loop that has ended waits for ever."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=END_S)


class Blocking(Protocol[Behind]):
    """An object whose calls return when they are done, and the one of the event loop behind it."""

    def _behind(self) -> tuple[Background, Behind]: ...


def done(
    method: Callable[Concatenate[Behind, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[Behind], P], T]:
    """The same method, which returns when it is done; with its signature, for people and for type checkers."""
    name = method.__name__

    @wraps(method)
    def call(self: Blocking[Behind], /, *args: P.args, **kwargs: P.kwargs) -> T:
        background, behind = self._behind()  # pyright: ignore[reportPrivateUsage]  # a method of it, made here
        # By its name: a subclass may have a method of its own.
        started: Coroutine[Any, Any, T] = getattr(behind, name)(*args, **kwargs)
        return background.run(started)

    return call


def found(background: Background, messages: AsyncIterator[T]) -> Iterator[T]:
    """What a search finds, asked for in the loop's thread."""

    async def following() -> T:
        return await anext(messages)

    return Until(lambda: background.run(following()))


class Until(Generic[T]):
    """Iterates until the consumer ends."""

    def __init__(self, step: Callable[[], T]) -> None:
        self._step = step

    def __iter__(self) -> Until[T]:
        return self

    def __next__(self) -> T:
        try:
            return self._step()
        except StopAsyncIteration:
            raise StopIteration from None
