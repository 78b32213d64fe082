"""Pulls: what a consumer is given now, and who waits.

A pull names subjects; the first of them that has something answers it, taking turns. For each group the due failures
come first, then new messages. What is given is whole batches as slices of the message log, and ranges within them that
are granted. A pull with nothing to give waits at its groups until a message becomes visible, a failure becomes due, or
its time is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill_broker.actions import PullRun
from tidemill_broker.consume_log import ConsumeLog
from tidemill_broker.failures import Failure
from tidemill_broker.group_settings import DEAD
from tidemill_broker.groups import Consumer, Group
from tidemill_broker.logs import Logs
from tidemill_broker.partitions import Partition
from tidemill_broker.state import State
from tidemill_host.machine import Peer, Slice
from tidemill_journal.entries import Rows, row_count, row_length
from tidemill_wire import limits
from tidemill_wire.commands import Grant, Pull

RUNS_MAX = 1000  # runs in one answer, however small they are


@dataclass(eq=False, slots=True)
class ParkedPull:
    """A pull on its way to an answer."""

    peer: Peer
    correlation: int
    pull: Pull
    consumers: list[Consumer]
    deadline_ms: int
    answered: bool = False


@dataclass(slots=True)
class Given:
    """What one group gives to one pull."""

    consumer: Consumer
    runs: list[PullRun] = field(default_factory=list[PullRun])
    batches: list[int] = field(default_factory=list[int])
    missing: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    slices: list[Slice] = field(default_factory=list[Slice])
    messages: int = 0
    size: int = 0

    def grants(self, subject: str) -> list[Grant]:
        """The runs as the consumer is told of them."""
        return [
            Grant(subject, run.pull, run.first, run.messages, run.attempts, batches)
            for run, batches in zip(self.runs, self.batches, strict=True)
        ]


class Pulls:
    """Serves pulls from the consume log and the groups."""

    def __init__(self, state: State, logs: Logs, consume_log: ConsumeLog) -> None:
        self._state = state
        self._logs = logs
        self._consume_log = consume_log
        self.waiting: dict[
            int, dict[int, ParkedPull]
        ] = {}  # group -> id -> pull, in the order of their coming

    def park(self, parked: ParkedPull) -> None:
        for consumer in parked.consumers:
            self.waiting.setdefault(consumer.group.identity, {})[id(parked)] = parked

    def unpark(self, parked: ParkedPull) -> None:
        parked.answered = True
        for consumer in parked.consumers:
            waiting = self.waiting.get(consumer.group.identity)
            if waiting is not None:
                waiting.pop(id(parked), None)
                if not waiting:
                    del self.waiting[consumer.group.identity]

    def stale(self, parked: ParkedPull) -> list[ParkedPull]:
        """Pulls of the same consumers over other connections: what they are given would reach nobody."""
        found = {
            number: other
            for consumer in parked.consumers
            for number, other in self.waiting.get(consumer.group.identity, {}).items()
            if other.pull.consumer == parked.pull.consumer and other.peer != parked.peer
        }
        return list(found.values())

    def collect(self, parked: ParkedPull, consumer: Consumer, now_ms: int) -> Given:
        """What the consumer's group has for it now. Raises ``Loading`` when that has to be read first."""
        group = consumer.group
        partition = self._state.partitions[group.partition]
        given = Given(consumer)
        pull = parked.pull
        room = min(pull.messages_max, limits.IN_FLIGHT_MAX - group.in_flight)
        if group.paused is not None:
            if group.health.probe is not None or now_ms < group.health.probe_at_ms:
                return given
            room = min(room, 1)
        for failure in group.due_failures(now_ms, RUNS_MAX):
            missing = self._missing(parked, partition, failure)
            if missing:
                given.missing.append((failure.first, missing))
                continue
            wanted = (failure.first, failure.messages, failure.attempts)
            if given.messages >= room or self._add(parked, partition, given, wanted, room) < failure.messages:
                return given
        if given.messages < room and given.size < pull.bytes_max and group.settings.consumption != DEAD:
            self._add_new(parked, partition, given, group, room)
        return given

    def _missing(self, parked: ParkedPull, partition: Partition, failure: Failure) -> int:
        """How many messages at the beginning of a failure do not exist: a power cut took them."""
        rows = self._consume_log.rows_for(partition, failure.first, parked)
        index = rows.find(failure.first) if rows is not None else 0
        if rows is None or index == len(rows):
            return failure.messages
        return min(failure.messages, max(0, rows.firsts[index] - failure.first))

    def _add_new(
        self, parked: ParkedPull, partition: Partition, given: Given, group: Group, room: int
    ) -> None:
        cursor = max(group.cursor, partition.first_kept)
        if group.start_ms:
            cursor = self._consume_log.since(partition, cursor, group.start_ms)
        while cursor < partition.visible and given.messages < room and len(given.runs) < RUNS_MAX:
            if given.messages and given.size >= parked.pull.bytes_max:
                return
            rows = self._consume_log.rows_for(partition, cursor, parked)
            if rows is None:
                return
            index = rows.find(cursor)
            if group.start_ms:
                index = self._skip_before(rows, index, group.start_ms)
            if index >= len(rows):
                cursor = rows.end_sequence
                continue
            first = max(cursor, rows.firsts[index])
            got = self._add(parked, partition, given, (first, partition.visible - first, 0), room)
            if not got:
                return
            cursor = first + got

    def _skip_before(self, rows: Rows, index: int, start_ms: int) -> int:
        while index < len(rows) and rows.stamps[index] < start_ms:
            index += 1
        return index

    def _add(
        self, parked: ParkedPull, partition: Partition, given: Given, wanted: tuple[int, int, int], room: int
    ) -> int:
        """Give messages from ``first`` on as one run, as far as rows and room reach; how many that were."""
        first, count, attempts = wanted
        rows = self._consume_log.rows_for(partition, first, parked)
        if rows is None:
            return 0
        index = rows.find(first)
        end = min(first + count, first + room - given.messages, partition.visible)
        following, batches, size_max = first, 0, parked.pull.bytes_max
        while index < len(rows) and following < end:
            row_first, size = rows.firsts[index], rows.sizes[index]
            length = row_length(size)
            if row_first > following or (given.size and given.size + length > size_max):
                break
            self._add_slice(given, rows.positions[index], length)
            given.size += length
            following = row_first + row_count(size)
            batches += 1
            index += 1
        got = min(following, end) - first
        if got > 0:
            given.runs.append(PullRun(0, first, got, attempts))
            given.batches.append(batches)
            given.messages += got
        return max(got, 0)

    def _add_slice(self, given: Given, position: int, length: int) -> None:
        """Batches that lie back to back in one segment travel as one slice."""
        file, place = self._logs.messages.locate(position)
        if given.slices:
            last = given.slices[-1]
            if last.file == file and last.position + last.size == place:
                given.slices[-1] = Slice(file, last.position, last.size + length)
                return
        given.slices.append(Slice(file, place, length))
