"""The bytes of a spool of acks on the disk: one process at a time, appended to or replaced as a whole.

The file is locked by whoever has it open. A rewrite goes to ``<path>.new``, which is locked, synced, then renamed: so
there is always one whole file under the name, and whoever opens it meets a lock. One who opened the old file before the
rename, and got its lock after, sees by the inode that it is not the file any more, and opens again.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Protocol

from tidemill.errors import SpoolUnusable


class AckFile(Protocol):
    """What a spool of acks needs of a file. Blocking; after an ``OSError`` nothing is known but after ``replace``."""

    def read(self) -> bytes:
        """All of it."""
        ...

    def append(self, data: bytes, *, sync: bool) -> None:
        """All of ``data`` at the end; on the disk, with ``sync``."""
        ...

    def replace(self, data: bytes) -> None:
        """``data`` and nothing else, on the disk; or the file as it was."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class LockedFile:
    """``AckFile`` on a real disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        _make_folder(path.parent)
        while True:
            self._file = _locked(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            try:
                found = path.stat()
            except FileNotFoundError:
                found = None
            if found is not None and os.path.samestat(found, os.fstat(self._file)):
                return
            os.close(self._file)

    def read(self) -> bytes:
        """All of it."""
        return self._path.read_bytes()

    def append(self, data: bytes, *, sync: bool) -> None:
        """All of ``data`` at the end; on the disk, with ``sync``."""
        _write(self._file, data)
        if sync:
            os.fsync(self._file)

    def replace(self, data: bytes) -> None:
        """``data`` and nothing else, on the disk; or the file as it was."""
        beside = self._path.with_name(f"{self._path.name}.new")
        fresh = _locked(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        try:
            _write(fresh, data)
            os.fsync(fresh)
            beside.replace(self._path)
        except BaseException:
            os.close(fresh)
            raise
        os.close(self._file)
        self._file = fresh
        _sync_folder(self._path.parent)

    def close(self) -> None:
        """Let go of it."""
        os.close(self._file)


def _make_folder(folder: Path) -> None:
    """It, and what is above it; and their names on the disk."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _locked(path: Path, flags: int) -> int:
    file = os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        busy = f"the spool {path} is in use by another process: give each its own"
        raise SpoolUnusable(busy) from None
    except BaseException:
        os.close(file)
        raise
    return file


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
