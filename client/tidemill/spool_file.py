"""The files of a spool on the disk: one process at a time, written at any place. Blocking.

A file is locked by whoever has it open, and its name is durable before anything lies in it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from glob import escape
from pathlib import Path
from typing import Protocol

from tidemill.encode import Bytes
from tidemill.errors import SpoolUnusable


class SpoolFile(Protocol):
    """What a spool needs of a file."""

    def size(self) -> int: ...

    def read(self, position: int, size: int) -> bytes:
        """As much of that as is there."""
        ...

    def write(self, position: int, data: Bytes) -> None:
        """All of ``data``, there."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None:
        """Let go of it."""
        ...


class Shelf(Protocol):
    """Where the files of spools are."""

    def open(self, path: Path) -> SpoolFile:
        """It, made if it is not there; ``SpoolUnusable`` while somebody else has it."""
        ...

    def names(self, path: Path, behind: str) -> Sequence[str]:
        """The names that begin with that of ``path`` and ``behind``, without this beginning."""
        ...

    def exists(self, path: Path) -> bool: ...

    def append(self, path: Path, data: bytes) -> None:
        """Durably, to a file that nobody has open."""
        ...


class LockedSpoolFile:
    """``SpoolFile`` on a real disk."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _sync_folder(path.parent)
        except BlockingIOError:
            os.close(self._file)
            busy = f"the spool {path} is in use by another process: give each its own"
            raise SpoolUnusable(busy) from None
        except BaseException:
            os.close(self._file)
            raise

    def size(self) -> int:
        return os.fstat(self._file).st_size

    def read(self, position: int, size: int) -> bytes:
        """As much of that as is there."""
        return os.pread(self._file, size, position)

    def write(self, position: int, data: Bytes) -> None:
        """All of ``data``, there."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self._file, view, position)
            view, position = view[written:], position + written

    def truncate(self, size: int) -> None:
        os.ftruncate(self._file, size)

    def sync(self) -> None:
        os.fsync(self._file)

    def close(self) -> None:
        """Let go of it."""
        os.close(self._file)


class Folder:
    """``Shelf`` on a real disk."""

    def open(self, path: Path) -> SpoolFile:
        """It, made if it is not there."""
        path.parent.mkdir(parents=True, exist_ok=True)
        return LockedSpoolFile(path)

    def names(self, path: Path, behind: str) -> Sequence[str]:
        """The names that begin so, without this beginning."""
        start = path.name + behind
        return sorted(one.name[len(start) :] for one in path.parent.glob(f"{escape(start)}*"))

    def exists(self, path: Path) -> bool:
        return path.exists()

    def append(self, path: Path, data: bytes) -> None:
        """Durably, to a file that nobody has open."""
        with path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
