"""Dead letters: copies of messages that will not be tried again, in a subject of their own.

A failure that is doomed is read from the message log, copied with the reason into ``%dead%<subject>%<group>``, and
taken out of the error log by a DEAD action of the same ``Ready``. The copy is a batch like any other, with its own
retention; the group has a twin of its name in that subject, which is given nothing new and everything that is redriven.

    doomed  --its batch was read-->  copied, DEAD written
            --the disk is full---->  doomed, until there is room
            --it does not exist--->  VOID: a power cut took it
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tidemill_broker.actions import NOWHERE, Buried, FailureDetail, GroupNamed, Purged, Redriven, Voided
from tidemill_broker.consume_log import ConsumeLog, Loading
from tidemill_broker.copies import copy_of, remains
from tidemill_broker.desk import Desk
from tidemill_broker.failures import Failure
from tidemill_broker.group_settings import DEAD
from tidemill_broker.groups import Group
from tidemill_broker.intake import Intake
from tidemill_broker.lanes import base_of
from tidemill_broker.partitions import Partition, SubjectSettings
from tidemill_broker.state import State
from tidemill_host.machine import Buffer, Slice, Unread
from tidemill_journal.entries import row_count, row_length
from tidemill_wire import limits
from tidemill_wire.batch import BatchIds, Origin
from tidemill_wire.columns import build_batch
from tidemill_wire.errors import CorruptBatch, Refused, WireError
from tidemill_wire.fields import dead_subject
from tidemill_wire.ranges import pairs

PRODUCER = 1 << 62
"""The producer id of the broker's own batches, with the number of its life."""

UNSAID = FailureDetail("no consumer said why: its leases ended, or its consumers were gone", "", "", "")
FORGOTTEN = FailureDetail(
    "the group has met so many errors since then that this one is forgotten", "", "", ""
)


