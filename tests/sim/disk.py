"""The simulated disk: what a process wrote, and what is left of it after a kill or a power cut.

Fault model. An inode has its cached bytes, its durable bytes and the set of dirty pages between them. Names too exist
twice: as the processes see them, and as the platter knows them, with the list of changes in between.

- Kill: the page cache survives, so everything that was written stays.
- Power cut: of the dirty pages of each file none, all, a prefix, or each with p = .5 reach the platter; a kept page may
  be torn, any subset of its 512-byte sectors; what lies between kept pages reads as zeros; the file ends where the
  last kept byte does. Of the name changes a prefix survives (a journal), or any subset (POSIX), as the weather says.
- ``File.sync`` makes bytes durable and does NOT make a new name durable: that is ``sync_folder``.
- A failed sync (fsyncgate) raises EIO once; about half of the dirty pages are lost though the cache still shows them,
  and the next sync says all is well. The only right answer is to stop and recover.
- Reads and writes may be short, fail with EIO at the nth operation, or find the disk full after a part was written.
- A place may be refused for good: each read that touches it raises EIO.
- Bit rot flips one bit of durable, clean bytes. A slow disk multiplies every charge of virtual time.
- Fencing: every handle belongs to one mount; after a kill or a cut the old ones raise EBADF, for the dead process's
  ``finally`` blocks may still run. A crash inside an operation ends the life, then raises ``SimCrash``.
"""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence

from sim.life import SimCrash
from sim.platter import PAGE_SIZE, Inode, Names, folder_of
from sim.weather import CALM, Weather
from tidemill_host.machine import Buffer

CAPACITY = 1 << 30
AHEAD_BYTES = 4096
APPEND_S, READ_S, COLD_READ_S, SYNC_S, NAME_S = 4e-6, 2e-6, 300e-6, 250e-6, 15e-6
BYTES_PER_SECOND_CACHED, BYTES_PER_SECOND_PLATTER = 4e9, 500e6


def no_charge(seconds: float) -> None:
    """For use without a loop."""


class SimDisk:
    """The platter and the page cache of one node. Processes use it through a ``Mount``; faults act on it here."""

    def __init__(
        self, rng: random.Random, weather: Weather = CALM, charge: Callable[[float], None] = no_charge
    ) -> None:
        self.rng = rng
        self.weather = weather
        self.names = Names()
        self.epoch = 0
        self.operations = 0
        self.probes: Counter[str] = Counter()
        self.capacity = CAPACITY
        self.slowness = 1.0
        self.slow_s = 0.0
        """What operations took while it was slow; a piece of work that began then goes on at that pace to its end."""
        self.crash_at = -1
        """The operation, by number, inside of which the process (or the power) dies."""
        self.on_crash: Callable[[], None] = self.power_cut
        self.fail_at: dict[str, int] = {}
        """For ``append``, ``read``, ``sync``: fail the first such operation whose number is at least this."""
        self.may_rot: Callable[[], list[Inode]] = self._clean
        """Files that bit rot may strike."""
        self.rotten: list[tuple[Inode, int, int]] = []
        """File, position and bit of what rotted and was not put right."""
        self.refused: list[tuple[Inode, range]] = []
        """File and positions that cannot be read: each read that touches one raises EIO."""
        self.may_go_bad: Callable[[], list[Inode]] = self._clean
        """Files in which such a place may appear."""
        self._charge = charge

    def mount(self) -> Mount:
        return Mount(self)

    # -- faults ------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """The process died: its handles are void, the page cache stays."""
        self.epoch += 1
        self.crash_at = -1

    def power_cut(self) -> None:
        """The power went: see the module."""
        self.kill()
        for inode in self.names.all_inodes():
            if inode.settle(self.rng, self.weather.torn_pages):
                self.probes["torn_pages"] += 1
        if self.names.settle(self.rng, self.weather.ordered_names):
            self.probes["lost_names"] += 1

    def rot(self) -> bool:
        """Flip one bit of a clean durable byte; False when there is none."""
        files = self.may_rot()
        if not files:
            return False
        inode = self.rng.choice(files)
        self.rotten.append((inode, self.rng.randrange(len(inode.durable)), 1 << self.rng.randrange(8)))
        _flip(*self.rotten[-1])
        return True

    def refuse(self, name: str, position: int, size: int = 1) -> None:
        """A bad place in the durable part of a file: the bytes are not given any more."""
        self.refused.append((self.names.cached[name], range(position, position + size)))

    def go_bad(self, size: int) -> bool:
        """A bad place of so many bytes: where something lies, or where the last file will grow, which takes bytes and
        does not give them back. False when no file is there yet.
        """
        files = self.may_go_bad()
        if not files:
            return False
        ahead = self.rng.random() < 0.5
        inode = files[-1] if ahead else self.rng.choice(files)
        there = len(inode.cached)
        position = there + self.rng.randrange(AHEAD_BYTES) if ahead else self.rng.randrange(max(1, there))
        self.refused.append((inode, range(position, position + size)))
        return True

    def check_read(self, inode: Inode, position: int, size: int) -> None:
        """Raise what the operating system does when it cannot read there."""
        for bad, places in self.refused:
            if bad is inode and position < places.stop and places.start < position + size:
                self.probes["refused_read"] += 1
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    def mend_rot(self) -> None:
        """Put right what rotted, as from a backup."""
        for place in self.rotten:
            _flip(*place)
        self.rotten.clear()

    def _clean(self) -> list[Inode]:
        return [inode for inode in self.names.all_inodes() if inode.durable and not inode.dirty]

    def used(self) -> int:
        return sum(len(inode.cached) for inode in self.names.cached.values())

    # -- what a mount asks -------------------------------------------------------------------------------------

    def operate(self, kind: str, seconds: float) -> None:
        """Count one operation, charge for it, and die or fail inside of it when a fault says so."""
        self.operations += 1
        if self.operations == self.crash_at:
            self.crash()
        self._charge(seconds * self.slowness)
        if self.slowness > 1.0:
            self.slow_s += seconds * self.slowness
        at = self.fail_at.get(kind)
        if at is not None and self.operations >= at:
            del self.fail_at[kind]
            self.probes[f"{kind}_error"] += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def crash(self) -> None:
        self.crash_at = -1
        self.probes["crash_at_operation"] += 1
        self.on_crash()
        raise SimCrash

    def short(self, size: int) -> int:
        if self.weather.short_io and size > 1 and self.rng.random() < self.weather.short_io:
            self.probes["short_io"] += 1
            return self.rng.randrange(1, size)
        return size

    def cold(self) -> bool:
        return self.weather.cold_reads > 0 and self.rng.random() < self.weather.cold_reads


