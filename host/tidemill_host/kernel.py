"""fdatasync by the kernel's own threads: asked for with one system call, heard of by the event loop.

A thread of ours that syncs has to be woken, then needs Python's lock back, then has to wake the loop. Linux takes the
same order through its queue of asynchronous operations (``io_submit``, 4.18) and marks an eventfd at the end.
Where there is no such queue, or it is full, the sync lane does the work as ever.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import platform
import struct
from collections.abc import Callable, Sequence
from typing import Protocol

from tidemill_host.disk import File, RealFile

OPERATIONS_MAX = 64
"""Under way at once: a broker has two files open for writing, and a few that were just filled."""

FDSYNC, TELL_EVENTFD = 3, 1
CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
"""Numbers of io_setup, io_destroy, io_getevents and io_submit."""

#     data u64, key u32, rw flags i32, opcode u16, priority i16, descriptor u32,
#     buffer u64, bytes u64, offset i64, reserved u64, flags u32, eventfd u32
ORDER = struct.Struct("<QIiHhIQQqQII")
RESULT = struct.Struct("<QQqq")  # data u64, order u64, result i64, second result i64

Done = Callable[[OSError | None], None]


class Syncing(Protocol):
    """Whoever syncs files without a thread of ours."""

    def sync(self, files: Sequence[File], done: Done) -> bool:
        """Begin; ``done`` is called once, by the loop. ``False``: not begun, and ``done`` will not be called."""
        ...


class KernelSync:
    """See the module. Made on the loop that will hear of the ends."""

    def __init__(self, calls: tuple[int, int, int, int], libc: ctypes.CDLL) -> None:
        self._setup, self._destroy, self._events, self._submit = calls
        self._libc = libc
        self._context = ctypes.c_ulong(0)
        self._call(self._setup, OPERATIONS_MAX, ctypes.byref(self._context))
        self._told = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._orders = [ctypes.create_string_buffer(ORDER.size) for _ in range(OPERATIONS_MAX)]
        self._free = list(range(OPERATIONS_MAX))
        self._pointers = (ctypes.c_void_p * OPERATIONS_MAX)()
        self._results = ctypes.create_string_buffer(RESULT.size * OPERATIONS_MAX)
        self._batches: dict[int, Batch] = {}  # by the number of the order
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._told, self._heard)

    def sync(self, files: Sequence[File], done: Done) -> bool:
        if len(files) > len(self._free) or not files:
            return False
        batch = Batch(len(files), done)
        numbers = [self._free.pop() for _ in files]
        for place, (number, file) in enumerate(zip(numbers, files, strict=True)):
            assert isinstance(file, RealFile)
            order = self._orders[number]
            ORDER.pack_into(
                order, 0, number, 0, 0, FDSYNC, 0, file.fileno(), 0, 0, 0, 0, TELL_EVENTFD, self._told
            )
            self._pointers[place] = ctypes.addressof(order)
            self._batches[number] = batch
        try:
            begun = self._call(self._submit, self._context, len(files), self._pointers)
        except OSError:  # the system's queue is full, or the file system has no such operation
            begun = 0
        for number in numbers[begun:]:
            del self._batches[number]
            self._free.append(number)
        if 0 < begun < len(files):
            # What was begun may fail, and a second sync of it would then say that all is well.
            batch.open = begun
            batch.error = OSError(errno.EAGAIN, "the kernel took only a part of what was to be synced")
        return begun > 0

    def close(self) -> None:
        """Nothing is under way any more."""
        self._loop.remove_reader(self._told)
        os.close(self._told)
        self._call(self._destroy, self._context)

    def _heard(self) -> None:
        os.eventfd_read(self._told)
        count = self._call(self._events, self._context, 0, OPERATIONS_MAX, self._results, None)
        for place in range(count):
            number, _, result, _ = RESULT.unpack_from(self._results, place * RESULT.size)
            self._free.append(number)
            batch = self._batches.pop(number)
            batch.open -= 1
            if result < 0 and batch.error is None:
                batch.error = OSError(-result, os.strerror(-result))
            if not batch.open:
                batch.done(batch.error)

    def _call(self, number: int, *arguments: object) -> int:
        answer = int(self._libc.syscall(ctypes.c_long(number), *arguments))
        if answer < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return answer


class Batch:
    """Files that are synced together."""

    __slots__ = ("done", "error", "open")

    def __init__(self, count: int, done: Done) -> None:
        self.open = count
        self.done = done
        self.error: OSError | None = None


def kernel_sync() -> KernelSync | None:
    """The kernel's queue, where there is one for us."""
    calls = CALLS.get(platform.machine()) if platform.system() == "Linux" else None
    if calls is None:
        return None
    try:
        return KernelSync(calls, ctypes.CDLL(None, use_errno=True))
    except (OSError, AttributeError):
        return None  # not allowed here, or all queues of the system are taken
