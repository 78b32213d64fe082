"""Groups in order: one consumer at a time, under a lock.

    free    --a pull, and no other consumer holds messages-->  locked for that consumer
    locked  --a pull of its consumer-->                        locked, for longer
    locked  --its consumer is gone, or says GOODBYE or YIELD-->  free
    locked  --another consumer names a later allocation-->     that one's, as soon as the former one holds nothing
    locked  --its time is over, another consumer pulls, and the former one holds nothing-->  locked for the other one

Where meta allocates, each pull names the version by which the partition is its consumer's; a pull of several subjects
one for each, for each has an allocation of its own. A partition and group
remember the latest one: who comes with an earlier one stood still while others went on, and is refused.

The lock says who is given messages next, the leases say who may handle them: only both together make a hand-over exact.
Whoever lets the lock end while it holds messages keeps the others out until it has settled them or its leases end.

A lease that was promised is kept. So it is no longer than a consumer may be away, or it would be cut short when the
consumer counts as gone; a new lock is on the disk before its first message leaves; and after a start nobody but the
owner is served for as long as a lease may run that a power cut has made the broker forget.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tidemill_broker.actions import Allocated, GroupForgotten, Locked, Unlocked
from tidemill_broker.desk import Desk
from tidemill_broker.group_settings import BROADCAST, ORDERED
from tidemill_broker.groups import Group
from tidemill_broker.pull_log import Consumer
from tidemill_wire.errors import Unavailable

NONE_NAMED: Mapping[str, int] = MappingProxyType({})


class Locks:
    """Takes, refreshes and frees the locks of groups in order."""

    def __init__(self, desk: Desk, gone_ms: int, silence_ms: int, now_ms: int) -> None:
        self._desk = desk
        self._state = desk.state
        self._gone_ms = gone_ms
        self._silence_ms = silence_ms
        self._promised_ms = now_ms + gone_ms
        """Until then leases may run that were given by the life before this one."""
        self._unsynced: dict[int, int] = {}
        """Groups with a new lock, and the ``Ready`` that has to be on the disk."""

    def lease_ms(self, group: Group) -> int:
        """How long a lease of the group runs."""
        return min(group.settings.lease_ms, self._gone_ms) if group.ordered else group.settings.lease_ms

    def free_ms(self, group: Group) -> int:
        """From when on another consumer may take the lock, if nothing is held by then."""
        if not group.owner:
            return 0
        taken = group.allocation and self._state.consumers[group.owner].name != group.allocated
        return self._promised_ms if taken else max(group.lock_ms, self._promised_ms)

    def allocate(
        self, consumer: Consumer, version: int, now_ms: int, versions: Mapping[str, int] = NONE_NAMED
    ) -> None:
        """A consumer pulls as ``version`` of meta's allocation says, or what ``versions`` has for its partition; 0:
        nobody allocated anything to it.
        """
        group = consumer.group
        if group.settings.consumption != ORDERED or group is not self._state.family(group)[-1]:
            return
        if versions:
            version = versions.get(self._state.partitions[group.partition].name, version)
        if version > group.allocation:
            self._desk.act(Allocated(group.identity, version, consumer.name), now_ms)
        elif version < group.allocation or not self._allowed(consumer):
            name = self._state.partitions[group.partition].name
            raise Unavailable(
                "allocation_outdated",
                f"partition {name!r} of group {group.name!r} went to {group.allocated!r} by version"
                f" {group.allocation} of the allocation, and {consumer.name!r} names version {version}",
            )

    def _allowed(self, consumer: Consumer) -> bool:
        return not consumer.group.allocation or consumer.group.allocated == consumer.name

    def hold(self, consumer: Consumer, wait_ms: int, now_ms: int) -> bool:
        """Whether a consumer may be given messages of its group now. If it can it takes the lock, for at least as long
        as its pull waits and it may be away then.
        """
        group = consumer.group
        mine = group.owner == consumer.identity
        if not self._allowed(consumer):
            return False
        if not mine and (self.free_ms(group) > now_ms or self._held_by_others(consumer)):
            return False
        lasts_ms = wait_ms + self._gone_ms
        if not mine or group.lock_ms - now_ms < lasts_ms // 2:
            self._desk.act(Locked(group.identity, consumer.identity, now_ms + lasts_ms), now_ms)
        if not mine:
            self._unsynced[group.identity] = self._desk.logs.number + 1
            self._desk.keeping.sync_now = True
        return group.identity not in self._unsynced

    def persisted(self) -> list[int]:
        """The groups whose new lock is on the disk by now."""
        if not self._unsynced:
            return []
        synced = self._desk.logs.mark.synced
        done = [identity for identity, number in self._unsynced.items() if number <= synced]
        for identity in done:
            del self._unsynced[identity]
        return done

    def free(self, consumer: Consumer, now_ms: int) -> None:
        """The consumer is gone. The lock of a group is that of its head, in all lanes."""
        group = consumer.group
        if group is not self._state.family(group)[-1]:
            return
        if group.owner == consumer.identity or (group.settings.consumption == BROADCAST and not group.owner):
            self._desk.act(Unlocked(group.identity, now_ms), now_ms)

    def ticked(self, now_ms: int) -> None:
        """Forget broadcast groups whose consumer has been away for too long."""
        for identity, over_ms in self._silent():
            if over_ms <= now_ms:
                self._desk.act(GroupForgotten(identity), now_ms)

    def next_wake(self, at_most: int) -> int:
        """When ``ticked`` has something to do, or ``at_most``."""
        return min([at_most, *(over_ms for _, over_ms in self._silent())])

    def _silent(self) -> list[tuple[int, int]]:
        """Groups that nobody consumes, and when each is forgotten."""
        state = self._state
        return [
            (identity, since_ms + self._silence_ms)
            for identity, since_ms in state.silent.items()
            if not any(one.consumers for one in state.family(state.groups[identity]))
        ]

    def _held_by_others(self, consumer: Consumer) -> bool:
        group = consumer.group
        kin = self._state.kin.get(group.identity)
        if kin is not None:
            return kin.held_by_others(consumer)
        return group.in_flight > 0 and any(
            any(other.held()) for other in group.consumers.values() if other is not consumer
        )
