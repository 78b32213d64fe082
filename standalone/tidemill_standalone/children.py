"""Processes below this one, and when one that ended is started again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from tidemill_standalone.plan import Child

AGAIN_SECONDS, AGAIN_SECONDS_MAX = 0.5, 10.0
STEADY_SECONDS = 10.0
"""A process that lived so long was well: the next wait is short again."""


async def started(child: Child) -> asyncio.subprocess.Process:
    """The process, with what it says on standard output to be read."""
    # -P: a file of the current folder must not stand in for a module. In its own session: Ctrl-C comes once.
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "tidemill_standalone.child", str(os.getpid()), child.package,
        *child.arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        start_new_session=True, env={**os.environ, **child.environment}, pass_fds=child.descriptors,
    )  # fmt: skip


class Pauses:
    """How long to wait before a child is started again: longer each time, until one was well."""

    def __init__(self) -> None:
        self._wait_s = AGAIN_SECONDS
        self._began_s = 0.0

    def begun(self, now_s: float) -> None:
        self._began_s = now_s

    def ended(self, now_s: float) -> float:
        """The wait that is due now."""
        wait_s = AGAIN_SECONDS if now_s - self._began_s >= STEADY_SECONDS else self._wait_s
        self._wait_s = min(AGAIN_SECONDS_MAX, 2 * wait_s)
        return wait_s


def how(code: int) -> str:
    """It ended, for people."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