def _flip(inode: Inode, position: int, bit: int) -> None:
    for side in (inode.durable, inode.cached):
        if position < len(side):
            side[position] ^= bit


class Mount:
    """``tidemill_host.disk.Disk`` for one life."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.epoch = disk.epoch

    def open(self, name: str, *, create: bool = False) -> SimFile:
        names = self._operate("open")
        inode = names.cached.get(name)
        if inode is None:
            if not create or not names.has_folder(folder_of(name)):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            inode = names.link(name)
        return SimFile(self, inode)

    def rename(self, old: str, new: str) -> None:
        names = self._operate("rename")
        if old not in names.cached or not names.has_folder(folder_of(new)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        names.rename(old, new)

    def remove(self, name: str) -> None:
        names = self._operate("remove")
        if name not in names.cached:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        names.unlink(name)

    def list(self, folder: str) -> list[str]:
        names = self._operate("list")
        return sorted(name.rpartition("/")[2] for name in names.cached if folder_of(name) == folder)

    def make_folder(self, folder: str) -> None:
        self._operate("make_folder").make_folder(folder)

    def sync_folder(self, folder: str) -> None:
        self._operate("sync_folder", SYNC_S).sync(folder)

    def space(self) -> tuple[int, int]:
        self.fence()
        return max(0, self.disk.capacity - self.disk.used()), self.disk.capacity

    def fence(self) -> None:
        if self.epoch != self.disk.epoch:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def _operate(self, kind: str, seconds: float = NAME_S) -> Names:
        self.fence()
        self.disk.operate(kind, seconds)
        return self.disk.names


class SimFile:
    """``tidemill_host.disk.File`` for one life."""

    def __init__(self, mount: Mount, inode: Inode) -> None:
        self._mount = mount
        self._disk = mount.disk
        self._inode = inode
        self._open = True

    def append(self, buffers: Sequence[Buffer]) -> int:
        self._fence()
        data = b"".join(buffers)
        disk = self._disk
        if disk.operations + 1 == disk.crash_at and data:
            # Dying inside of a write leaves any part of it in the page cache.
            self._inode.append(data[: disk.rng.randrange(len(data) + 1)])
        disk.operate("append", APPEND_S + len(data) / BYTES_PER_SECOND_CACHED)
        size = disk.short(len(data))
        free = disk.capacity - disk.used() if disk.capacity != CAPACITY else size
        if free < size:
            disk.probes["disk_full"] += 1
            if free <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            size = free
        self._inode.append(data if size == len(data) else data[:size])
        return size

    def write(self, position: int, data: bytes) -> None:
        """All of it, as a client writes. Dying inside of it leaves any part."""
        self._fence()
        disk = self._disk
        if disk.operations + 1 == disk.crash_at:
            self._inode.write(position, data[: disk.rng.randrange(len(data) + 1)])
        disk.operate("append", APPEND_S + len(data) / BYTES_PER_SECOND_CACHED)
        self._inode.write(position, data)

    def read(self, position: int, size: int) -> bytes:
        self._fence()
        self._disk.operate(
            "read", (COLD_READ_S if self._disk.cold() else READ_S) + size / BYTES_PER_SECOND_CACHED
        )
        self._disk.check_read(self._inode, position, size)
        there = max(0, min(size, len(self._inode.cached) - position))
        return bytes(self._inode.cached[position : position + self._disk.short(there)])

    def read_now(self, position: int, size: int) -> bytes | None:
        self._fence()
        if self._disk.cold():
            self._disk.probes["cold_reads"] += 1
            return None
        data = self.read(position, size)
        return data if len(data) == size else None

    def held(self) -> SimFile:
        """Another handle of the same file: closing this one does not end that one."""
        return SimFile(self._mount, self._inode)

    def sync(self) -> None:
        self._fence()
        try:
            self._disk.operate("sync", SYNC_S + len(self._inode.dirty) * PAGE_SIZE / BYTES_PER_SECOND_PLATTER)
        except OSError:
            self._inode.forget(self._disk.rng)
            raise
        self._inode.sync()

    def truncate(self, size: int) -> None:
        self._fence()
        self._disk.operate("truncate", NAME_S)
        self._inode.truncate(size)

    def size(self) -> int:
        self._fence()
        return len(self._inode.cached)

    def close(self) -> None:
        self._open = False

    def _fence(self) -> None:
        self._mount.fence()
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
