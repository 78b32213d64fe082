"""A service as a process: one owner of a data folder, signals, a quick loop, large blocks that stay mapped."""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import fcntl
import gc
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from tidemill_host.kernel import kernel_sync
from tidemill_host.log import LOG, info, warning
from tidemill_host.persist import Lanes
from tidemill_wire.counted import counted
from tidemill_wire.log_lines import Form, Level

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
KEEP_BYTES = 64 * 1024 * 1024
FILES_MAX = 1 << 20
COLLECT_AFTER = 20_000


class FolderInUse(Exception):
    """Another process owns the data folder."""


class FolderLock:
    """Holds a data folder for one process. The kernel lets go when the process ends, however it ends."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self._fd = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            raise FolderInUse(
                f"the data folder {folder} is in use by the queue with process id {owner}: "
                f"stop that one, or give this one another folder with --data"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._fd)


def make_lanes() -> Lanes:
    """The threads of one service."""
    return Lanes(
        ThreadPoolExecutor(1, thread_name_prefix="write"),
        ThreadPoolExecutor(1, thread_name_prefix="sync"),
        ThreadPoolExecutor(4, thread_name_prefix="read"),
        kernel_sync(),
    )


def calm_collector(young: int = COLLECT_AFTER, middle: int = 20) -> None:
    """Look for cycles seldom, and never among what the start has made: a full look stops the loop for milliseconds.
    The hot path makes no cycles; what does, as an exception with its frames, is small and rare.
    """
    gc.freeze()
    gc.set_threshold(young, middle, 100)


def keep_memory() -> None:
    """Keep freed blocks for the next megabyte: giving them back and faulting them in again costs more than copying.

    Measured: cutting 1 MiB into messages of 1 KiB takes 1.3 ms with glibc's defaults and 0.24 ms with these.
    """
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, KEEP_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, KEEP_BYTES)
    except (OSError, AttributeError):
        return  # another C library: slower, not wrong


def raise_file_limit() -> int:
    """As many open files as the system allows. A log that cannot be opened stops the service, so of these connections
    get three quarters, the HTTP port a sixteenth, and the rest is for the disk.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = FILES_MAX
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def stop_event() -> asyncio.Event:
    """Set by SIGTERM or SIGINT."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, event.set)
    return event


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run a service on uvloop; its exit code."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.get_loop().set_exception_handler(report)
        return runner.run(main)


def report(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An event for whoever has to mend what nobody had foreseen: one line, so that nothing comes in between."""
    event: dict[str, str] = {"event": str(context.get("message"))}
    error = context.get("exception")
    if isinstance(error, BaseException):
        event |= {"error": repr(error), "traceback": "".join(traceback.format_exception(error))}
    if LOG.form is Form.JSON:
        said = event.pop("event")
        LOG.say(Level.ERROR, "defect", said, **event)
        return
    sys.stderr.write(json.dumps(event) + "\n")
    sys.stderr.flush()


class Recovered(Protocol):
    """What a start found in a data folder, and did with it."""

    checkpoint: int
    actions_replayed: int
    batches_replayed: int
    cut_bytes: dict[str, int]
    checkpoints_passed_over: int
    runs_rebuilt: int


def tell_recovered(found: Recovered, folder: str) -> None:
    """What a person may have to know of a start, and the rest for whoever looks for it."""
    for name, size in found.cut_bytes.items():
        cut = f"cut {counted(size, 'byte')} of a torn {name} log; a copy is in {folder}/aside"
        warning("torn_tail", cut, log=name, bytes=size)
    if found.checkpoints_passed_over:
        newer = counted(found.checkpoints_passed_over, "checkpoint")
        sentence = (
            f"{newer} in {folder} could not be read, and an earlier state was made anew: look at the disk"
        )
        warning("checkpoints_passed_over", sentence, checkpoints=found.checkpoints_passed_over)
    if not (found.checkpoint or found.actions_replayed or found.batches_replayed):
        return  # a folder that was empty
    before = f"checkpoint {found.checkpoint}" if found.checkpoint else "no checkpoint"
    replayed = f"{counted(found.actions_replayed, 'action')} and {counted(found.batches_replayed, 'batch', 'batches')}"
    info(
        "recovered", f"recovered {folder} from {before}, {replayed}",
        checkpoint=found.checkpoint, actions=found.actions_replayed, batches=found.batches_replayed,
        cut_bytes=sum(found.cut_bytes.values()), checkpoints_passed_over=found.checkpoints_passed_over,
        runs_rebuilt=found.runs_rebuilt,
    )  # fmt: skip


def parse_port(written: str) -> int:
    """A port on a command line; the event loop would take the lowest 16 bits of any number."""
    if written.isascii() and written.isdigit() and int(written) < 1 << 16:
        return int(written)
    raise argparse.ArgumentTypeError(f"{written[:40]!r} is no port: write 0 to 65535, 0 for any free one")


def note(line: str) -> None:
    """A line of the log on standard error, before anything else is. Not for a person at a terminal, who wants to know
    that it runs; supervisors and files have no terminal.
    """
    info(line.partition(" ")[0], line)


def say(line: str) -> None:
    """A line for whoever started the process, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
