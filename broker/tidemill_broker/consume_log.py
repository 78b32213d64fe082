"""Finds messages: rows of the open segment in memory, windows of sealed runs read when somebody needs them.

``rows_for`` answers at once or says ``Loading``: then a read was asked for, and ``loaded`` names who waited for it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

from tidemill_broker.logs import Logs
from tidemill_broker.partitions import Partition, StoredRun
from tidemill_broker.state import State
from tidemill_host.machine import Buffer, Read, Replace, Slice, Unread
from tidemill_journal.entries import Rows, encode_run, layout_runs, read_windows, run_file
from tidemill_journal.errors import CorruptRecord, CorruptRun
from tidemill_journal.index import index_file

WINDOWS_CACHED = 1024


class Loading(Exception):
    """The rows are on their way; ask again when ``loaded`` has been called."""


class ConsumeLog:
    """The consume logs of all partitions."""

    def __init__(self, state: State, logs: Logs) -> None:
        self._state = state
        self._logs = logs
        self._cache: OrderedDict[tuple[int, int, int], Rows] = OrderedDict()
        self._loading: dict[tuple[int, int, int], int] = {}
        self._tokens: dict[int, tuple[tuple[int, int, int], list[Hashable]]] = {}
        self._next_token = 1
        self._held: list[tuple[int, list[StoredRun]]] = []  # runs whose rows are still in memory
        self._encoding: dict[int, int] = {}  # indexes that are made: token -> base
        self.reads: list[Read] = []

    def seal(self, base: int) -> None:
        """The segment that began at ``base`` is full: its rows go into a run file."""
        parts = [(p.identity, p.recent) for p in self._state.partitions.values() if p.recent]
        encode = self._state.index.seal(base, self._logs.messages.end_of(base))
        if not parts and encode is None:
            return  # recovery cut at its end: it was sealed then, and its run must not be made anew from nothing
        runs = layout_runs(parts, base)
        stored: list[StoredRun] = []
        for identity, rows in parts:
            partition = self._state.partitions[identity]
            stored.append(StoredRun(runs[identity], rows))
            partition.runs.append(stored[-1])
            partition.recent = Rows()
        self._logs.replace(Replace(run_file(base), lambda: encode_run(parts)))
        number = self._logs.number + 1
        if encode is not None:
            self._encoding[self._next_token] = base
            self.reads.append(Read(self._next_token, encode))
            self._next_token += 1
        self.let_go()
        self._held.append((number, stored))

    def let_go(self) -> None:
        """Forget what is in memory still and in its file by now: rows, and the pieces of an index."""
        self._state.index.let_go(self._logs.mark.written)
        while self._held and self._held[0][0] <= self._logs.mark.written:
            for run in self._held.pop(0)[1]:
                run.rows = None

    def rows_for(self, partition: Partition, sequence: int, waiter: Hashable) -> Rows | None:
        """Rows with the sequence or the next one after it; ``None`` when nothing is stored from there on."""
        stored = partition.run_for(sequence)
        if stored is None:
            recent = partition.recent
            return recent if recent and sequence < recent.end_sequence else None
        if stored.rows is not None:
            return stored.rows
        window = stored.run.window(sequence)
        key = (partition.identity, stored.run.base, window)
        rows = self._cache.get(key)
        if rows is not None:
            self._cache.move_to_end(key)
            if sequence >= rows.end_sequence:  # a gap at the window's end
                return self.rows_for(partition, stored.run.sparse[window + 1], waiter)
            return rows
        self._load(key, Slice(run_file(stored.run.base), *stored.run.window_place(window)), waiter)
        raise Loading

    def _load(self, key: tuple[int, int, int], piece: Slice, waiter: Hashable) -> None:
        token = self._loading.get(key)
        if token is None:
            token = self._next_token
            self._next_token += 1
            self._loading[key] = token
            self._tokens[token] = (key, [])
            self.reads.append(Read(token, piece))
        self._tokens[token][1].append(waiter)

    @property
    def encoding(self) -> bool:
        """An index is being made."""
        return bool(self._encoding)

    def _write_index(self, base: int, data: Buffer) -> None:
        """It was made in a lane of its own: seconds for millions of keys. Retention may have been faster."""
        if self._state.index.encoded(base, self._logs.number + 1):
            self._logs.replace(Replace(index_file(base), data))

    def loaded(self, token: int, data: Buffer | Unread) -> list[Hashable]:
        """A window came; who waited for it. Or an index is made, for which nobody waits."""
        base = self._encoding.pop(token, None)
        if base is not None:
            assert not isinstance(data, Unread), data
            self._write_index(base, data)
            return []
        key, waiters = self._tokens.pop(token)
        del self._loading[key]
        if isinstance(data, Unread):
            raise CorruptRun(run_file(key[1]), str(data))
        if not data:
            return waiters  # retention has removed the run: nobody looks for it again
        try:
            self._cache[key] = read_windows(data)
        except CorruptRecord as error:
            raise CorruptRun(run_file(key[1]), str(error)) from None
        if len(self._cache) > WINDOWS_CACHED:
            self._cache.popitem(last=False)
        return waiters

    def drop_oldest(self, base: int, removed: Callable[[Partition, StoredRun], None]) -> None:
        """The segment at ``base`` is gone, and the oldest run of each partition in it."""
        for partition in self._state.partitions.values():
            if partition.runs and partition.runs[0].run.base == base:
                removed(partition, partition.runs.pop(0))
        self._logs.remove(run_file(base))
        self._logs.remove(index_file(base))
        self._state.index.drop(base)
