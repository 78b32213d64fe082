"""Open files, a bounded number of them, and the three things that are done with them: append, replace, read.

Everything here blocks. It is called inline for small writes and hot reads, and in executor lanes otherwise; one file is
never appended to by two lanes at once (``persist.py`` sees to that).
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress

from tidemill_host.disk import Disk, File
from tidemill_host.machine import Append, Buffer, Read, Remove, Replace, Slice, Unread, Write

OPEN_FILES_MAX = 256
BUFFERS_PER_CALL = 512  # IOV_MAX is 1024
TEMPORARY = ".tmp"
SUSPECT = ".suspect"


class Files:
    """The files of one service below its data folder."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._written: OrderedDict[str, File] = (
            OrderedDict()
        )  # handles of the write lane (or of inline writes)
        self._read: OrderedDict[str, File] = OrderedDict()  # handles of the loop
        self._folders: dict[str, None] = {}  # known to the write lane
        self._named: dict[str, None] = {}  # files whose names the sync lane has made durable

    def write(self, write: Write) -> None:
        """Carry out one write, completely, or raise ``OSError``."""
        match write:
            case Append(file, buffers, size):
                self._append(file, buffers, size)
            case Replace(file, content):
                self._replace(file, content() if callable(content) else content)
            case Remove(file):
                self._remove(file)

    def sync(self, files: Iterable[str]) -> None:
        """Make what was appended to them survive a power cut, and their names."""
        for name in files:
            # A handle of its own: the write lane may close and reopen its one meanwhile.
            try:
                handle = self._disk.open(name)
            except FileNotFoundError:
                continue  # removed meanwhile: it need not survive anything
            try:
                handle.sync()
            except OSError:
                self.suspect([name])
                raise
            finally:
                handle.close()
            if name not in self._named:
                self._disk.sync_folder(name.rpartition("/")[0])
                self._named[name] = None

    def syncable(self, files: Sequence[str]) -> list[File] | None:
        """Handles to sync them by, when their names are durable already; only while the write lane rests, for it may
        close a handle at any time.
        """
        handles = [self._written.get(name) for name in files if name in self._named]
        found = [handle for handle in handles if handle is not None]
        return found if len(found) == len(files) else None

    def suspect(self, files: Iterable[str]) -> None:
        """A sync of them failed. The cache shows bytes that may never reach the disk, and calls them clean: the next
        sync would say that all is well. The next start writes the file anew (``storage.py``). The new name need not be
        durable: a power cut that takes it takes the page cache, too.
        """
        for name in files:
            self._disk.rename(name, name + SUSPECT)

    def read(self, piece: Slice) -> bytes:
        """All bytes of the slice; shorter only at the end of the file."""
        handle = self._disk.open(piece.file)
        try:
            parts: list[bytes] = []
            position, rest = piece.position, piece.size
            while rest:
                part = handle.read(position, rest)
                if not part:
                    break
                parts.append(part)
                position += len(part)
                rest -= len(part)
            return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            handle.close()

    def answer(self, read: Read) -> Buffer | Unread:
        """What a machine's read asks for. The disk is asked twice: one that was reset, or is far away, answers then."""
        return read.slice() if callable(read.slice) else self._read_twice(read.slice)

    def gather(self, pieces: Sequence[Slice]) -> list[bytes] | Unread:
        """All slices of a send, or the first one that the disk does not give, also when it is asked twice."""
        found: list[bytes] = []
        for piece in pieces:
            data = self._read_twice(piece)
            if isinstance(data, Unread):
                return data
            found.append(data)
        return found

    def take(self, piece: Slice) -> bytes:
        """The bytes, asked for twice, for who can do no more than say which ones the disk refuses."""
        found = self._read_twice(piece)
        if isinstance(found, Unread):
            raise OSError(errno.EIO, str(found))
        return found

    def _read_twice(self, piece: Slice) -> bytes | Unread:
        with suppress(OSError):
            return self.read(piece)
        try:
            return self.read(piece)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return Unread(piece, error.strerror or str(error))

    def read_now(self, piece: Slice) -> bytes | bytearray | None:
        """The bytes if the page cache has all of them. What is wrong with the disk is heard by the read lane."""
        try:
            file = self._read.get(piece.file)
            if file is None:
                file = self._keep(self._read, piece.file, self._disk.open(piece.file))
            return file.read_now(piece.position, piece.size)
        except OSError:
            return None

    def gather_now(self, pieces: Sequence[Slice]) -> list[bytes | bytearray] | None:
        """All slices of a send, if the page cache has all of them."""
        found: list[bytes | bytearray] = []
        for piece in pieces:
            data = self.read_now(piece)
            if data is None:
                return None
            found.append(data)
        return found

    def forget(self, name: str) -> None:
        """Close the loop's handle of a file that is about to be removed: an open file keeps its space."""
        file = self._read.pop(name, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close all handles; nothing is on its way any more."""
        for handles in (self._written, self._read):
            while handles:
                handles.popitem()[1].close()

    def _append(self, name: str, buffers: Sequence[Buffer], size: int) -> None:
        file = self._writer(name)
        done = 0
        queue = list(buffers)
        start = 0
        while start < len(queue):
            count = file.append(queue[start : start + BUFFERS_PER_CALL])
            done += count
            while start < len(queue) and count >= len(queue[start]):
                count -= len(queue[start])
                start += 1
            if count:
                queue[start] = memoryview(queue[start])[count:]
        assert done == size, (name, done, size)

    def _replace(self, name: str, content: Buffer) -> None:
        folder = name.rpartition("/")[0]
        temporary = name + TEMPORARY
        self._make_folder(folder)
        file = self._disk.open(temporary, create=True)
        try:
            file.truncate(0)
            rest = memoryview(content)
            while rest:
                rest = rest[file.append([rest]) :]
            file.sync()
        finally:
            file.close()
        self._disk.rename(temporary, name)
        self._disk.sync_folder(folder)

    def unname(self, name: str) -> None:
        """It is removed: who comes under the same name is not known by it."""
        self._named.pop(name, None)

    def _remove(self, name: str) -> None:
        self.unname(name)
        file = self._written.pop(name, None)
        if file is not None:
            file.close()
        try:
            self._disk.remove(name)
        except FileNotFoundError:
            return  # a crash came between the removal and whatever would have remembered it
        # In this order also after a power cut: a log must never miss a segment in its middle.
        self._disk.sync_folder(name.rpartition("/")[0])

    def _writer(self, name: str) -> File:
        file = self._written.get(name)
        if file is None:
            self._make_folder(name.rpartition("/")[0])
            file = self._keep(self._written, name, self._disk.open(name, create=True))
        return file

    def _keep(self, handles: OrderedDict[str, File], name: str, file: File) -> File:
        handles[name] = file
        if len(handles) > OPEN_FILES_MAX:
            handles.popitem(last=False)[1].close()
        return file

    def _make_folder(self, folder: str) -> None:
        if folder not in self._folders:
            self._disk.make_folder(folder)
            self._disk.sync_folder("")
            self._folders[folder] = None
