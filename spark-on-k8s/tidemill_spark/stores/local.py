"""A lake in a folder of this machine, or of a disk that several machines have mounted.

An object is written under another name and synced before it is there; its folder is synced after. A hard link is what
exactly one of several can make of a name.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from tidemill_spark.arrow import pa
from tidemill_spark.errors import StoreFailed
from tidemill_spark.stores import Entry

PART = "."
"""How the name of what is being written begins."""


class LocalStore:
    """See the module."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.abspath(folder)
        self.uri = self._folder

    def create(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        part, _ = self._put(path, lambda sink: sink.write(data))
        try:
            os.link(part, path)
        except FileExistsError:
            return False
        except OSError as error:
            raise StoreFailed(f"{path} cannot be made: {error.strerror}") from error
        finally:
            os.unlink(part)
        _sync_folder(os.path.dirname(path))
        return True

    def write(self, name: str, data: Any) -> None:
        self.make(name, lambda sink: sink.write(data))

    def make(self, name: str, fill: Callable[[Any], None]) -> int:
        path = self._path(name)
        part, size = self._put(path, fill)
        os.replace(part, path)
        _sync_folder(os.path.dirname(path))
        return size

    def read(self, name: str) -> bytes:
        with open(self._path(name), "rb") as file:
            return file.read()

    def fetch(self, name: str, start: int, size: int) -> bytes:
        with open(self._path(name), "rb", buffering=0) as file:
            file.seek(start)
            return file.read(size)

    def open(self, name: str, size: int) -> Any:
        return pa.memory_map(self._path(name))

    def list(self, folder: str) -> Iterator[Entry]:
        waiting = [self._path(folder)]
        while waiting:
            try:
                found = list(os.scandir(waiting.pop()))
            except FileNotFoundError:
                continue
            for one in found:
                if one.is_dir(follow_symlinks=False):
                    waiting.append(one.path)
                elif not one.name.startswith(PART):
                    with suppress(FileNotFoundError):  # it was there a moment ago
                        said = one.stat()
                        name = os.path.relpath(one.path, self._folder)
                        yield Entry(name, said.st_size, int(said.st_mtime * 1000))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _put(self, path: str, fill: Callable[[Any], None]) -> tuple[str, int]:
        """What is filled in, under another name, on the disk; and its size. Arrow writes into the file itself."""
        folder = os.path.dirname(path)
        part = os.path.join(folder, f"{PART}{secrets.token_hex(8)}.part")
        try:
            os.makedirs(folder, exist_ok=True)
            with pa.OSFile(part, "wb") as sink:
                fill(sink)
                size = int(sink.tell())
            with open(part, "rb") as file:
                os.fsync(file.fileno())
        except OSError as error:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(part)
            raise StoreFailed(f"{path} cannot be written: {error.strerror}") from error
        return part, size


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
