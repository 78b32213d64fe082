"""Standard output that may stand still, as before `less`: whoever has leases to renew must not stand still with it.

What a file or a pipe takes at once is written at once. All else is written by a thread, and waited for by the event
loop: a terminal may be halted, and of a pipe only that is certain which fits into what is free of it.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
import sys
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeAlias

Written: TypeAlias = "asyncio.Future[None]"


class Outlet:
    """Lines, one after the other: the next one is written when the former one is.

    A daemon thread, because nobody can interrupt a write; writing to the descriptor itself, because a lock of a buffer
    held by such a thread is fatal when the process ends.
    """

    def __init__(self) -> None:
        self._stream = sys.stdout.buffer
        self._stream.flush()
        self._lines: SimpleQueue[tuple[bytes, Written]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._poll = select.poll()
        self._descriptor: int | None = None
        self._at_once = 0
        with suppress(OSError, ValueError):  # it is no file of the system
            descriptor = self._stream.fileno()
            self._poll.register(descriptor, select.POLLOUT)
            self._descriptor, self._at_once = descriptor, _taken_at_once(descriptor)

    def write(self, line: bytes) -> Written | None:
        """A future when it is not written yet; it may have an ``OSError``."""
        if self._descriptor is None:
            self._stream.write(line)
            self._stream.flush()
            return None
        if len(line) <= self._at_once and self._poll.poll(0):
            line = line[os.write(self._descriptor, line) :]
        if not line:
            return None
        written: Written = asyncio.get_running_loop().create_future()
        self._lines.put((line, written))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="tidemill output", daemon=True)
            self._thread.start()
        return written

    def _work(self) -> None:
        assert self._descriptor is not None
        while True:
            line, written = self._lines.get()
            error: OSError | None = None
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except OSError as caught:
                error = caught
            with suppress(RuntimeError):  # the loop is closed, nobody waits any more
                written.get_loop().call_soon_threadsafe(_settle, written, error)


def _settle(written: Written, error: OSError | None) -> None:
    if written.done():
        return
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(error)


def _taken_at_once(descriptor: int) -> int:
    """The most bytes that a descriptor takes without a wait when it says that it takes any."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(descriptor)):
        return sys.maxsize  # a file, or /dev/null
    return select.PIPE_BUF if stat.S_ISFIFO(mode) else 0
