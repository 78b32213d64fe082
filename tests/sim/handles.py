"""What the simulated loop keeps: lean handles and timers, and futures and tasks with a deterministic hash."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.loop import SimLoop


class SimHandle(asyncio.Handle):
    """A handle without the bookkeeping of debug mode."""

    __slots__ = ()
    _callback: Callable[..., object]
    _context: contextvars.Context

    def __init__(
        self, callback: Callable[..., object], args: Any, loop: SimLoop, context: contextvars.Context | None
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._context = contextvars.copy_context() if context is None else context


class SimTimer(SimHandle, asyncio.TimerHandle):
    """A handle for later."""

    __slots__ = ()

    def __init__(
        self, when: float, callback: Callable[..., object], args: Any, loop: SimLoop, context: Any
    ) -> None:
        SimHandle.__init__(self, callback, args, loop, context)
        self._when = when
        self._scheduled = True


class SimFuture(asyncio.Future[Any]):
    """A future whose hash is its number: sets of futures iterate alike in every process."""

    def __init__(self, *, loop: SimLoop) -> None:
        self.serial = loop.next_serial()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.serial


class SimTask(asyncio.Task[Any]):
    """A task whose hash is its number, and which knows its life."""

    _log_destroy_pending: bool

    def __init__(
        self, coro: Coroutine[Any, Any, Any], *, loop: SimLoop, name: str | None, context: Any
    ) -> None:
        self.serial = loop.next_serial()
        self.life = loop.life_of(context)
        super().__init__(coro, loop=loop, name=name or f"task-{self.serial}", context=context)

    def __hash__(self) -> int:
        return self.serial


class Cost:
    """Virtual seconds that one executor job has used."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0
