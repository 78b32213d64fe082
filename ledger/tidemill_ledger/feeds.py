"""What a slave is sent: pieces of both logs as slices of their files, in an order that can be applied as it comes.

A feed goes from one pair of ends of the master's logs to the next: all of one log up to there, then all of the other:
first the one that the other one speaks of. Behind them the slave's logs are level. Not more is on its way than
``CHUNKS_AHEAD_BYTES``, and none that its pace forbids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemill_host.machine import Durability, Peer, Send, Slice
from tidemill_journal.segments import Segments
from tidemill_ledger.logs import Logs
from tidemill_ledger.pacing import Pace
from tidemill_wire import limits
from tidemill_wire.commands import encode_command
from tidemill_wire.replication import Chunk, Ends, Log, Marks, Reached


class Feed:
    """One slave's connection."""

    def __init__(self, peer: Peer, name: str, start: Ends, now_ms: int) -> None:
        self.peer = peer
        self.name = name
        self._sent = start
        self._target = start
        self._behind = start
        """What the slave has for certain."""
        self.snapshot = memoryview(b"")
        """What is left of it to be sent."""
        self._snapshot_at = 0
        self._files: Sequence[Slice] = ()
        self._file = self._file_at = 0
        """Which of them is sent, and from where on."""
        self._copied = [0, 0]
        """Bytes of files that were sent, and that the slave has for certain."""
        self.pace = Pace(now_ms)
        self.counts = True
        """It may be in sync: not while it copies, for then a restart of it begins with nothing."""
        self.heard_at_ms = now_ms
        self.said_at_ms = now_ms

    def heard(self, reached: Reached, now_ms: int) -> None:
        self.heard_at_ms = now_ms
        self._behind = Ends(*map(max, self._behind, reached.written))
        self._copied[1] = reached.copied

    def copy(self, snapshot: bytes, files: Sequence[Slice]) -> None:
        """These come before the logs."""
        self.snapshot, self._files = memoryview(snapshot), files
        self.counts = not snapshot

    def lacks(self, ends: Ends) -> int:
        """Bytes up to there that the slave has not said it has."""
        return ends.message - self._behind.message + ends.action - self._behind.action

    @property
    def level(self) -> bool:
        """Nothing is left of the pair that was begun with."""
        return self._sent == self._target

    def is_late(self, logs: Logs) -> bool:
        """What comes next was removed by retention meanwhile."""
        return self._sent.message < logs.messages.start or self._sent.action < logs.actions.start

    def chunks(
        self, logs: Logs, committed: Ends, now_ms: int, *, sync: bool, messages_first: bool
    ) -> Iterator[Send]:
        """What is to be sent now. The host lets it go when the bytes are written."""
        epoch = logs.epoch
        if self.snapshot:
            if not self.pace.allows(now_ms):
                return
            yield self._snap(epoch)
            self.said_at_ms = now_ms
            return
        if self._file < len(self._files):
            yield from self._chunks_of_files(epoch, now_ms)
            return
        ends = Ends(logs.messages.end, logs.actions.end)
        while self.lacks(self._sent) < limits.CHUNKS_AHEAD_BYTES and self.pace.allows(now_ms):
            if self._sent == self._target:
                if self._target == ends:
                    break
                self._target = ends
            more = self._sent.message < self._target.message
            if self._sent.action < self._target.action and not (messages_first and more):
                log, segments, start, stop = Log.ACTIONS, logs.actions, self._sent.action, self._target.action
            else:
                log, segments, start, stop = (
                    Log.MESSAGES, logs.messages, self._sent.message, self._target.message,
                )  # fmt: skip
            base, piece = piece_of(segments, start, stop)
            if log is Log.ACTIONS:
                self._sent = self._sent._replace(action=start + piece.size)
            else:
                self._sent = self._sent._replace(message=start + piece.size)
            marks = Marks.LEVEL if self.level else Marks(0)
            if sync:
                marks |= Marks.SYNC
            chunk = Chunk(epoch, log, base, start, marks, committed)
            self.said_at_ms = now_ms
            self.pace.sent(piece.size)
            yield Send(self.peer, encode_command(chunk, 0, piece.size), (piece,), Durability.WRITTEN)

    def _snap(self, epoch: int) -> Send:
        piece, self.snapshot = self.snapshot[: limits.CHUNK_BYTES], self.snapshot[limits.CHUNK_BYTES :]
        chunk = Chunk(epoch, Log.SNAPSHOT, 0, self._snapshot_at, Marks(0), Ends(0, 0), piece)
        self._snapshot_at += len(piece)
        self.pace.sent(len(piece))
        return Send(self.peer, encode_command(chunk, 0))

    def _chunks_of_files(self, epoch: int, now_ms: int) -> Iterator[Send]:
        sent, there = self._copied
        while (
            self._file < len(self._files)
            and sent - there < limits.CHUNKS_AHEAD_BYTES
            and self.pace.allows(now_ms)
        ):
            file, _, size = self._files[self._file]
            piece = Slice(file, self._file_at, min(size - self._file_at, limits.CHUNK_BYTES))
            chunk = Chunk(epoch, Log.FILES, self._file, self._file_at, Marks(0), Ends(0, 0))
            self.said_at_ms = now_ms
            self.pace.sent(piece.size)
            yield Send(self.peer, encode_command(chunk, 0, piece.size), (piece,), Durability.WRITTEN)
            self._file_at += piece.size
            sent = self._copied[0] = sent + piece.size
            if self._file_at == size:
                self._file, self._file_at = self._file + 1, 0

    def beat(self, logs: Logs, committed: Ends, sync: bool, now_ms: int) -> Send:
        """Nothing, so that the slave knows that its master lives, and how much is committed."""
        self.said_at_ms = now_ms
        place = self._sent.action
        chunk = Chunk(logs.epoch, Log.ACTIONS, 0, place, Marks.SYNC if sync else Marks(0), committed)
        return Send(self.peer, encode_command(chunk, 0))


def piece_of(segments: Segments, start: int, stop: int) -> tuple[int, Slice]:
    """The next piece of a log: within one segment, and not too large. With it the segment's base."""
    file, place = segments.locate(start)
    base = start - place
    size = min(stop, segments.end_of(base)) - start
    return base, Slice(file, place, min(size, limits.CHUNK_BYTES))
