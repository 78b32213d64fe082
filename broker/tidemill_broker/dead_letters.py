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
from typing import Any, cast

import msgpack

from tidemill_broker.actions import NOWHERE, Buried, FailureDetail, GroupNamed, Purged, Redriven, Voided
from tidemill_broker.consume_log import ConsumeLog, Loading
from tidemill_broker.desk import Desk
from tidemill_broker.failures import Failure
from tidemill_broker.group_settings import DEAD
from tidemill_broker.groups import Group
from tidemill_broker.intake import Intake
from tidemill_broker.partitions import Partition, SubjectSettings
from tidemill_host.machine import Buffer, Slice
from tidemill_journal.entries import row_count, row_length
from tidemill_wire import limits
from tidemill_wire.batch import BatchIds, Flags, Origin
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Batch, Content, build_batch
from tidemill_wire.errors import CorruptBatch, Refused, WireError
from tidemill_wire.fields import dead_subject

PROPERTY = "tidemill.dead"
"""The property of a dead letter that says what became of it."""

PRODUCER = 1 << 62
"""The producer id of the broker's own batches, with the number of its life."""

UNKNOWN = FailureDetail("", "", "", "")


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

    def bury(self, now_ms: int) -> None:
        """Begin with as much as may be under way at once."""
        for identity in list(self._state.doomed):
            group = self._state.groups[identity]
            if not group.doomed:
                self._state.doomed.discard(identity)
            for first in list(group.doomed):
                if len(self._reading) >= limits.DEAD_READS_MAX or self._intake.refusal is not None:
                    return
                if (identity, first) not in self._reading:
                    self._begin(group, group.failed[first], now_ms)

    def redrive(self, subject: str, name: str, ranges: list[int], now_ms: int) -> tuple[Group, int]:
        """Give dead letters to their group again; the group's twin, and how many that were."""
        twin = self._twin_of(subject, name)
        return twin, self._desk.act(Redriven(twin.identity, now_ms, self._existing(twin, ranges)), now_ms)

    def purge(self, subject: str, name: str, ranges: list[int], now_ms: int) -> int:
        """Nobody wants them any more; how many that were."""
        twin = self._twin_of(subject, name)
        return self._desk.act(Purged(twin.identity, self._existing(twin, ranges)), now_ms)

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
        for first, last in zip(wanted[::2], wanted[1::2], strict=True):
            if max(first, low) <= min(last, high):
                found += (max(first, low), min(last, high))
        return found

    def _begin(self, group: Group, failure: Failure, now_ms: int) -> None:
        partition = self._state.partitions[group.partition]
        first = failure.first
        try:
            rows = self._consume_log.rows_for(partition, first, self.bury)
        except Loading:
            return
        index = rows.find(first) if rows is not None else 0
        if rows is None or index == len(rows) or rows.firsts[index] >= first + failure.messages:
            self._void(group, first, failure.messages, now_ms)
        elif rows.firsts[index] > first:
            self._void(group, first, rows.firsts[index] - first, now_ms)
        elif not group.settings.dead_letters:
            self._desk.counters.dead_dropped += failure.messages
            self._desk.act(Buried(group.identity, first, failure.messages, NOWHERE), now_ms)
        else:
            self._reading.add((group.identity, first))
            file, place = self._desk.logs.messages.locate(rows.positions[index])
            count = min(failure.messages, rows.firsts[index] + row_count(rows.sizes[index]) - first)
            piece = Slice(file, place, row_length(rows.sizes[index]))
            self._desk.read(piece, lambda data, at_ms: self._read(group, first, count, data, at_ms))

    def _void(self, group: Group, first: int, messages: int, now_ms: int) -> None:
        self._desk.counters.messages_voided += messages
        self._desk.act(Voided(group.identity, first, messages), now_ms)

    def _read(self, group: Group, first: int, count: int, data: Buffer, now_ms: int) -> None:
        self._reading.discard((group.identity, first))
        failure = group.failed.get(first)
        if failure is not None and first in group.doomed:  # else somebody moved the group meanwhile
            try:
                self._copy(group, failure, count, data, now_ms)
            except WireError:
                return  # no room on the disk: it stays doomed, and ``ticked`` tries again
        self.bury(now_ms)

    def _copy(self, group: Group, failure: Failure, count: int, data: Buffer, now_ms: int) -> None:
        """Write the copy and the DEAD action."""
        source = self._state.partitions[group.partition]
        target = self._grave(group, source, now_ms)
        batch = Batch(data)
        index = failure.first - batch.header.first_sequence
        content, count = self._content(group, failure, batch, (index, count), now_ms)
        self._sequence += 1
        origin = Origin(
            target.raw_name, PRODUCER | self._state.boot, self._sequence, self._ids.next(now_ms),
            batch.header.created_at_ms, Codec(batch.header.codec), Flags.REDELIVERED,
        )  # fmt: skip
        position = self._desk.logs.messages.end
        self._intake.place(build_batch(origin, content), target, now_ms)
        self._desk.stored(target)
        self._desk.act(Buried(group.identity, failure.first, count, position), now_ms)
        self._desk.counters.messages_buried += count

    def _grave(self, group: Group, source: Partition, now_ms: int) -> Partition:
        """The dead-letter subject of a group, and the group's twin in it."""
        name = dead_subject(source.name, group.name)
        known = self._state.by_name.get(name.encode())
        if known is not None:
            return known
        settings = SubjectSettings(
            source.settings.durability, group.settings.dead_letter_seconds, 0, limits.MESSAGE_BYTES_MAX
        )
        grave = self._intake.declare(name, settings, now_ms)
        identity = len(self._state.groups) + 1
        twin = replace(group.settings, consumption=DEAD).to_map()
        self._desk.act(GroupNamed(identity, grave.identity, group.name, 0, 0, twin), now_ms)
        return grave

    def _content(
        self, group: Group, failure: Failure, batch: Batch, part: tuple[int, int], now_ms: int
    ) -> tuple[Content, int]:
        """The columns of the copy, and how many messages it takes: those whose bodies fit."""
        index, count = part
        seen = group.errors.get(failure.fingerprint)
        known = {
            "group": group.name, "attempts": failure.attempts, "failed_at": now_ms, "since": failure.since_ms,
            **(seen.detail if seen is not None else UNKNOWN)._asdict(),
        }  # fmt: skip
        try:
            batch.check()
            bodies = _fitting(batch.bodies(index, index + count - 1))
            count = len(bodies)
            chosen = slice(index, index + count)
            properties = (batch.properties() or [b""] * batch.header.messages)[chosen]
            keys, tags, order_keys = batch.keys(), batch.tags(), batch.order_keys()
        except CorruptBatch as error:
            known["reason"] = f"undecodable: {error}"
            bodies, properties, keys, tags, order_keys = [b""] * count, [b""] * count, None, None, None
            chosen = slice(0, count)
        sequences = range(failure.first, failure.first + count)
        return Content(
            bodies,
            keys[chosen] if keys else None,
            tags[chosen] if tags else None,
            order_keys[chosen] if order_keys else None,
            [
                _with(packed, known | {"sequence": sequence}, len(bodies[at]))
                for at, (packed, sequence) in enumerate(zip(properties, sequences, strict=True))
            ],
            attempts=[failure.attempts] * count,
            origins=[batch.message_id(index + at) for at in range(count)],
        ), count


def _fitting(bodies: list[bytes]) -> list[bytes]:
    """The first few that are small enough together, at least one."""
    total = 0
    for index, body in enumerate(bodies):
        total += len(body)
        if index and total > limits.DEAD_LETTER_BYTES:
            return bodies[:index]
    return bodies


def _with(packed: bytes, known: dict[str, Any], body_size: int) -> bytes:
    """A message's properties and what is known of its death; its own give way when the batch would be too large."""
    own: object = cast("object", msgpack.unpackb(packed, strict_map_key=False)) if packed else {}
    properties = cast("dict[str, Any]", own) if isinstance(own, dict) else {}
    if (
        body_size + len(packed) + limits.PROPERTIES_BYTES_MAX
        > limits.BATCH_BYTES_MAX - limits.PROPERTIES_BYTES_MAX
    ):
        properties = {}
    return cast("bytes", msgpack.packb({**properties, PROPERTY: known}))
