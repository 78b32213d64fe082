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

    def to_list(self) -> list[Any]:
        """For the checkpoint."""
        return [[identity, known.to_list()] for identity, known in self._known.items() if len(known)]

    def restore(self, row: Sequence[Any]) -> None:
        """From the checkpoint."""
        identity, slices = row
        known = self._known[identity] = KnownKeys.from_list(cast("list[bytes]", slices))
        self.count += len(known)


def window_ms_of(partition: Partition) -> int:
    """For how long a key counts; 0: dedup keys are refused."""
    return 1000 * partition.settings.deduplication_seconds
