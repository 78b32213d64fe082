"""Carries out the writes of ``Ready``s in order, and syncs them, without blocking the loop.

Two lanes, each one executor thread: *write* puts bytes into the page cache, *sync* puts the page cache on the disk,
unless the kernel's own threads do (``kernel.py``).
While an fsync runs, further writes go on, and the next fsync serves all of them: group commit falls out by itself.
Appends are made inline while the write lane is idle and the page cache takes them at its usual speed: handing 300
bytes to a thread costs twenty times what writing them does, and a megabyte that was just received is copied in half the
time on the core that received it. When an inline write was slow (memory is short, the kernel makes writers wait),
the lane takes over: for a moment at first, for twice as long after each further slow write, inline or in the lane,
so that the loop meets at most one such write in ``LANE_SECONDS`` while the disk is slow.

Numbers: the first ``Ready`` with writes is 1. ``written`` and ``synced`` say how far each level has come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from tidemill_host.clock import Clock
from tidemill_host.files import Files
from tidemill_host.kernel import Syncing
from tidemill_host.machine import Append, Mark, Remove, Write
from tidemill_wire.metrics.powers import Powers

INLINE_BYTES_MAX = 4 * 1024 * 1024
SLOW_SECONDS_A_MIB = 0.001  # four times what an idle machine needs
SLOW_SECONDS_LEAST = 0.001
LANE_SECONDS_LEAST = 0.002
LANE_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Lanes:
    """The executors: writes, syncs, and reads of what is not in the page cache."""

    write: Executor
    sync: Executor
    read: Executor
    kernel: Syncing | None = None
    """Who syncs without the sync lane, where that can be."""


class Persister:
    """``progressed`` is called whenever ``mark`` has moved, ``failed`` once when the disk or a lane failed."""

    def __init__(
        self,
        files: Files,
        lanes: Lanes,
        clock: Clock,
        progressed: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._clock = clock
        self._files = files
        self._lanes = lanes
        self._progressed = progressed
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._lane_until = 0.0
        self.lane_seconds = LANE_SECONDS_LEAST
        """How long the next slow write sends those behind it to the lane."""
        self._lane_spent = 0.0  # by the last job of the write lane
        self.appends = Powers(1e-5, 20)
        """Seconds that writes took, those of a turn or of a job of the write lane together."""
        self.syncs = Powers(1e-5, 20)
        self._sync_began = 0.0
        self._queue: list[Write] = []
        self.backlog_bytes = 0
        """What waits for the write lane, or is in it: who fills it faster than the disk drains it has to be held."""
        self._submitted = 0
        self.written = 0
        self.synced = 0
        self._sync_wanted = 0
        self._dirty: dict[
            str, tuple[int, int]
        ] = {}  # file: first and last Ready that appended to it, unsynced
        self._writing = False
        self._syncing = False
        self._broken = False

    @property
    def mark(self) -> Mark:
        return Mark(self.written, self.synced)

    @property
    def submitted(self) -> int:
        """The number of the last ``Ready`` that had writes."""
        return self._submitted

    @property
    def idle(self) -> bool:
        """Nothing is on its way, and nothing that was asked to be synced is left."""
        return not (self._writing or self._syncing or self._queue) and self.synced >= self._sync_wanted

    def submit(self, writes: list[Write], sync: bool) -> None:
        """Take the writes of one ``Ready``. When they could be made inline, ``mark`` has moved on return."""
        if self._broken:
            return
        if writes:
            self._submitted += 1
            size, plain = self._note(writes)
            fits = plain and size <= INLINE_BYTES_MAX
            began = self._clock.seconds()
            if fits and not self._writing and began >= self._lane_until:
                self._write_inline(writes, size, began)
            else:
                self._queue += writes
                self.backlog_bytes += size
        if sync:
            self._sync_wanted = self._submitted
        self._start_write()
        self._start_sync()

    def _note(self, writes: list[Write]) -> tuple[int, bool]:
        """How many bytes are appended, and whether that is all there is to do.

        What must be synced is known here, on the loop: no lane shares a set with another.
        """
        dirty, number, size, plain = self._dirty, self._submitted, 0, True
        for write in writes:
            if isinstance(write, Append):
                size += write.size
                if not write.apart:
                    dirty[write.file] = (dirty[write.file][0] if write.file in dirty else number, number)
                continue
            plain = False
            if isinstance(write, Remove):
                dirty.pop(write.file, None)
                self._files.forget(write.file)
        return size, plain

    def _take_dirty(self, target: int) -> list[str]:
        """Files with bytes of ``Ready``s up to ``target``; those with later bytes stay dirty."""
        files = [file for file, (first, _) in self._dirty.items() if first <= target]
        self._dirty = {file: (target + 1, last) for file, (_, last) in self._dirty.items() if last > target}
        return files

    def _write_inline(self, writes: list[Write], size: int, began: float) -> None:
        try:
            for write in writes:
                self._files.write(write)
        except OSError as error:
            self._break(error)
            return
        self.written = self._submitted
        self._pace(self._clock.seconds() - began, size)

    def _pace(self, spent: float, size: int) -> None:
        """A write was made: whether the next ones are made inline. Twice as long in the lane for each slow one: a
        processor that was taken away for a moment costs little, a kernel that makes writers wait is left alone.
        """
        self.appends.add(spent)
        if spent > max(SLOW_SECONDS_LEAST, SLOW_SECONDS_A_MIB * size / (1024 * 1024)):
            self._lane_until = self._clock.seconds() + self.lane_seconds
            self.lane_seconds = min(2 * self.lane_seconds, LANE_SECONDS)
        elif self.lane_seconds > LANE_SECONDS_LEAST and self._clock.seconds() >= self._lane_until:
            self.lane_seconds = LANE_SECONDS_LEAST

    def _start_write(self) -> None:
        if self._writing or not self._queue or self._broken:
            return
        queue, self._queue, target = self._queue, [], self._submitted
        size = self.backlog_bytes
        self._writing = True
        removed = [write.file for write in queue if isinstance(write, Remove)]
        self._run(
            self._lanes.write, lambda: self._write_all(queue), lambda: self._wrote(target, size, removed)
        )

    def _write_all(self, queue: list[Write]) -> None:
        began = self._clock.seconds()
        for write in queue:
            self._files.write(write)
        self._lane_spent = self._clock.seconds() - began

    def _wrote(self, target: int, size: int, removed: list[str]) -> None:
        self._writing = False
        for file in removed:  # a reader may have opened it again meanwhile
            self._files.forget(file)
        self.backlog_bytes -= size
        self._pace(self._lane_spent, size)
        self.written = target
        self._start_write()
        self._start_sync()

    def _start_sync(self) -> None:
        if self._syncing or self._broken or self.synced >= min(self._sync_wanted, self.written):
            return
        target = self.written
        files = self._take_dirty(target)
        self._syncing = True
        self._sync_began = self._clock.seconds()
        if not self._begin_in_kernel(files, target):
            self._run(self._lanes.sync, lambda: self._files.sync(files), lambda: self._did_sync(target))

    def _did_sync(self, target: int) -> None:
        self._syncing = False
        self.syncs.add(self._clock.seconds() - self._sync_began)
        self.synced = target
        self._start_sync()

    def _begin_in_kernel(self, files: list[str], target: int) -> bool:
        kernel = self._lanes.kernel
        handles = self._files.syncable(files) if kernel is not None and not self._writing else None
        if kernel is None or not handles:
            return False
        return kernel.sync(handles, lambda error: self._kernel_did(files, target, error))

    def _kernel_did(self, files: list[str], target: int, error: OSError | None) -> None:
        if self._broken:
            return
        if error is not None:
            try:
                self._files.suspect(files)
            finally:  # a disk that nothing more can be written to takes no new name either
                self._break(error)
            return
        self._did_sync(target)
        self._progressed()

    def _run(self, lane: Executor, job: Callable[[], None], then: Callable[[], None]) -> None:
        future = self._loop.run_in_executor(lane, job)
        future.add_done_callback(lambda done: self._finish(done, then))

    def _finish(self, done: asyncio.Future[None], then: Callable[[], None]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, Exception):
            self._break(
                error
            )  # whatever it is: a lane that stays still and says nothing would hang all answers
            return
        if error is not None:
            raise error
        if self._broken:
            return
        then()
        self._progressed()

    def _break(self, error: Exception) -> None:
        """After a failed write or fsync nobody knows what is on the disk: only a restart can find out."""
        if not self._broken:
            self._broken = True
            self._failed(error)
