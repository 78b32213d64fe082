"""Several worker processes, looked after by one that handles nothing.

    state      event                          next
    running    a process ended by itself      running    started again, after a wait that doubles
    running    the module cannot be used      ending     or with --reload: waits for the next change
    running    a file changed (--reload)      running    all are drained, then started again
    running    SIGTERM, SIGINT                ending     all are told to drain
    ending     a signal again                 ending     all are told to end at once; the third one kills
    ending     all have ended                 ended      the worst of their exit codes

Children are in sessions of their own, so that a Ctrl-C reaches them once, through this process; their standard input
is a pipe that ends with it, so that they drain when it is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress

from tidemill.cli.changes import Seen, changed, look
from tidemill.cli.failures import FAILURE, USAGE
from tidemill.cli.worker import NUMBER_VARIABLE
from tidemill_wire.counted import counted

LOOK_S = 0.3
AGAIN_S = 0.5
AGAIN_MAX_S = 10.0
STEADY_S = 10.0
"""A process that lived so long was well: the next wait is short again."""

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Supervisor:
    """See the module."""

    def __init__(self, options: list[str], processes: int, metrics_port: int | None, *, reload: bool) -> None:
        self._options = options
        self._count = processes
        self._metrics_port = metrics_port
        self._reload = reload
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._signals = 0
        self._draining = asyncio.Event()
        self._ending = asyncio.Event()
        self._worst = 0

    async def run(self) -> int:
        """Until all have ended; the exit code."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._signalled)
        again = ", started again when files change" if self._reload else ""
        self._say(counted(self._count, "process", "processes") + again)
        while not self._ending.is_set():
            self._draining.clear()
            async with asyncio.TaskGroup() as group:
                if self._reload:
                    group.create_task(self._until_change(look(os.getcwd())))
                for index in range(self._count):
                    group.create_task(self._keep(index))
            if not self._reload:
                break
        return self._worst

    async def _keep(self, index: int) -> None:
        """One process, again and again."""
        loop = asyncio.get_running_loop()
        wait_s = AGAIN_S
        while not self._draining.is_set():
            began = loop.time()
            child = await self._start(index)
            self._children[index] = child
            if self._draining.is_set():
                self._tell(child)
            code = await child.wait()
            del self._children[index]
            assert child.stdin is not None
            child.stdin.close()
            if self._draining.is_set():
                self._note(code)
                return
            if code == USAGE:
                self._unusable(code, index)
                return
            if loop.time() - began >= STEADY_S:
                wait_s = AGAIN_S
            self._say(f"process {child.pid} ended by itself, exit code {code}: started again in {wait_s:g} s")
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._ending.wait()
            wait_s = min(AGAIN_MAX_S, 2 * wait_s)

    async def _start(self, index: int) -> asyncio.subprocess.Process:
        port = self._metrics_port
        metrics = [] if port is None else ["--metrics-port", str(port + index if port else 0)]
        # -P: a file of the current folder must not stand in for one of the command's own modules.
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "tidemill.cli", "worker", *self._options, *metrics,
            stdin=asyncio.subprocess.PIPE, start_new_session=True, env={**os.environ, NUMBER_VARIABLE: str(index)},
        )  # fmt: skip

    async def _until_change(self, before: Seen) -> None:
        while not self._ending.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._ending.wait()
            after = await asyncio.to_thread(look, os.getcwd())
            if found := changed(before, after):
                self._say(f"changed: {', '.join(found)}")
                self._drain()
                return

    def _unusable(self, code: int, index: int) -> None:
        """The first child has said why."""
        if self._reload:
            if index == 0:
                self._say("waiting for the next change")
            return
        self._ending.set()
        self._note(code)
        self._drain()

    def _signalled(self) -> None:
        self._signals += 1
        self._ending.set()
        self._drain()

    def _drain(self) -> None:
        self._draining.set()
        for child in self._children.values():
            self._tell(child)

    def _tell(self, child: asyncio.subprocess.Process) -> None:
        with suppress(ProcessLookupError):  # it has just ended
            child.send_signal(signal.SIGKILL if self._signals > len(SIGNALS) else signal.SIGTERM)

    def _note(self, code: int) -> None:
        """How one ended that was told to. Before a change of the files that says nothing of the end of all; and one
        that died of the first signal did not listen yet, or any more: it held nothing.
        """
        if self._ending.is_set() and code != -signal.SIGTERM:
            self._worst = max(self._worst, code if code >= 0 else FAILURE)

    def _say(self, text: str) -> None:
        print(f"tidemill worker: {text}", file=sys.stderr, flush=True)
