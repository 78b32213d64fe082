"""Tasks with an owner. The one place of the client that makes a task.

An ``asyncio.TaskGroup`` must be entered and left by the same task, which a client that is opened on its first use
and closed by whoever comes last cannot promise. So: each task is named, kept, watched, and ended with its owner; one
that dies
of something unforeseen is told to the owner at once, who fails everybody that waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tidemill.errors import ClientClosed


class Home:
    """The event loop that a client belongs to: that of its first use. In another one its answers would wake nobody."""

    __slots__ = ("loop",)

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None

    def check(self) -> asyncio.AbstractEventLoop:
        """It; ``ClientClosed`` in another one."""
        loop = asyncio.get_running_loop()
        if self.loop is None:
            self.loop = loop
        elif self.loop is not loop:
            raise ClientClosed(
                "this client belongs to another event loop: make one in this loop, or take tidemill.blocking"
            )
        return loop


class Tasks:
    """The tasks of one owner."""

    def __init__(self, on_crash: Callable[[BaseException], None]) -> None:
        self._on_crash = on_crash
        self._tasks: dict[asyncio.Task[None], None] = {}

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run it until it ends, or until ``close``."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    async def close(self) -> None:
        """Cancel all and see them end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(error)
