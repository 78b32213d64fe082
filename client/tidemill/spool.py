"""The spool file: batches that no broker could be given yet. Blocking; the async client calls it in an executor.

     0  magic "TMSPOOL1"                       8 bytes
     8  position of the first record not sent  u64
    16  crc32c of 0..16                        u32, and 4 zero bytes
    24  records: length u32, crc32c u32, batch

Appended and fsynced before a receipt says *spooled*. A crash leaves a torn record at the end, which is cut when the
file is opened, and may leave the position one frame behind, which the broker's memory of last batches makes
harmless. When everything
was sent the file is cut to its header. One process at a time: the file is locked.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path

from crc32c import crc32c

from tidemill.encode import Bytes
from tidemill.errors import CorruptBatch, Refused
from tidemill.spool_file import Folder, Shelf
from tidemill_wire.batch import read_header
from tidemill_wire.limits import BATCH_BYTES_MAX

MAGIC = b"TMSPOOL1"
POSITION = struct.Struct("<8sQ")
HEADER = struct.Struct("<8sQI4x")
RECORD = struct.Struct("<II")

ASIDE = (".refused", ".doubted")
"""What is behind the spool's name in those of what was set aside: not stored, and in doubt."""

assert HEADER.size == 24


class Spool:
    """A spool file that is open and locked."""

    def __init__(self, path: str | os.PathLike[str], bytes_max: int, shelf: Shelf | None = None) -> None:
        self._path = Path(path)
        self._bytes_max = bytes_max
        self._done = self._end = HEADER.size
        self._shelf = shelf or Folder()
        self._file = self._shelf.open(self._path)
        try:
            self._recover()
        except BaseException:
            self._file.close()
            raise

    @property
    def empty(self) -> bool:
        """Everything was sent."""
        return bool(self._done == self._end)

    @property
    def end(self) -> int:
        """The position behind all that was appended."""
        return self._end

    def append(self, batches: Sequence[Bytes]) -> bool:
        """Keep them, durably; ``False`` when there is no room."""
        records = [part for batch in batches for part in (RECORD.pack(len(batch), crc32c(batch)), batch)]
        size = sum(map(len, records))
        if self._end + size > self._bytes_max:
            return False
        try:
            self._file.write(self._end, b"".join(records))
            self._file.sync()
        except OSError:
            self._file.truncate(self._end)
            raise
        self._end += size
        return True

    def read(self, size: int) -> tuple[list[bytes], int]:
        """The next batches that were not sent, about ``size`` bytes of them, and the position behind them."""
        batches: list[bytes] = []
        at = self._done
        while at < self._end and at - self._done < size:
            batch = self._record(at, self._end)
            if batch is None:
                raise CorruptBatch(
                    f"the spool {self._path} cannot be read at {at}: move it away, and start again"
                )
            batches.append(batch)
            at += RECORD.size + len(batch)
        return batches, at

    def sent(self, position: int) -> None:
        """All before ``position`` was sent."""
        self._done = position
        if self.empty:
            # The position first: between the two, a crash leaves a file with nothing to send.
            self._note()
            self._file.truncate(HEADER.size)
            self._done = self._end = HEADER.size
        self._note()

    def set_aside(self, batch: Bytes, *, doubted: bool = False) -> None:
        """A broker refused it for good: keep it for a person to look at, beside others that are not stored, or that may
        be.
        """
        kind = ASIDE[doubted]
        self._shelf.append(Path(f"{self._path}{kind}"), RECORD.pack(len(batch), crc32c(batch)) + batch)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _note(self) -> None:
        head = POSITION.pack(MAGIC, self._done)
        self._file.write(0, HEADER.pack(MAGIC, self._done, crc32c(head)))
        self._file.sync()

    def _recover(self) -> None:
        size = self._file.size()
        head = self._file.read(0, HEADER.size)
        self._done = self._end = HEADER.size
        if len(head) == HEADER.size:
            magic, done, crc = HEADER.unpack(head)
            if magic != MAGIC:
                raise Refused("limit_exceeded", f"{self._path} is no spool file; give another path")
            # A torn position: send from the start, rather twice than never.
            self._done = done if crc == crc32c(head[: POSITION.size]) else HEADER.size
        elif size and not MAGIC.startswith(head[: len(MAGIC)]):
            raise Refused("limit_exceeded", f"{self._path} is no spool file; give another path")
        at = HEADER.size
        while (batch := self._record(at, size)) is not None:
            at += RECORD.size + len(batch)
        self._end = at
        self._done = min(max(self._done, HEADER.size), at)
        self._file.truncate(max(at, HEADER.size))
        self._note()

    def _record(self, at: int, end: int) -> bytes | None:
        head = self._file.read(at, RECORD.size)
        if len(head) < RECORD.size or at + RECORD.size > end:
            return None
        length, crc = RECORD.unpack(head)
        if not 0 < length <= BATCH_BYTES_MAX or at + RECORD.size + length > end:
            return None
        batch = self._file.read(at + RECORD.size, length)
        if len(batch) != length or crc32c(batch) != crc:
            return None
        try:
            read_header(batch)
        except CorruptBatch:
            return None
        return batch
