"""The disk as the services see it, and the real one. Its simulated twin is in ``tests/sim``.

The interface is as narrow as the logs need: append, read, sync, rename. One layer only; loops for short writes and
reads live in the caller, so the same loops run on the simulated disk, which is short as often as it likes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Protocol

from tidemill_host.machine import Buffer


class File(Protocol):
    """An open file. Raises ``OSError`` like the operating system does."""

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write at the end; may be short. Returns the number of bytes taken."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Up to ``size`` bytes, fewer at the end of the file (or when the disk feels like it)."""
        ...

    def read_now(self, position: int, size: int) -> bytes | bytearray | None:
        """As ``read``, but only what the page cache has; ``None`` when the disk would have to turn."""
        ...

    def sync(self) -> None: ...

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A folder tree. Names are relative, with ``/``. Listings are sorted."""

    def open(self, name: str, *, create: bool = False) -> File: ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def list(self, folder: str) -> list[str]:
        """Names of the files in a folder, sorted; a folder that is missing is empty."""
        ...

    def make_folder(self, folder: str) -> None: ...

    def sync_folder(self, folder: str) -> None:
        """Names made, renamed or removed in ``folder`` (``""`` is the root) survive a power cut after this."""
        ...

    def space(self) -> tuple[int, int]:
        """Free and total bytes."""
        ...


def size_of(disk: Disk, name: str) -> int | None:
    """``None`` when there is no such file."""
    try:
        handle = disk.open(name)
    except FileNotFoundError:
        return None
    try:
        return handle.size()
    finally:
        handle.close()


class RealFile:
    """A file of the operating system. Reads by position, appends at the end."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def append(self, buffers: Sequence[Buffer]) -> int:
        return os.writev(self._fd, buffers)

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._fd, size, position)

    def read_now(self, position: int, size: int) -> bytes | bytearray | None:
        data = bytearray(size)
        try:
            count = os.preadv(self._fd, [data], position, os.RWF_NOWAIT)
        except OSError as error:
            # EAGAIN: not in the page cache. EOPNOTSUPP: a file system without the flag, as good as cold.
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
                return None
            raise
        return data if count == size else None

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def fileno(self) -> int:
        """The operating system's number of it."""
        return self._fd

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        os.close(self._fd)


class RealDisk:
    """A folder of the operating system."""

    def __init__(self, root: str) -> None:
        self._root = root
        os.makedirs(root, exist_ok=True)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def open(self, name: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(os.open(self._path(name), flags, 0o640))

    def rename(self, old: str, new: str) -> None:
        os.rename(self._path(old), self._path(new))

    def remove(self, name: str) -> None:
        os.unlink(self._path(name))

    def list(self, folder: str) -> list[str]:
        try:
            with os.scandir(self._path(folder)) as entries:
                return sorted(entry.name for entry in entries if entry.is_file())
        except FileNotFoundError:
            return []

    def make_folder(self, folder: str) -> None:
        os.makedirs(self._path(folder), exist_ok=True)

    def sync_folder(self, folder: str) -> None:
        fd = os.open(self._path(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def space(self) -> tuple[int, int]:
        status = os.statvfs(self._root)
        return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
