"""Threads for handlers without an event loop.

Daemons, made when they are needed: a thread cannot be killed, and one whose handler never returns must not keep the
process from ending, as those of the standard library's pool would.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

from tidemill.caught import Caught

Job: TypeAlias = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class Threads:
    """As many threads as jobs at once; who calls bounds them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._started = 0
        self._unfinished = 0

    def submit(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """What the function will return or raise; it sees the context variables of the caller."""
        future: asyncio.Future[Any] = self._loop.create_future()
        context = contextvars.copy_context()
        self._unfinished += 1
        if self._unfinished > self._started:
            self._started += 1
            name = f"{self._name} {self._started}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._jobs.put((lambda: context.run(function, *arguments), future))
        return future

    def close(self) -> None:
        """Threads end when their handlers return."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, future = job
            found = None
            with Caught(everything=True) as caught:
                found = call()
            if os.getpid() != self._pid:
                os._exit(0)  # a fork of the handler came back: this thread and its answers are its parent's
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._done, future, found, caught.error)

    def _done(self, future: asyncio.Future[Any], found: Any, error: BaseException | None) -> None:
        self._unfinished -= 1
        if future.done():
            return
        if error is None:
            future.set_result(found)
        elif isinstance(error, StopIteration | asyncio.CancelledError) or not isinstance(error, Exception):
            # Neither may travel through a future: the one is refused, the others would end the loop or the task.
            failed = RuntimeError(f"the handler raised {type(error).__name__}: {error}")
            failed.__traceback__ = error.__traceback__
            future.set_exception(failed)
        else:
            future.set_exception(error)
