"""Dedup keys of all partitions: noted with each batch that is stored, by whoever stores it.

A subject's lanes share what they know, and a further partition knows its own: the client sends one key to one
partition. Nothing here decides; ``duplicates.py`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from tidemill_broker.known_keys import Known, KnownKeys
from tidemill_broker.lanes import base_of
from tidemill_broker.partitions import Partition
from tidemill_ledger.columns import place_of_column
from tidemill_wire import limits
from tidemill_wire.batch import Header
from tidemill_wire.columns import Column
from tidemill_wire.deduplication import DIGEST_BYTES

if TYPE_CHECKING:
    from tidemill_broker.state import State

NOTHING_KNOWN = KnownKeys()


class Deduplication:
    """By the number of the partition."""

    def __init__(self) -> None:
        self.count = 0
        """Keys that are held."""
        self._known: dict[int, KnownKeys] = {}
        self._parts: dict[int, Parts] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def note(
        self, partition: Partition, header: Header, column: Callable[[Column, int], memoryview | None]
    ) -> None:
        """A stamped batch was stored; ``column`` reads one of it that has so many bytes for each message."""
        window_ms, digests = window_ms_of(partition), column(Column.DEDUP_KEYS, DIGEST_BYTES)
        if digests is None or not window_ms:
            return
        digests = memoryview(bytes(digests))  # the next column may come to lie where it is
        sources = column(Column.SOURCES, 4)
        known = self._known.setdefault(base_of(partition).identity, KnownKeys())
        message = header.first_sequence, header.stored_at_ms, header.batch_id
        self.count -= len(known)
        known.note(digests, message, sources.cast("i") if sources is not None else None, window_ms)
        self.count += len(known)
        if sources is not None:
            parts = self._parts.setdefault(base_of(partition).identity, Parts())
            parts.note((header.producer_id, header.producer_sequence), bytes(sources))

    def note_in(self, partition: Partition, header: Header, view: bytes | memoryview, at: int) -> None:
        """The same of a batch that lies in a piece of memory."""

        def column(kind: Column, width: int) -> memoryview | None:
            found = place_of_column(view, at, header, kind, width)
            return None if found is None else memoryview(view)[at + found[0] : at + found[0] + found[1]]

        self.note(partition, header, column)

    def find(self, partition: Partition, digests: Sequence[bytes], now_ms: int) -> list[Known | None]:
        """Of each key the message that had it within the window."""
        known = self._known.get(base_of(partition).identity, NOTHING_KNOWN)
        return known.find(digests, now_ms - window_ms_of(partition))

    def part(self, partition: Partition, header: Header) -> frozenset[int] | None:
        """Of a producer's batch that came before: the numbers of its messages that are stored; ``None``: all are."""
        parts = self._parts.get(base_of(partition).identity)
        return None if parts is None else parts.of((header.producer_id, header.producer_sequence))

    def forget(self, state: State, now_ms: int) -> None:
        """What counts no more, of all partitions."""
        for identity, known in list(self._known.items()):
            known.seal()
            known.forget(now_ms - window_ms_of(state.partitions[identity]))
            if not len(known):
                del self._known[identity]
        self.count = sum(map(len, self._known.values()))

    def removed(self, identity: int) -> None:
        """The subject was removed."""
        self.count -= len(self._known.pop(identity, NOTHING_KNOWN))
        self._parts.pop(identity, None)

    def to_list(self) -> list[Any]:
        """For the checkpoint."""
        return [
            [identity, known.to_list(), self._parts[identity].to_list() if identity in self._parts else []]
            for identity, known in self._known.items()
        ]

    def restore(self, row: Sequence[Any]) -> None:
        """From the checkpoint."""
        identity, slices, parts = row
        known = self._known[identity] = KnownKeys.from_list(cast("list[bytes]", slices))
        self.count += len(known)
        if parts:
            self._parts[identity] = Parts()
        for producer, number, stored in parts:
            self._parts[identity].note((producer, number), stored)


class Parts:
    """Batches of which not all was stored, by producer and number: the newest, for who sends one again."""

    __slots__ = ("_size", "_stored")

    def __init__(self) -> None:
        self._size = 0
        self._stored: dict[tuple[int, int], bytes] = {}

    def note(self, batch: tuple[int, int], stored: bytes) -> None:
        """The numbers of the messages that were stored of it."""
        self._size += len(stored) - len(self._stored.pop(batch, b""))
        self._stored[batch] = stored
        while len(self._stored) > limits.PARTS_REMEMBERED_MAX or self._size > limits.PARTS_REMEMBERED_BYTES:
            self._size -= len(self._stored.pop(next(iter(self._stored))))

    def of(self, batch: tuple[int, int]) -> frozenset[int] | None:
        """Those numbers."""
        stored = self._stored.get(batch)
        return None if stored is None else frozenset(memoryview(stored).cast("i"))

    def to_list(self) -> list[Any]:
        """For the checkpoint."""
        return [[producer, number, stored] for (producer, number), stored in self._stored.items()]


def window_ms_of(partition: Partition) -> int:
    """For how long a key counts; 0: dedup keys are refused."""
    return 1000 * partition.settings.deduplication_seconds
