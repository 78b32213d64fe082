"""Who consumes: groups and consumers made on their first pull, and consumers whose connection is gone.

A consumer belongs to the connection that pulled for it last. When that connection ends, the consumer has
``consumer_gone_ms`` to pull over another one; then what it holds is given to others. After a restart every consumer
begins as gone.

The first pull of a connection says what the consumer still holds. What the broker gave it beyond that got lost on the
way, or with an earlier process of its name, and would lie idle until its lease ends: it is taken back at once. From
then on pulls of older connections are refused, for what they were given nobody would hear of.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemill_broker.actions import Action, ConsumerNamed, GroupNamed
from tidemill_broker.group_settings import GroupSettings
from tidemill_broker.groups import Consumer, Group
from tidemill_broker.partitions import Partition
from tidemill_broker.settings import BrokerSettings
from tidemill_broker.state import State
from tidemill_host.machine import Peer
from tidemill_wire import limits
from tidemill_wire.commands import Pull, Settle, Start
from tidemill_wire.errors import Refused


class Members:
    """Consumers and the connections they are behind. ``act`` writes an action and applies it."""

    def __init__(
        self, state: State, act: Callable[[Action, int], int], settings: BrokerSettings, now_ms: int
    ) -> None:
        self._state = state
        self._act = act
        self._settings = settings
        self._behind: dict[Peer, dict[int, Consumer]] = {}
        self._gone: dict[int, Consumer] = {}
        for consumer in state.consumers.values():
            consumer.gone_at_ms = now_ms
            self._gone[consumer.identity] = consumer

    def joined(self, peer: Peer) -> None:
        """A connection."""
        self._behind[peer] = {}

    def left(self, peer: Peer, now_ms: int) -> None:
        """A connection ended: its consumers are gone from now on, unless they come back."""
        for consumer in self._behind.pop(peer, {}).values():
            if consumer.peer == peer:
                consumer.peer = 0
                consumer.gone_at_ms = now_ms
                self._gone[consumer.identity] = consumer

    def of(self, peer: Peer) -> list[Consumer]:
        """The consumers behind a connection."""
        return [consumer for consumer in self._behind[peer].values() if consumer.peer == peer]

    def take_gone(self, now_ms: int) -> list[Consumer]:
        """Consumers that did not come back in time; each is named once."""
        until = now_ms - self._settings.consumer_gone_ms
        over = [consumer for consumer in self._gone.values() if consumer.gone_at_ms <= until]
        for consumer in over:
            del self._gone[consumer.identity]
        return over

    def wake_at_ms(self, at_most: int) -> int:
        """When the next consumer has been gone for too long, or ``at_most``."""
        gone = (consumer.gone_at_ms for consumer in self._gone.values())
        return min(at_most, min(gone, default=at_most) + self._settings.consumer_gone_ms)

    def enrol(self, peer: Peer, pull: Pull, partition: Partition, now_ms: int) -> Consumer:
        """The consumer that pulls, made on its first pull."""
        identity = partition.groups.get(pull.group)
        group = self._state.groups[identity] if identity is not None else self._found(partition, pull, now_ms)
        consumer = group.consumers.get(pull.consumer)
        if consumer is None:
            if len(group.consumers) >= limits.CONSUMERS_MAX:
                detail = f"{limits.CONSUMERS_MAX} consumers are in group {pull.group!r}"
                raise Refused("too_many_consumers", detail)
            self._act(ConsumerNamed(self._state.next_consumer, group.identity, pull.consumer), now_ms)
            consumer = group.consumers[pull.consumer]
        if peer < consumer.resumed_by:
            raise replaced(pull)
        if consumer.peer != peer:
            self.adopt(peer, consumer)
        return consumer

    def adopt(self, peer: Peer, consumer: Consumer) -> None:
        """From now on the consumer is behind this connection."""
        consumer.peer = peer
        self._behind[peer][consumer.identity] = consumer
        self._gone.pop(consumer.identity, None)

    def holder(self, command: Settle) -> Consumer:
        """The consumer that a command about deliveries speaks for."""
        group = self._state.group_of(command.subject, command.group)
        consumer = None if group is None else group.consumers.get(command.consumer)
        if consumer is None:
            raise Refused(
                "lease_lost", f"consumer {command.consumer!r} of group {command.group!r} holds nothing"
            )
        return consumer

    def _found(self, partition: Partition, pull: Pull, now_ms: int) -> Group:
        start = start_of(partition, pull.start)
        settings = GroupSettings(lease_ms=self._settings.lease_ms)
        return self.declare_group(partition, pull.group, start, settings, now_ms)

    def declare_group(
        self, partition: Partition, name: str, start: tuple[int, int], settings: GroupSettings, now_ms: int
    ) -> Group:
        """A group with these settings, new or known; ``start`` (cursor, start_ms) counts for a new one."""
        known = partition.groups.get(name)
        if known is None and len(self._state.groups) >= limits.GROUPS_MAX:
            raise Refused("too_many_groups", f"{limits.GROUPS_MAX} consumer groups are on this broker")
        if known is None or self._state.groups[known].settings != settings:
            identity = known if known is not None else len(self._state.groups) + 1
            self._act(GroupNamed(identity, partition.identity, name, *start, settings.to_map()), now_ms)
        return self._state.groups[partition.groups[name]]


def start_of(partition: Partition, start: int | str) -> tuple[int, int]:
    """Where a new group begins, cursor and time, by the word of a pull or of a manifest for it."""
    if start in (Start.LATEST, "latest"):
        return partition.next_sequence, 0
    return partition.first_kept, start if isinstance(start, int) and start >= 0 else 0


def replaced(pull: Pull) -> Refused:
    """What a pull of a connection is told when its consumer goes on over a newer one."""
    detail = f"consumer {pull.consumer!r} of group {pull.group!r} pulls over a newer connection"
    return Refused("consumer_replaced", detail)
