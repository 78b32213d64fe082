"""Pulls: what a consumer is given now, and who waits.

A pull names subjects; the first of them that has something answers it, taking turns. For each group the due failures
come first, then new messages. What is given is whole batches as slices of the message log, and ranges within them that
are granted. A pull with nothing to give waits at its groups until a message becomes visible, a failure becomes due, or
its time is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tidemill_broker.actions import PullRun
from tidemill_broker.consume_log import ConsumeLog
from tidemill_broker.failures import Failure
from tidemill_broker.group_settings import DEAD
from tidemill_broker.groups import Group
from tidemill_broker.holds import Hold
from tidemill_broker.logs import Logs
from tidemill_broker.order import in_place
from tidemill_broker.partitions import Partition
from tidemill_broker.positions import first_since
from tidemill_broker.pull_log import Consumer
from tidemill_broker.state import State
from tidemill_host.machine import Peer, Slice
from tidemill_journal.entries import Rows, row_count, row_length
from tidemill_wire import limits
from tidemill_wire.commands import Grant, Pull

if TYPE_CHECKING:
    from tidemill_broker.filtered import Filtered

RUNS_MAX = 1000  # runs in one answer, however small they are
SHARERS_MIN, SHARED_BYTES_MAX = 4, 16 * limits.MIB  # each who shares a batch is sent all of it
JOINED = -1  # instead of a number of batches: the run's messages are granted with those of the run before it


@dataclass(eq=False, slots=True)
class ParkedPull:
    """A pull on its way to an answer."""

    peer: Peer
    correlation: int
    pull: Pull
    consumers: list[Consumer]
    deadline_ms: int
    by_group: dict[int, Consumer]
    patterns: Sequence[str] = ()
    answered: bool = False
    hold: Hold | None = None
    """Of who asks, if that is bounded."""
    kept_back: Hold | None = None
    """What was full when something could have been given."""


class Stored(NamedTuple):
    """A batch in the message log: its row of the consume log."""

    first: int
    size: int
    position: int


class Given:
    """What one group gives to one pull."""

    __slots__ = (
        "batches", "consumer", "gathered", "masks", "messages", "missing", "places", "runs", "size", "slices",
        "unread",
    )  # fmt: skip

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.runs: list[PullRun] = []
        self.batches: list[int] = []
        self.missing: list[tuple[int, int]] = []
        self.slices: list[Slice] = []
        self.places: list[Stored] = []
        """The batches in the slices."""
        self.gathered: list[bytearray] = []
        """Batches that the broker built. They travel before the slices, so none is added when there is a slice."""
        self.masks: dict[int, bytes] = {}
        """Index of a run to the mask of its grant."""
        self.unread = ""
        """When the disk does not give the batch that the runs are in: what it refuses. Then nobody is given them."""
        self.messages = 0
        self.size = 0

    def grants(self, subject: str) -> list[Grant]:
        """The runs as the consumer is told of them."""
        if self.gathered or self.masks:
            return self._joined_grants(subject)
        return [
            Grant(subject, run.pull, run.first, run.messages, run.attempts, batches)
            for run, batches in zip(self.runs, self.batches, strict=True)
        ]

    def _joined_grants(self, subject: str) -> list[Grant]:
        grants: list[Grant] = []
        for index, (run, batches) in enumerate(zip(self.runs, self.batches, strict=True)):
            if batches == JOINED:
                continue
            end = index + 1
            while end < len(self.runs) and self.batches[end] == JOINED:
                end += 1
            count = sum(joined.messages for joined in self.runs[index:end])
            mask = self.masks.get(index, b"")
            grants.append(Grant(subject, run.pull, run.first, count, run.attempts, batches, mask))
        return grants


class Pulls:
    """Serves pulls from the consume log and the groups."""

    def __init__(self, state: State, logs: Logs, consume_log: ConsumeLog, filtered: Filtered) -> None:
        self._state = state
        self._logs = logs
        self._consume_log = consume_log
        self._filtered = filtered
        self.patterned: dict[int, ParkedPull] = {}
        """Those that wait for subjects to come, by id."""
        self.waiting: dict[
            int, dict[int, ParkedPull]
        ] = {}  # group -> id -> pull, in the order of their coming

    @property
    def count(self) -> int:
        """Pulls that wait, each for whatever it asks for."""
        return len(self.patterned.keys() | {one for some in self.waiting.values() for one in some})

    def park(self, parked: ParkedPull) -> None:
        for consumer in parked.consumers:
            identity = consumer.group.identity
            self.waiting.setdefault(identity, {})[id(parked)] = parked
            parked.by_group[identity] = consumer
        if parked.patterns:
            self.patterned[id(parked)] = parked

    def unpark(self, parked: ParkedPull) -> None:
        parked.answered = True
        self.patterned.pop(id(parked), None)
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
        room = min(pull.messages_max, self._state.room(group))
        if room <= 0:
            return given
        if group.paused is not None:
            if group.health.probe is not None or now_ms < group.health.probe_at_ms:
                return given
            room = 1
        held_up = in_place(self._state, group)
        due = (group.first_failures if held_up else group.due_failures)(now_ms, RUNS_MAX)
        is_dead = group.settings.consumption == DEAD
        new = 0 if is_dead else max(0, partition.visible - group.reached)
        room = min(room, self._in_flight(parked, group, new, due))
        if room <= 0:
            return given
        room = min(room, self._share(parked, group, new, due))
        for failure in due:
            missing = self._missing(parked, partition, failure)
            if missing:
                given.missing.append((failure.first, missing))
                continue
            wanted = (failure.first, failure.messages, failure.attempts)
            if given.messages >= room or self._add_again(parked, given, wanted, room) < failure.messages:
                return given
        if held_up and len(given.runs) < len(group.failed):
            return given  # what failed comes before anything newer, also when it is not due yet
        if given.messages < room and given.size < pull.bytes_max and not is_dead:
            if group.settings.tags:
                self._filtered.add_new(parked, given, room, now_ms)
            else:
                self._add_new(parked, partition, given, group, room)
        return given

    def _in_flight(self, parked: ParkedPull, group: Group, new: int, due: Sequence[Failure]) -> int:
        """How much quotas have room for; when they have none, they keep back what could be given."""
        least = group.subject_hold
        if parked.hold is not None and parked.hold.room < least.room:
            least = parked.hold
        if least.room <= 0 and (due or (new and not (in_place(self._state, group) and group.failed))):
            self._state.holds.keep_back(group.identity, least)
            parked.kept_back = least
        return least.room

    def _share(self, parked: ParkedPull, group: Group, new: int, due: Sequence[Failure]) -> int:
        """How much one of several waiting pulls may take: when little has come, all of them get some of it, but not of
        a batch so large that sending it to all of them would be a flood.
        """
        waiting = 1 if group.ordered else len(self.waiting.get(group.identity, ()))
        if waiting <= 1:
            return limits.IN_FLIGHT_MAX
        there = new + sum(failure.messages for failure in due)
        share = max(1, -(-there // waiting))
        if waiting <= SHARERS_MIN:
            return share
        partition = self._state.partitions[group.partition]
        first = due[0].first if due else max(group.cursor, partition.first_kept)
        rows = self._consume_log.rows_for(partition, first, parked)
        index = rows.find(first) if rows is not None else 0
        if rows is None or index == len(rows):
            return share
        size = rows.sizes[index]
        sharers = max(SHARERS_MIN, SHARED_BYTES_MAX // row_length(size))
        return max(share, -(-row_count(size) // sharers))

    def _add_again(self, parked: ParkedPull, given: Given, wanted: tuple[int, int, int], room: int) -> int:
        """Give a failure, or the beginning of it."""
        group = given.consumer.group
        if group.settings.tags and wanted[1] <= room - given.messages:
            got = self._filtered.add_again(parked, given, wanted)
            if got is not None:
                return got
        return self._add(parked, self._state.partitions[group.partition], given, wanted, room)

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
            cursor = first_since(self._consume_log, partition, (cursor, group.start_ms), parked)
        while cursor < partition.visible and given.messages < room and len(given.runs) < RUNS_MAX:
            if given.messages and given.size >= parked.pull.bytes_max:
                return
            rows = self._consume_log.rows_for(partition, cursor, parked)
            if rows is None:
                return
            index = rows.find(cursor)
            if index >= len(rows):
                cursor = rows.end_sequence
                continue
            first = max(cursor, rows.firsts[index])
            got = self._add(parked, partition, given, (first, partition.visible - first, 0), room)
            if not got:
                return
            cursor = first + got

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
            add_slice(self._logs, given, rows, index)
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


def add_slice(logs: Logs, given: Given, rows: Rows, row: int) -> None:
    """Batches that lie back to back in one segment travel as one slice."""
    stored = Stored(rows.firsts[row], rows.sizes[row], rows.positions[row])
    given.places.append(stored)
    file, place = logs.messages.locate(stored.position)
    length = row_length(stored.size)
    if given.slices:
        last = given.slices[-1]
        if last.file == file and last.position + last.size == place:
            given.slices[-1] = Slice(file, last.position, last.size + length)
            return
    given.slices.append(Slice(file, place, length))
