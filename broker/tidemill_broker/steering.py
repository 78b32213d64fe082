"""What is done to a whole group: it goes on elsewhere (SEEK), it stands still and goes on again (SUSPEND).

Who names a subject means all its partitions here, and who names a further partition means that one.

A seek voids what the group's consumers hold and what failed in it: a message is either behind the new place or it is
not, and in no third place. Consumers learn of it by the ``lost`` of what they say next of their deliveries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidemill_broker.actions import Sought
from tidemill_broker.consume_log import ConsumeLog, Loading
from tidemill_broker.desk import Desk
from tidemill_broker.further import Further
from tidemill_broker.groups import Group
from tidemill_broker.members import named_again
from tidemill_broker.partitions import Partition
from tidemill_broker.positions import begin, first_since
from tidemill_broker.serving import Serving
from tidemill_host.machine import Peer
from tidemill_wire import commands
from tidemill_wire.errors import Refused, WireError
from tidemill_wire.kinds import Place
from tidemill_wire.lanes import priority_of
from tidemill_wire.steering import Seek, Suspend
from tidemill_wire.steering import Sought as SoughtAnswer


@dataclass(eq=False, slots=True)
class WaitingSeek:
    """A seek to a time, for which rows are being read."""

    peer: Peer
    correlation: int
    seek: Seek


class Steering:
    """Moves, suspends and resumes groups."""

    def __init__(self, desk: Desk, consume_log: ConsumeLog, serving: Serving, further: Further) -> None:
        self._desk = desk
        self._state = desk.state
        self._consume_log = consume_log
        self._serving = serving
        self._further = further

    def seek(self, waiting: WaitingSeek, now_ms: int) -> None:
        """Move a group, or say what that would do. A time may need rows to be read first; then again."""
        seek = waiting.seek
        heads = self._groups(seek)
        by_sequence = seek.place == Place.SEQUENCE
        groups = [
            group
            for head in reversed(heads)  # the places that are answered are those of the last one
            for group in ([self._in_lane(head, seek)] if by_sequence else self._state.family(head))
        ]
        partitions = [self._state.partitions[group.partition] for group in groups]
        try:
            places = [self._place(waiting, partition) for partition in partitions]
        except Loading:
            return
        effects = [
            _effect(partition, group, cursor)
            for partition, group, (cursor, _) in zip(partitions, groups, places, strict=True)
        ]
        for group, (cursor, start_ms) in zip(groups, places, strict=True):
            if not seek.rehearsal:
                self._desk.act(Sought(group.identity, cursor, start_ms), now_ms)
        level = max(map(self._desk.level, partitions))
        self._desk.say(waiting.peer, waiting.correlation, _sum_of(effects), level)
        if not seek.rehearsal:
            for head in heads:
                self._serving.serve_group(head.identity, now_ms)

    def _in_lane(self, head: Group, seek: Seek) -> Group:
        """The group where the sequence is that it is to go on at: a sequence says nothing of other lanes."""
        lane = self._state.lanes.get(head.partition, {}).get(priority_of(seek.value))
        return head if lane is None else self._state.groups[lane.groups[head.name]]

    def again(self, waiting: WaitingSeek, now_ms: int) -> None:
        """Rows came that a seek waits for."""
        if not self._serving.knows(waiting.peer):
            return  # nobody would learn of it
        try:
            self.seek(waiting, now_ms)
        except WireError as error:  # the group was forgotten meanwhile
            self._desk.refuse(waiting.peer, waiting.correlation, error)

    def suspend(self, peer: Peer, correlation: int, command: Suspend, now_ms: int) -> None:
        """Let a group stand still, or go on; and its twin, or it would be given what is redriven."""
        groups = self._groups(command)
        twins = [self._state.dead.get(group.identity) for group in groups]
        concerned = [*groups, *(self._state.groups[twin] for twin in twins if twin is not None)]
        for one in concerned:
            settings = replace(one.settings, suspended=command.suspended)
            if settings != one.settings:
                self._desk.act(named_again(one, settings), now_ms)
        level = max(self._desk.level(self._state.partitions[group.partition]) for group in groups)
        self._desk.say(peer, correlation, commands.Done(), level)
        for one in concerned:
            self._serving.serve_group(one.identity, now_ms)

    def _groups(self, command: Seek | Suspend) -> list[Group]:
        """The group in each partition, that of the subject's own first."""
        partitions = self._further.whole(command.subject)
        found = [self._state.group_of(partition.name, command.group) for partition in partitions]
        groups = [group for group in found if group is not None]
        if not groups:
            detail = f"subject {command.subject!r} has no group {command.group!r}"
            raise Refused("not_found", detail)
        return groups

    def _place(self, waiting: WaitingSeek, partition: Partition) -> tuple[int, int]:
        cursor, start_ms = begin(partition, waiting.seek.place, waiting.seek.value)
        if start_ms:
            cursor = first_since(self._consume_log, partition, (cursor, start_ms), waiting)
            start_ms = start_ms if cursor == partition.next_sequence else 0
        return cursor, start_ms


def _sum_of(effects: Sequence[SoughtAnswer]) -> SoughtAnswer:
    """What a seek does in all lanes and partitions; the places are those of the last one, the subject itself."""
    return replace(
        effects[-1],
        again=sum(effect.again for effect in effects),
        skipped=sum(effect.skipped for effect in effects),
        in_flight=sum(effect.in_flight for effect in effects),
        failed=sum(effect.failed for effect in effects),
    )


def _effect(partition: Partition, group: Group, cursor: int) -> SoughtAnswer:
    before = max(group.cursor, partition.first_kept)
    return SoughtAnswer(
        before,
        cursor,
        again=max(0, before - cursor),
        skipped=max(0, min(cursor, partition.visible) - before),
        in_flight=group.in_flight,
        failed=group.failed_count(),
    )
