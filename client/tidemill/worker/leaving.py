"""The end of a process whose worker has ended, whatever the user's code still holds.

    state      event                                     next
    serving    the worker ended                          leaving
    leaving    the loop and its threads have ended       left      it is the caller's turn
    leaving    ``LET_GO_S`` over                         killed    logged, with what held it; the exit code stays

A handler may swallow its cancellation, and a thread that it began with ``asyncio.to_thread`` may never return. Python
waits for both, for ever; the worker's messages were given back long before.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

LET_GO_S = 5.0

T = TypeVar("T", bound=int)

log = logging.getLogger("tidemill.worker")


def run(serving: Coroutine[Any, Any, T], let_go_s: float = LET_GO_S) -> T:
    """What it returns, which is an exit code."""
    timers: list[threading.Timer] = []

    async def watched() -> T:
        code = 1
        try:
            ended = await serving
            code = int(ended)
            return ended
        finally:
            timer = threading.Timer(let_go_s, _leave, [asyncio.get_running_loop(), code])
            timer.daemon = True
            timer.start()
            timers.append(timer)

    try:
        return asyncio.run(watched())
    finally:
        for timer in timers:
            timer.cancel()


def _leave(loop: asyncio.AbstractEventLoop, code: int) -> None:
    tasks = [task.get_name() for task in asyncio.all_tasks(loop)]
    threads = [one.name for one in threading.enumerate() if not one.daemon]
    log.error("worker_ends_hard exit code %d, held by %s", code, ", ".join([*tasks, *threads]))
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
