"""Who consumes: groups and consumers made on their first pull, and consumers whose connection is gone.

A consumer belongs to the connection that pulled for it last. When that connection ends, the consumer has
``consumer_gone_ms`` to pull over another one; then what it holds is given to others. After a restart every consumer
begins as gone.

The first pull of a connection says what the consumer still holds. What the broker gave it beyond that got lost on the
way, or with an earlier process of its name, and would lie idle until its lease ends: it is taken back at once. From
then on pulls of older connections are refused, for what they were given nobody would hear of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tidemill_broker.actions import Action, ConsumerNamed, GroupNamed
from tidemill_broker.dead_letters import naming_of_twin
from tidemill_broker.further import subject_of
from tidemill_broker.group_settings import BROADCAST, DEAD, ORDERED, GroupSettings
from tidemill_broker.groups import Group
from tidemill_broker.partitions import Partition
from tidemill_broker.positions import begin_as_asked
from tidemill_broker.pull_log import Consumer
from tidemill_broker.settings import BrokerSettings
from tidemill_broker.state import State
from tidemill_host.machine import Peer
from tidemill_wire import limits
from tidemill_wire.commands import Pull, Settle
from tidemill_wire.counted import counted
from tidemill_wire.errors import Refused, Unavailable
from tidemill_wire.fields import living_subject
from tidemill_wire.filters import TagFilter
from tidemill_wire.kinds import Mode, Start
from tidemill_wire.ranges import pairs

CONSUMPTION = {Mode.EXCLUSIVE: ORDERED, Mode.BROADCAST: BROADCAST, Mode.KEYED: ORDERED}
"""What a pull may ask for, as groups are declared."""


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

    def left(self, peer: Peer, since_ms: int) -> None:
        """A connection ended: its consumers are gone since it was heard of last, unless they come back."""
        for consumer in self._behind.pop(peer, {}).values():
            if consumer.peer == peer:
                consumer.peer = 0
                consumer.gone_at_ms = since_ms
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
        _check_mode(group, pull)
        if consumer is None:
            self._check_room(group)
            self._act(ConsumerNamed(self._state.next_consumer, group.identity, pull.consumer), now_ms)
            consumer = group.consumers[pull.consumer]
            if group.ordered:
                consumer.resumed_by = peer  # it holds nothing, so nothing has to be said of it
        consumer.keyed = pull.mode is Mode.KEYED
        if pull.bound is not None:
            consumer.claim(self._state.holds.of_identity(pull.bound))
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

    def forget(self, consumer: Consumer) -> None:
        """Its group is removed: nothing is asked of it any more, and nothing done when its connection ends."""
        self._behind.get(Peer(consumer.peer), {}).pop(consumer.identity, None)
        self._gone.pop(consumer.identity, None)
        consumer.peer = 0

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
        settings = self._settings_asked(partition, pull)
        subject = subject_of(self._state, partition.name)
        known = subject is not None and pull.group in subject.groups
        if not known and pull.base not in partition.groups:
            for name in filter(None, (pull.group, pull.base)):
                self._state.tombs.check_group(living_subject(partition.name), name)
        start = Start.EARLIEST if known else pull.start  # the subject grew: nothing of that is to be missed
        place = begin_as_asked(partition, start)
        return self.declare_group(
            partition, pull.group, place, settings, now_ms, self.begun(partition, start)
        )

    def _settings_asked(self, partition: Partition, pull: Pull) -> GroupSettings:
        """Those of the declared group for a broadcast, else the defaults; and shared as the pull says."""
        base = partition.groups.get(pull.base)
        subject = subject_of(self._state, partition.name)
        if base is None and subject is not None:
            base = subject.groups.get(pull.base or pull.group)
        settings = GroupSettings(
            lease_ms=self._settings.lease_ms, tags=pull.filter.tags, all_tags=pull.filter.every
        )
        if base is not None:
            settings = self._state.groups[base].settings
        return replace(settings, consumption=CONSUMPTION.get(pull.mode, settings.consumption))

    def agree(self, consumer: Consumer, wanted: TagFilter, now_ms: int) -> None:
        """A group has one filter, for what one consumer passes over no other is given. A manifest's stands; another one
        is that of the last pull, which may change it while no other consumer of the group is connected.
        """
        group, settings = consumer.group, consumer.group.settings
        if wanted == TagFilter(settings.tags, settings.all_tags) or (settings.filter_declared and not wanted):
            return
        others = any(other.peer for other in group.consumers.values() if other is not consumer)
        if settings.filter_declared or others:
            has = TagFilter(settings.tags, settings.all_tags)
            by = "is declared to want" if settings.filter_declared else "has other consumers, which want"
            raise Refused("filter_conflict", f"group {group.name!r} {by} {has}, not {wanted}")
        settings = replace(settings, tags=wanted.tags, all_tags=wanted.every)
        start = (group.cursor, group.start_ms)
        self.declare_group(self._state.partitions[group.partition], group.name, start, settings, now_ms)

    def begun(self, partition: Partition, start: int) -> list[tuple[int, int, int]]:
        """Where a group begins in the lanes of a partition: priority, cursor, start_ms."""
        lanes = self._state.lanes.get(partition.identity, {})
        return [(priority, *begin_as_asked(lane, start)) for priority, lane in lanes.items()]

    def declare_group(
        self,
        partition: Partition,
        name: str,
        start: tuple[int, int],
        settings: GroupSettings,
        now_ms: int,
        lanes: Sequence[tuple[int, int, int]] = (),
    ) -> Group:
        """A group with these settings, new or known; ``start`` (cursor, start_ms) and what ``begun`` says of ``lanes``
        count for a new one.
        """
        known = partition.groups.get(name)
        if known is None and len(self._state.groups) >= limits.GROUPS_MAX:
            raise Refused("too_many_groups", f"{limits.GROUPS_MAX} consumer groups are on this broker")
        if known is None or self._state.groups[known].settings != settings:
            identity = known if known is not None else self._state.next_group
            named = GroupNamed(identity, partition.identity, name, *start, settings.to_map(), lanes)
            self._act(named, now_ms)
        group = self._state.groups[partition.groups[name]]
        self._declare_twin(group, now_ms)
        return group

    def _declare_twin(self, group: Group, now_ms: int) -> None:
        """What is declared of a group holds for what is redriven to it, too."""
        twin = self._state.groups.get(self._state.dead.get(group.identity, 0))
        if twin is not None and (
            named := naming_of_twin(self._state, group, self._state.partitions[twin.partition])
        ):
            self._act(named, now_ms)

    def _check_room(self, group: Group) -> None:
        """A group has as many consumers as its bounds say; those that are away and hold nothing take no place, up to
        what the broker can keep. A twin has the consumers of its group, and so has the group in a lane.
        """
        if group.settings.consumption == DEAD or group is not self._state.family(group)[-1]:
            return
        there = len(group.consumers)
        if limits.CONSUMERS_MAX > there >= group.settings.consumers_max:
            there = sum(1 for other in group.consumers.values() if other.peer or any(other.held()))
        if there >= min(group.settings.consumers_max, limits.CONSUMERS_MAX):
            raise Unavailable("too_many_consumers", f"group {group.name!r} has {counted(there, 'consumer')}")


def named_again(group: Group, settings: GroupSettings) -> GroupNamed:
    """What gives other settings to a group."""
    place = (group.cursor, group.start_ms)
    return GroupNamed(group.identity, group.partition, group.name, *place, settings.to_map())


def replaced(pull: Pull) -> Refused:
    """What a pull of a connection is told when its consumer goes on over a newer one."""
    detail = f"consumer {pull.consumer!r} of group {pull.group!r} pulls over a newer connection"
    return Refused("consumer_replaced", detail)


def _check_mode(group: Group, pull: Pull) -> None:
    """Consumers of one group share its messages in one way. Those of its twin are there in any."""
    is_one = group.settings.consumption
    if is_one == DEAD:
        return
    wanted = CONSUMPTION.get(pull.mode)
    if is_one == (wanted or is_one) and (pull.mode or is_one != BROADCAST):
        return
    asked = wanted or "together with others"
    raise Refused("wrong_consumption", f"group {group.name!r} is {is_one}, and this asks for {asked}")


def probed(consumer: Consumer, ranges: Sequence[int]) -> bool:
    """Whether the probe of a paused group is among the deliveries that a consumer holds."""
    group = consumer.group
    probe = group.health.probe if group.paused is not None else None
    return (
        probe is not None
        and any(first <= probe <= last for first, last in pairs(ranges))
        and bool(consumer.overlapping(probe, probe))
    )
