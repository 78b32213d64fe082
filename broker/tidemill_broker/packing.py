"""The state as bytes, of which only what was touched is packed anew.

A checkpoint is the state at one moment, so all of it is packed while nothing else happens. That is a pause for
everybody, and grows with what the broker has. So the bytes of each group and partition are kept, and are good until it
is touched: a group by an action (``touched.py``), a partition by a message that is stored, or a declaration.

When much was touched, it is packed ahead: a share a turn, before the moment of the checkpoint, which then packs only
what was touched meanwhile. What was packed ahead is kept like any other, and is good or not by the same rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tidemill_broker.groups import Group
from tidemill_broker.partitions import Partition, SubjectSettings
from tidemill_broker.snapshots import pack_group, pack_partition, state_parts
from tidemill_broker.state import State

SHARE = 200
"""So many groups or partitions are packed in one turn: a millisecond, unless one of them holds very much."""


class Packing:
    """Keeps what was packed."""

    def __init__(self, state: State) -> None:
        self.share = SHARE
        self._state = state
        self._groups: dict[int, bytes] = {}
        self._partitions: dict[int, tuple[int, int, SubjectSettings, bytes]] = {}
        self._walk: Iterator[Partition | Group] | None = None

    def ahead(self) -> bool:
        """Pack a share of what is not good; whether there is more of it, so that it is too early for a checkpoint.

        Each is visited once: what is touched again and again is left for the checkpoint.
        """
        self._walk = self._walk or self._stale()
        packed = 0
        for one in islice(self._walk, self.share):
            packed += 1
            if isinstance(one, Group):
                self._pack_group(one)
            else:
                self._pack_partition(one)
        if packed < self.share:
            self._walk = None
        return packed == self.share

    def parts(self, message_position: int, action_position: int, now_ms: int) -> list[bytes]:
        """The state now, in pieces: to join them is for another thread."""
        state, touched = self._state, self._state.touched
        groups: list[bytes] = []
        for identity, group in state.groups.items():
            packed = self._groups.get(identity)
            if packed is None or identity in touched:
                packed = self._pack_group(group)
            groups.append(packed)
        for identity in touched:  # those that are left are forgotten
            self._groups.pop(identity, None)
        touched.clear()
        partitions = [
            self._partitions[identity][-1] if self._is_good(partition) else self._pack_partition(partition)
            for identity, partition in state.partitions.items()
        ]
        return state_parts(state, (message_position, action_position, now_ms), partitions, groups)

    def _stale(self) -> Iterator[Partition | Group]:
        state = self._state
        for partition in list(state.partitions.values()):
            if not self._is_good(partition):
                yield partition
        for identity in list(state.groups):
            group = state.groups.get(identity)
            if group is not None and (identity in state.touched or identity not in self._groups):
                yield group

    def _pack_group(self, group: Group) -> bytes:
        self._state.touched.discard(group.identity)
        packed = self._groups[group.identity] = pack_group(group)
        return packed

    def _pack_partition(self, partition: Partition) -> bytes:
        packed = pack_partition(partition)
        known = partition.next_sequence, self._state.tombs.floor(partition), partition.settings
        self._partitions[partition.identity] = (*known, packed)
        return packed

    def _is_good(self, partition: Partition) -> bool:
        """Producers are remembered with the messages that they send, and forgotten with them when they are removed: so
        the next sequence and the floor tell of them, too.
        """
        kept = self._partitions.get(partition.identity)
        if kept is None or kept[:2] != (partition.next_sequence, self._state.tombs.floor(partition)):
            return False
        return kept[2] is partition.settings

    def check(self) -> None:
        """What is kept as good is what would be packed now."""
        state = self._state
        for identity, packed in self._groups.items():
            assert identity in state.touched or packed == pack_group(state.groups[identity]), identity
        for identity, (*_, packed) in self._partitions.items():
            partition = state.partitions[identity]
            assert not self._is_good(partition) or packed == pack_partition(partition), partition.name
