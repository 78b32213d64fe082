"""Dead letters: copies of messages that will not be tried again, in a subject of their own.

A failure that is doomed is read from the message log, copied with the reason into ``%dead%<subject>%<group>``, and
taken out of the error log by a DEAD action of the same ``Ready``. The copy is a batch like any other, with its own
retention; the group has a twin of its name in that subject, which is given nothing new and everything that is redriven.

    doomed  --its batch was read-->  copied, DEAD written
            --the disk is full---->  doomed, until there is room
            --it does not exist--->  VOID: a power cut took it
            --none are kept, by the group's declaration or its subject's-->  DEAD without a copy, and counted
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from tidemill_broker.actions import NOWHERE, Buried, FailureDetail, GroupNamed, Purged, Redriven, Voided
from tidemill_broker.consume_log import ConsumeLog, Loading
from tidemill_broker.copies import Messages, copy_of, messages_of, remains
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
from tidemill_wire.errors import CorruptBatch, Refused, Unavailable, WireError
from tidemill_wire.fields import dead_subject, living_subject
from tidemill_wire.ranges import pairs

PRODUCER = 1 << 62
"""The producer id of the broker's own batches, with the number of its life."""

DOOMED_LOOKS = 64
"""At what a group has doomed, for something that is not under way: behind that it waits for what is."""

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
        self._reading: dict[tuple[int, int], tuple[int, int]] = {}
        """Group and message that something is read for -> what the batch that is read begins and ends with."""
        self._served = 0
        """The group that something was begun for last."""
        self._refused: dict[int, str] = {}
        """Groups whose dead letters nobody takes, and the name of the error: it is counted once."""
        self.freed: set[int] = set()
        """Groups in order that may go on: what they waited for is buried."""

    def bury(self, now_ms: int) -> None:
        """Begin with as much as may be under way at once, a batch of each group in turn."""
        if not self._state.doomed or self._is_full:
            return
        order = sorted(self._state.doomed)
        behind = bisect_right(order, self._served)
        line = deque(order[behind:] + order[:behind])
        while line and not self._is_full:
            group = self._state.groups[line.popleft()]
            first = self._next(group)
            if first is not None:
                self._served = group.identity
                if self._begin(group, group.failed[first], now_ms):
                    line.append(group.identity)
            elif not group.doomed:
                self._state.doomed.discard(group.identity)

    @property
    def _is_full(self) -> bool:
        return len(self._reading) >= limits.DEAD_READS_MAX or self._intake.refusal is not None

    def _next(self, group: Group) -> int | None:
        """What is doomed and not under way yet, among what was doomed first."""
        here = [span for (identity, _), span in self._reading.items() if identity == group.identity]
        for first in islice(group.doomed, DOOMED_LOOKS):
            if not any(low <= first < end for low, end in here):
                return first
        return None

    def redrive(self, subject: str, name: str, ranges: list[int], now_ms: int) -> tuple[Group, int]:
        """Give dead letters to their group again; the group's twin, and how many that were."""
        twin = self._twin_of(subject, name)
        return twin, self._desk.act(Redriven(twin.identity, now_ms, self._existing(twin, ranges)), now_ms)

    def purge(self, subject: str, name: str, ranges: list[int], now_ms: int) -> int:
        """Nobody wants them any more; how many that were."""
        twin = self._twin_of(subject, name)
        return self._desk.act(Purged(twin.identity, self._existing(twin, ranges)), now_ms)

    def keeps(self, group: Group) -> bool:
        """Whether what a group gives up becomes dead letters, by what is declared of it and of its subject."""
        partition = self._state.partitions[group.partition]
        subject = self._state.by_name.get(living_subject(partition.name).encode(), partition)
        return group.settings.dead_letters and subject.settings.dead_letters

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

    def messages_at(self, grave: Partition, first: int) -> int:
        """How many messages the batch of dead letters has that begins there; 0: it is not kept any more."""
        try:
            rows = self._consume_log.rows_for(grave, first, _nobody)
        except Loading:
            raise Unavailable(
                "too_many_requests", "where those dead letters lie has to be read first"
            ) from None
        index = rows.find(first) if rows is not None else 0
        if rows is None or index == len(rows) or rows.firsts[index] != first:
            return 0
        return row_count(rows.sizes[index])

    def _begin(self, group: Group, failure: Failure, now_ms: int) -> bool:
        """Whether that was possible."""
        partition = self._state.partitions[group.partition]
        first, key = failure.first, (group.identity, failure.first)
        try:
            rows = self._consume_log.rows_for(partition, first, partial(self._again, key))
        except Loading:
            self._reading[key] = (first, first + 1)
            return True
        index = rows.find(first) if rows is not None else 0
        if rows is None or index == len(rows) or rows.firsts[index] >= first + failure.messages:
            self._void(group, first, failure.messages, now_ms)
        elif rows.firsts[index] > first:
            self._void(group, first, rows.firsts[index] - first, now_ms)
        elif not self.keeps(group):
            self._desk.counters.dead_dropped += failure.messages
            self._desk.act(Buried(group.identity, first, failure.messages, NOWHERE), now_ms)
            self._free(group)
        else:
            try:
                self.grave(group, now_ms)
            except (
                WireError
            ) as error:  # no number for a subject more; when it is read for nothing nobody knows it
                self._note_refused(group, error)
                return False
            low, size = rows.firsts[index], rows.sizes[index]
            self._reading[key] = (low, low + row_count(size))
            file, place = self._desk.logs.messages.locate(rows.positions[index])
            piece = Slice(file, place, row_length(size))
            self._desk.read(piece, lambda data, at_ms: self._read(group, key, data, at_ms))
        return True

    def _note_refused(self, group: Group, error: WireError) -> None:
        if self._refused.get(group.identity) != error.kind.name:
            self._refused[group.identity] = error.kind.name
            self._desk.counters.refused[error.kind.name] += 1

    def _again(self, key: tuple[int, int], now_ms: int) -> None:
        del self._reading[key]
        self.bury(now_ms)

    def _void(self, group: Group, first: int, messages: int, now_ms: int) -> None:
        self._desk.counters.messages_voided += messages
        self._desk.act(Voided(group.identity, first, messages), now_ms)
        self._free(group)

    def _free(self, group: Group) -> None:
        if group.ordered:
            self.freed.add(group.identity)

    def _read(self, group: Group, key: tuple[int, int], data: Buffer | Unread, now_ms: int) -> None:
        """A batch is here: what is doomed in it now is buried, up to as much as may be done in one turn. Somebody may
        have moved the group meanwhile; what is left stays doomed, and is begun with again.
        """
        low, end = self._reading.pop(key)
        messages: Messages | CorruptBatch
        try:
            messages = messages_of(data, self._state.partitions[group.partition].name)
        except CorruptBatch as error:
            messages = error
        size = 0
        for first in sorted(one for one in group.doomed if low <= one < end)[: limits.DEAD_COPIES_MAX]:
            if self._intake.refusal is not None or size >= limits.DEAD_LETTER_BYTES:
                break  # no room on the disk, or none in this turn
            failure = group.failed[first]
            count = min(failure.messages, end - first)
            try:
                size += self._copy(group, failure, count, messages, now_ms)
            except WireError as error:
                self._note_refused(group, error)
                return
        self.bury(now_ms)

    def _copy(
        self, group: Group, failure: Failure, count: int, messages: Messages | CorruptBatch, now_ms: int
    ) -> int:
        """Write the copy and the DEAD action; the bytes of it."""
        target = self.grave(group, now_ms)
        known = self._known(group, failure, now_ms)
        try:
            if isinstance(messages, CorruptBatch):
                raise messages
            copy = copy_of(messages, failure, count, known)
        except CorruptBatch as error:
            known = known | {"reason": f"undecodable: {error}"}
            copy = remains(failure, count, known, now_ms)
        self._sequence += 1
        origin = Origin(
            target.raw_name, PRODUCER | self._state.boot, self._sequence, self._ids.next(now_ms),
            copy.created_at_ms, copy.codec, copy.flags, copy.priority,
        )  # fmt: skip
        position, count = self._desk.logs.messages.end, len(copy.content.bodies)
        batch = build_batch(origin, copy.content)
        self._intake.place(batch, target, now_ms)
        self._desk.stored(target)
        if target.synced:  # no answer waits for it: it would be seen half a second later
            self._desk.keeping.sync_now = True
        detail = group.doomed.get(failure.first)
        self._desk.counters.mistakes.note(detail, failure.fingerprint, count)
        self._desk.act(Buried(group.identity, failure.first, count, position), now_ms)
        self._desk.keeping.copied()
        self._desk.counters.messages_buried += count
        self._refused.pop(group.identity, None)
        self._free(group)
        return len(batch)

    def declared(self, group: Group, now_ms: int) -> None:
        """A group is declared as it is now: so are the dead letters that it has, with how long they are kept."""
        if group.identity in self._state.dead:
            self.grave(group, now_ms)

    def grave(self, group: Group, now_ms: int) -> Partition:
        """The dead-letter subject of a group, and the group's twin in it, as the group is declared now."""
        source = self._state.partitions[group.partition]
        settings = settings_of_grave(group, source)
        grave = self._intake.declare(dead_subject(base_of(source).name, group.name), settings, now_ms)
        named = naming_of_twin(self._state, group, grave)
        if named is not None:
            self._desk.act(named, now_ms)
        return grave

    def _known(self, group: Group, failure: Failure, now_ms: int) -> dict[str, Any]:
        """What a dead letter says of its death, but for its sequence."""
        source = self._state.partitions[group.partition]
        detail = group.doomed.get(failure.first)
        if detail is None:  # doomed before that was kept with it
            seen = group.errors.get(failure.fingerprint)
            detail = seen.detail if seen is not None else FORGOTTEN if failure.fingerprint else UNSAID
        return {
            "subject": base_of(source).name, "group": group.name, "attempts": failure.attempts,
            "since": failure.since_ms, "failed_at": now_ms, **detail._asdict(),
        }  # fmt: skip


def _nobody(_now_ms: int) -> None:
    """Waits for rows that are read: who asked for them asks again."""


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
