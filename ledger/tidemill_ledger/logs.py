"""The two logs of a service while it runs: what the next ``Ready`` writes, and how far the disk has come.

Order of one life of a byte: placed (position given) -> in a ``Ready`` (numbered) -> written -> synced. The ends of both
logs are remembered for each numbered ``Ready``, so that a mark of the host can be read as positions.
"""

from __future__ import annotations

from collections import deque

from tidemill_host.machine import Append, Buffer, Mark, Ready, Remove, Replace, Write
from tidemill_journal.records import encode_record, record_size
from tidemill_journal.segments import Place, Segments
from tidemill_ledger.receiving import Whole


class Logs:
    """Message log and action log, write side."""

    def __init__(self, messages: Segments, actions: Segments, epoch: int, batches_max: int) -> None:
        self.messages = messages
        self.actions = actions
        self.epoch = epoch
        self._batches_max = batches_max
        self._appends: dict[str, tuple[list[Buffer], int]] = {}
        self._others: list[Write] = []
        self._number = 0
        self._ends: deque[tuple[int, int, int]] = deque()
        self.synced_message_position = messages.end
        self.synced_action_position = actions.end
        self.mark = Mark(0, 0)
        self.bytes_appended = 0
        self.apart: dict[str, None] | None = None
        """Files that were appended to and are not synced with the logs; ``None``: all are."""

    @property
    def number(self) -> int:
        """The number of the last ``Ready`` with writes."""
        return self._number

    @property
    def has_writes(self) -> bool:
        return bool(self._appends or self._others)

    @property
    def all_synced(self) -> bool:
        return self.mark.synced >= self._number and not (self._appends or self._others)

    def place_batch(self, size: int) -> Place:
        """Room for a batch. The caller stamps it and hands it to ``append``."""
        return self.messages.append(size, self._batches_max)

    def place_batches(self, size: int, count: int) -> Place | None:
        """The same for so many batches of ``size`` bytes together, when they fit into the open segment."""
        if self.messages.is_full(size, self._batches_max - count + 1):
            return None
        place = self.messages.append(size)
        self.messages.records += count - 1
        return place

    def append(self, file: str, buffer: Buffer, size: int, *, apart: bool = False) -> None:
        """Bytes for the end of a log file; or of one that follows from the logs, and need not be synced with them."""
        if apart and self.apart is not None:
            self.apart[file] = None
        buffers, before = self._appends.get(file, ([], 0))
        buffers.append(buffer)
        self._appends[file] = (buffers, before + size)
        self.bytes_appended += size

    def record(self, kind: int, body: bytes, now_ms: int) -> None:
        """Write a record of the action log; the caller applies what it says."""
        place = self.actions.append(record_size(len(body)))
        record = encode_record(kind, body, place.position, now_ms, self.epoch)
        self.append(place.file, record, len(record))

    def follow(self, segments: Segments, whole: Whole, entries: int) -> int | None:
        """What a master has written, at the same place. The segment that is sealed by it, when there is one."""
        sealed = segments.open_base if segments.bases else None
        place = segments.follow(whole.base, len(whole.data), entries)
        self.append(place.file, whole.data, len(whole.data))
        return sealed if place.opened else None

    def replace(self, write: Replace) -> None:
        self._others.append(write)

    def remove(self, file: str) -> None:
        self._others.append(Remove(file))

    def take(self, ready: Ready) -> None:
        """Move what was placed into a ``Ready`` and number it."""
        if not self.has_writes:
            return
        self._number += 1
        apart = self.apart or {}
        ready.writes += [
            Append(file, buffers, size, file in apart) for file, (buffers, size) in self._appends.items()
        ]
        ready.writes += self._others
        self._appends = {}
        self._others = []
        self._ends.append((self._number, self.messages.end, self.actions.end))

    def persisted(self, mark: Mark) -> None:
        """The host has come as far as ``mark``."""
        assert mark.written >= self.mark.written
        assert mark.synced >= self.mark.synced
        self.mark = mark
        while self._ends and self._ends[0][0] <= mark.synced:
            _, self.synced_message_position, self.synced_action_position = self._ends.popleft()
