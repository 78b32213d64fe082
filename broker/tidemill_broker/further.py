"""Further partitions of a subject on this broker, as ``order.paid#3``: meta names them when a subject is expanded.

Each is a partition like any other, with its own sequences, groups, locks and lanes. What people declare is declared of
the subject, and holds in all its partitions here.
"""

from __future__ import annotations

from tidemill_broker.partitions import Partition
from tidemill_broker.state import State
from tidemill_wire.fields import EXPANDED, living_subject


class Further:
    """Which partitions are further ones, by their subject."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._of: dict[str, list[Partition]] = {}
        for partition in state.partitions.values():
            self.note(partition)

    def note(self, partition: Partition) -> None:
        """A partition that is new to the broker."""
        known = (
            self._of.setdefault(living_subject(partition.name), [])
            if EXPANDED.fullmatch(partition.name)
            else None
        )
        if known is not None and partition not in known:  # it may be there again, after it was removed
            known.append(partition)

    def of(self, subject: str) -> list[Partition]:
        """The further partitions of a subject."""
        there = self._state.by_name
        return [one for one in self._of.get(subject, ()) if one.raw_name in there]

    def whole(self, name: str) -> list[Partition]:
        """What is meant by a name: of a subject all its partitions here, its own first; else that one."""
        own = self._state.by_name.get(name.encode())
        return [*([] if own is None else [own]), *self.of(name)]


def subject_of(state: State, name: str) -> Partition | None:
    """The subject's own partition, of a further one; ``None`` for any other, and when the subject is not here."""
    if EXPANDED.fullmatch(name) is None:
        return None
    return state.by_name.get(living_subject(name).encode())
