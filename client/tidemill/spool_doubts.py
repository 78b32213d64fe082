"""Which batches of a spool file may be stored already, so that a refusal which nobody looked for says nothing. Pure.

    written to a broker, by the lane or out of the file, and not answered    it may be stored
    left in the file by an earlier process                                   it may have been written by that one
    answered: stored, or refused by who looked for it                        that is known
    taken to the file before it was written to anybody                       not stored

A broker that says ``forbidden`` has not looked; all other refusals of a batch are made when it has (``doubts``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from tidemill.doubts import DENIED
from tidemill.errors import TidemillError, WireError
from tidemill_wire.batch import partition_name, read_header

Key: TypeAlias = tuple[int, int, bytes]


class SpoolDoubts:
    """Of one file."""

    def __init__(self) -> None:
        self._written: set[Key] = set()
        self._left_below = 0

    def left(self, end: int) -> None:
        """What lies below that position, an earlier process left; 0: nothing does any more."""
        self._left_below = end

    def unanswered(self, batches: Iterable[bytes]) -> None:
        """They were written, and the connection ended."""
        self._written.update(map(_key, batches))

    def answered(self, batches: Iterable[bytes], refused: Mapping[int, TidemillError]) -> None:
        """Batch by batch, some with a refusal: it is known what became of those that were looked for."""
        looked = [batch for index, batch in enumerate(batches) if not _denied(refused.get(index))]
        self._written.difference_update(map(_key, looked))

    def gone(self, batches: Iterable[bytes]) -> None:
        """They are in the file no more."""
        self._written.difference_update(map(_key, batches))

    def leave(self, batch: bytes, position: int, error: TidemillError) -> bool:
        """Whether nobody knows if a batch at a position is stored, which was refused so."""
        return _denied(error) and (position < self._left_below or _key(batch) in self._written)


def _denied(error: TidemillError | None) -> bool:
    return isinstance(error, WireError) and error.kind.name in DENIED


def _key(batch: bytes) -> Key:
    header = read_header(batch)
    return header.producer_id, header.producer_sequence, bytes(partition_name(batch, 0, header))