class DeadLetters:
    """Buries what is doomed; gives back, or drops, what lies there."""

    def __init__(self, desk: Desk, intake: Intake, consume_log: ConsumeLog) -> None:
        self._desk = desk
        self._state = desk.state
        self._intake = intake
        self._consume_log = consume_log
        self._ids = BatchIds(desk.state.boot)
        self._sequence = 0
        self._reading: set[tuple[int, int]] = set()
        self.freed: set[int] = set()
        """Groups in order that may go on: what they waited for is buried."""

    def bury(self, now_ms: int) -> None:
        """Begin with as much as may be under way at once."""
        for identity in list(self._state.doomed):
            group = self._state.groups[identity]
            while (first := self._next(group)) is not None:
                if len(self._reading) >= limits.DEAD_READS_MAX or self._intake.refusal is not None:
                    return
                self._begin(group, group.failed[first], now_ms)
            if not group.doomed:
                self._state.doomed.discard(identity)

    def _next(self, group: Group) -> int | None:
        """What is doomed and not under way yet."""
        return next((first for first in group.doomed if (group.identity, first) not in self._reading), None)

    def redrive(self, subject: str, name: str, ranges: list[int], now_ms: int) -> tuple[Group, int]:
        """Give dead letters to their group again; the group's twin, and how many that were."""
        twin = self._twin_of(subject, name)
        return twin, self._desk.act(Redriven(twin.identity, now_ms, self._existing(twin, ranges)), now_ms)

    def purge(self, subject: str, name: str, ranges: list[int], now_ms: int) -> int:
        """Nobody wants them any more; how many that were."""
        twin = self._twin_of(subject, name)
        return self._desk.act(Purged(twin.identity, self._existing(twin, ranges)), now_ms)

    def has_any(self, subject: str, name: str) -> bool:
        """Whether anything of a group ever died in a partition."""
        return self._state.group_of(dead_subject(subject, name), name) is not None

    def _twin_of(self, subject: str, name: str) -> Group:
        twin = self._state.group_of(dead_subject(subject, name), name)
        if twin is None:
            raise Refused("not_found", f"group {name!r} has no dead letters of subject {subject!r}")
        return twin

    def _existing(self, twin: Group, ranges: list[int]) -> list[int]:
        """The parts of ranges that are there; an empty list means all of them."""
        partition = self._state.partitions[twin.partition]
        low, high = partition.first_kept, partition.visible - 1
        wanted = ranges or [low, high]
        found: list[int] = []
        for first, last in pairs(wanted):
            if max(first, low) <= min(last, high):
                found += (max(first, low), min(last, high))
        return found

    def _begin(self, group: Group, failure: Failure, now_ms: int) -> None:
        partition = self._state.partitions[group.partition]
        first, key = failure.first, (group.identity, failure.first)
        try:
            rows = self._consume_log.rows_for(partition, first, partial(self._again, key))
        except Loading:
            self._reading.add(key)
            return
        index = rows.find(first) if rows is not None else 0
        if rows is None or index == len(rows) or rows.firsts[index] >= first + failure.messages:
            self._void(group, first, failure.messages, now_ms)
        elif rows.firsts[index] > first:
            self._void(group, first, rows.firsts[index] - first, now_ms)
        elif not group.settings.dead_letters:
            self._desk.counters.dead_dropped += failure.messages
            self._desk.act(Buried(group.identity, first, failure.messages, NOWHERE), now_ms)
            self._free(group)
        else:
            self._reading.add(key)
            file, place = self._desk.logs.messages.locate(rows.positions[index])
            count = min(failure.messages, rows.firsts[index] + row_count(rows.sizes[index]) - first)
            piece = Slice(file, place, row_length(rows.sizes[index]))
            self._desk.read(piece, lambda data, at_ms: self._read(group, first, count, data, at_ms))

    def _again(self, key: tuple[int, int], now_ms: int) -> None:
        self._reading.discard(key)
        self.bury(now_ms)

    def _void(self, group: Group, first: int, messages: int, now_ms: int) -> None:
        self._desk.counters.messages_voided += messages
        self._desk.act(Voided(group.identity, first, messages), now_ms)
        self._free(group)

    def _free(self, group: Group) -> None:
        if group.ordered:
            self.freed.add(group.identity)

    def _read(self, group: Group, first: int, count: int, data: Buffer | Unread, now_ms: int) -> None:
        self._reading.discard((group.identity, first))
        failure = group.failed.get(first)
        if failure is not None and first in group.doomed:  # else somebody moved the group meanwhile
            count = min(count, failure.messages)  # it may have come back, and have failed otherwise
            try:
                self._copy(group, failure, count, data, now_ms)
            except WireError:
                return  # no room on the disk: it stays doomed, and ``ticked`` tries again
        self.bury(now_ms)

    def _copy(self, group: Group, failure: Failure, count: int, data: Buffer | Unread, now_ms: int) -> None:
        """Write the copy and the DEAD action."""
        source = self._state.partitions[group.partition]
        target = self.grave(group, now_ms)
        known = self._known(group, source, failure, now_ms)
        try:
            copy = copy_of(data, failure, count, known)
        except CorruptBatch as error:
            known = known | {"reason": f"undecodable: {error}"}
            copy = remains(failure, count, known, now_ms)
        self._sequence += 1
        origin = Origin(
            target.raw_name, PRODUCER | self._state.boot, self._sequence, self._ids.next(now_ms),
            copy.created_at_ms, copy.codec, copy.flags, copy.priority,
        )  # fmt: skip
        position, count = self._desk.logs.messages.end, len(copy.content.bodies)
        self._intake.place(build_batch(origin, copy.content), target, now_ms)
        self._desk.stored(target)
        if target.synced:  # no answer waits for it: it would be seen half a second later
            self._desk.keeping.sync_now = True
        detail = group.doomed.get(failure.first)
        self._desk.counters.mistakes.note(detail, failure.fingerprint, count)
        self._desk.act(Buried(group.identity, failure.first, count, position), now_ms)
        self._desk.keeping.copied()
        self._desk.counters.messages_buried += count
        self._free(group)

    def grave(self, group: Group, now_ms: int) -> Partition:
        """The dead-letter subject of a group, and the group's twin in it, as the group is declared now."""
        source = self._state.partitions[group.partition]
        settings = settings_of_grave(group, source)
        grave = self._intake.declare(dead_subject(base_of(source).name, group.name), settings, now_ms)
        named = naming_of_twin(self._state, group, grave)
        if named is not None:
            self._desk.act(named, now_ms)
        return grave

    def _known(self, group: Group, source: Partition, failure: Failure, now_ms: int) -> dict[str, Any]:
        """What a dead letter says of its death, but for its sequence."""
        detail = group.doomed.get(failure.first)
        if detail is None:  # doomed before that was kept with it
            seen = group.errors.get(failure.fingerprint)
            detail = seen.detail if seen is not None else FORGOTTEN if failure.fingerprint else UNSAID
        return {
            "subject": base_of(source).name, "group": group.name, "attempts": failure.attempts,
            "since": failure.since_ms, "failed_at": now_ms, **detail._asdict(),
        }  # fmt: skip


def settings_of_grave(group: Group, source: Partition) -> SubjectSettings:
    """Dead letters are as durable as their subject, and kept as long as the group says."""
    keeps_seconds = group.settings.dead_letter_seconds
    return SubjectSettings(source.settings.durability, keeps_seconds, 0, limits.MESSAGE_BYTES_MAX)


def naming_of_twin(state: State, group: Group, grave: Partition) -> GroupNamed | None:
    """What makes the twin of a group in its dead-letter subject, or makes it like the group again; ``None``: it is."""
    settings = replace(group.settings, consumption=DEAD)
    identity = grave.groups.get(group.name)
    if identity is not None and state.groups[identity].settings == settings:
        return None
    identity = identity or state.next_group
    return GroupNamed(identity, grave.identity, group.name, 0, 0, settings.to_map())
