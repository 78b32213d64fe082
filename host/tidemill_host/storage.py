"""A data folder before the loop runs: whole reads, synced writes, and what is set aside. Blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemill_host.disk import Disk
from tidemill_host.files import SUSPECT, TEMPORARY, Files
from tidemill_host.machine import Append, Slice, Write

ASIDE = "aside"
COPY_BYTES = 1024 * 1024


class Storage:
    """One service's data folder on a disk, real or simulated."""

    def __init__(self, disk: Disk, folders: Sequence[str]) -> None:
        self._disk = disk
        self._files = Files(disk)
        for folder in folders:
            disk.make_folder(folder)
            # What a crash left unfinished goes first: it may be of a suspect that was being written anew.
            for name in disk.list(folder):
                if name.endswith(TEMPORARY):
                    disk.remove(f"{folder}/{name}")
            for name in disk.list(folder):
                if name.endswith(SUSPECT):
                    self._write_anew(f"{folder}/{name}")
        disk.sync_folder("")

    def names(self, folder: str) -> list[str]:
        return self._disk.list(folder)

    def size(self, file: str) -> int | None:
        try:
            handle = self._disk.open(file)
        except FileNotFoundError:
            return None
        try:
            return handle.size()
        finally:
            handle.close()

    def reader(self, file: str) -> Callable[[int, int], bytes]:
        return lambda position, size: self._files.read(Slice(file, position, size))

    def set_aside(self, file: str, position: int) -> None:
        """The bytes are copied to ``aside/`` and synced before they are cut: a person may want to look at them."""
        self._disk.make_folder(ASIDE)
        handle = self._disk.open(file)
        try:
            size = handle.size()
            if position < size:
                self._copy(file, position, f"{ASIDE}/{file.replace('/', '-')}.{position}")
                handle.truncate(position)
        finally:
            handle.close()
        if position < size:
            self.sync(file)
        if position == 0:
            folder = file.rpartition("/")[0]
            self._files.unname(file)
            self._disk.remove(file)
            self._disk.sync_folder(folder)

    def shorten(self, file: str, size: int) -> None:
        """Cut a file whose end follows from another one: no copy is kept."""
        handle = self._disk.open(file)
        try:
            handle.truncate(size)
        finally:
            handle.close()

    def _write_anew(self, suspect: str) -> None:
        """A file whose sync failed: what can be read of it is synced as another, and takes its place."""
        file = suspect.removesuffix(SUSPECT)
        folder = file.rpartition("/")[0]
        self._copy(suspect, 0, file + TEMPORARY)
        self._disk.rename(file + TEMPORARY, file)
        self._disk.sync_folder(
            folder
        )  # before the removal: of two changes a power cut may keep the second one
        self._disk.remove(suspect)
        self._disk.sync_folder(folder)

    def _copy(self, file: str, position: int, target: str) -> None:
        size = self.size(file) or 0
        copy = self._disk.open(target, create=True)
        try:
            copy.truncate(0)
            while position < size:
                rest = memoryview(self._files.read(Slice(file, position, min(COPY_BYTES, size - position))))
                position += len(rest)
                while rest:
                    rest = rest[copy.append([rest]) :]
            copy.sync()
        finally:
            copy.close()
        self._disk.sync_folder(target.rpartition("/")[0])

    def write_now(self, writes: Sequence[Write]) -> None:
        for write in writes:
            self._files.write(write)
        self._files.sync([write.file for write in writes if isinstance(write, Append)])

    def sync(self, file: str) -> None:
        self._files.sync([file])

    def close(self) -> None:
        self._files.close()
