"""What there is to say of each subject and each group, for whoever watches; one after the other, so that who asks may
do something else in between.

When a message was stored is known from the rows in memory. Of one in a sealed segment they are on the disk, and no
number is worth a read: its time is taken to be between the last batch before its segment and the last one in it, as
its sequence is. So it is wrong by as long as it took to fill the segment, at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from tidemill_broker.graves import waiting
from tidemill_broker.group_settings import DEAD
from tidemill_broker.groups import Group
from tidemill_broker.partitions import Partition
from tidemill_broker.state import State
from tidemill_wire.fields import DEAD_PREFIX
from tidemill_wire.lanes import LANE_PREFIX, first_of_lane
from tidemill_wire.limits import METRIC_LOOKS_MAX
from tidemill_wire.transacting import HALF_PARTITION


class OfSubject(NamedTuple):
    """One subject's numbers, in all its lanes."""

    messages: int
    bytes: int
    kept: int


class OfGroup(NamedTuple):
    """One group's numbers, in all lanes of its subject, and with its dead letters."""

    lag: int
    lag_ms: int
    oldest_ms: int
    in_flight: int
    failed: int
    dead: int
    consumers: int
    paused: int
    suspended: int
    over_quota: int
    acked: int
    buried: int


def subjects_of(state: State) -> Iterator[Partition]:
    """Those that people know of."""
    for partition in list(state.by_name.values()):
        if not partition.name.startswith((DEAD_PREFIX, LANE_PREFIX, HALF_PARTITION)):
            yield partition


def groups_of(state: State) -> Iterator[Group]:
    """Each once, whatever lanes there are; those that go meanwhile are left out."""
    for identity, group in list(state.groups.items()):
        if (
            group.settings.consumption != DEAD
            and state.groups.get(identity) is group is state.family(group)[-1]
        ):
            yield group


def subject_row(state: State, partition: Partition) -> OfSubject:
    """A subject's numbers."""
    stored, size = partition.next_sequence, partition.bytes_in
    kept = max(0, partition.visible - partition.first_kept)
    for priority, lane in state.lanes.get(partition.identity, {}).items():
        stored += lane.next_sequence - first_of_lane(priority)
        size += lane.bytes_in
        kept += max(0, lane.visible - lane.first_kept)
    return OfSubject(stored, size, kept)


def group_row(state: State, group: Group, now_ms: int) -> OfGroup:
    """A group's numbers."""
    family = state.family(group)
    twin = state.groups.get(state.dead.get(group.identity, 0))
    lag, first_ms, oldest_ms, buried = 0, now_ms, now_ms, 0
    for one in family:
        partition = state.partitions[one.partition]
        beyond = not_given(partition, one)
        if beyond:
            lag += beyond
            first_ms = min(first_ms, stored_ms(partition, one.reached, now_ms))
        if one.in_flight or one.failed:
            oldest_ms = min(oldest_ms, stored_ms(partition, oldest_undone(one), now_ms))
        buried += one.buried
    in_flight, failed, untried, acked, dead = 0, 0, 0, 0, 0
    places = family if twin is None else (*family, twin)
    for one in places:
        in_flight += one.in_flight
        failed += one.failed_count()
        untried += one.untried
        acked += one.acked
    if twin is not None:
        dead = waiting(state, group)
    consumers = sum(1 for one in group.consumers.values() if one.peer) if group.consumers else 0
    lag_ms, oldest_ms = max(0, now_ms - first_ms), max(0, now_ms - min(first_ms, oldest_ms))
    paused, suspended = int(group.paused is not None), int(group.settings.suspended)
    over_quota = int(state.holds.keeping(one.identity for one in places) is not None)
    return OfGroup(
        lag + untried, lag_ms, oldest_ms, in_flight, failed - untried, dead, consumers, paused, suspended, over_quota,
        acked, buried,
    )  # fmt: skip


def not_given(partition: Partition, group: Group) -> int:
    """How many messages that are kept were never given to a group; what retention took before is nobody's business."""
    return max(0, partition.visible - max(group.reached, partition.first_kept))


def oldest_undone(group: Group) -> int:
    """The first message that consumers hold or that failed, as far as a bounded look finds it; else what comes next."""
    firsts = list(islice(group.failed, METRIC_LOOKS_MAX))
    left = METRIC_LOOKS_MAX
    for consumer in group.consumers.values():
        firsts += (delivery.first for delivery in islice(consumer.held(), left))
        left -= min(left, len(consumer.deliveries))
    return min(firsts, default=group.cursor)


def stored_ms(partition: Partition, sequence: int, now_ms: int) -> int:
    """When a message, or the first one that is kept after it, was stored; about so, when its segment is sealed."""
    found = partition.run_for(sequence)
    if found is None:
        recent = partition.recent
        index = recent.find(sequence) if recent else 0
        return recent.stamps[index] if index < len(recent) else now_ms
    if found.rows is not None:
        return found.rows.stamps[min(found.rows.find(sequence), len(found.rows) - 1)]
    run, before_ms = found.run, 0
    index = partition.runs.index(found)
    if index:
        before_ms = partition.runs[index - 1].run.last_stored_at_ms
    if not before_ms:
        return run.last_stored_at_ms
    share = max(0, sequence - run.first_sequence) / max(1, run.end_sequence - run.first_sequence)
    return before_ms + int((run.last_stored_at_ms - before_ms) * share)


def oldest_kept_ms(state: State) -> int | None:
    """By when the oldest segment was full: of the newest message that lies in it."""
    stamps: list[int] = []
    for partition in state.partitions.values():
        if partition.runs:
            stamps.append(partition.runs[0].run.last_stored_at_ms)
        elif partition.recent:
            stamps.append(partition.recent.stamps[0])
    return min(stamps, default=None)
