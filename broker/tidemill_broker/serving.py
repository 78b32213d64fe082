"""Answers pulls: at once when there is something, else when something comes or the time is over.

parked  --something for one of its groups-->  answered with grants and slices
parked  --its wait is over-------------------> answered with nothing
parked  --its connection ends, the broker drains-->  gone
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemill_broker.actions import Acked, GroupResumed, Pulled, PullRun, Voided
from tidemill_broker.alarms import Alarms
from tidemill_broker.consume_log import ConsumeLog, Loading
from tidemill_broker.desk import Desk
from tidemill_broker.filtered import Filtered
from tidemill_broker.groups import Group
from tidemill_broker.intake import Intake
from tidemill_broker.lanes import Lane
from tidemill_broker.locks import Locks
from tidemill_broker.members import Members, replaced
from tidemill_broker.order import in_place
from tidemill_broker.partitions import Partition
from tidemill_broker.patterns import Patterns, check_bound
from tidemill_broker.pull_log import Consumer
from tidemill_broker.pulls import Given, ParkedPull, Pulls
from tidemill_broker.ranges import merge_ranges
from tidemill_broker.salvage import Salvage
from tidemill_broker.sifting import Sifting
from tidemill_broker.turns import Turns
from tidemill_broker.twins import graves_of, namesakes_of
from tidemill_host.machine import Buffer, Durability, Peer, Unread
from tidemill_wire import commands, limits
from tidemill_wire.commands import Pull
from tidemill_wire.errors import Unavailable, WireError
from tidemill_wire.filters import EVERYTHING, TagFilter, matches_pattern, split_patterns
from tidemill_wire.quotas import full


class Serving:
    """Pulls, parked and answered."""

    def __init__(
        self, desk: Desk, intake: Intake, members: Members, consume_log: ConsumeLog, locks: Locks
    ) -> None:
        self._desk = desk
        self._state = desk.state
        self._intake = intake
        self._members = members
        self._locks = locks
        self._filtered = Filtered(desk, consume_log)
        self._salvage = Salvage(desk, self.serve_group)
        self.pulls = Pulls(desk.state, desk.logs, consume_log, self._filtered)
        self._patterns = Patterns(desk.state)
        self._parked: dict[Peer, dict[int, ParkedPull]] = {}
        self._ends = Alarms[ParkedPull](lambda _at_ms, parked: not parked.answered)
        self._turns = Turns(desk.state)

    def joined(self, peer: Peer) -> None:
        """A connection."""
        self._parked[peer] = {}

    def left(self, peer: Peer) -> None:
        """Nobody is there to be answered."""
        for parked in list(self._parked.pop(peer, {}).values()):
            self.pulls.unpark(parked)

    def knows(self, peer: Peer) -> bool:
        """Whether the connection is still there."""
        return peer in self._parked

    def enter(self, peer: Peer, correlation: int, pull: Pull, now_ms: int) -> ParkedPull:
        """The consumers of a pull. One that says what is held ends those of older connections."""
        parked_here = self._parked[peer]
        if len(parked_here) >= limits.CORRELATIONS_MAX:
            raise Unavailable("too_many_requests", f"{len(parked_here)} pulls of this connection wait")
        subjects, patterns = split_patterns(pull.subjects)
        partitions = [
            self._state.by_name.get(subject.encode()) or self._intake.create(subject.encode(), now_ms)
            for subject in subjects
        ]
        consumers = [self._members.enrol(peer, pull, partition, now_ms) for partition in partitions]
        for pattern in patterns:
            consumers += self._enrol_matching(peer, pull, pattern, consumers, now_ms)
        tags, every, versions = pull.filter.tags, pull.filter.every, pull.versions()
        for consumer in consumers:
            settings = consumer.group.settings
            if settings.tags != tags or settings.all_tags != every:
                self._members.agree(consumer, pull.filter, now_ms)
            self._locks.allocate(consumer, pull.allocation, now_ms, versions)
        if self._state.lanes:
            consumers += [
                one for consumer in consumers for one in self._enrol_in_lanes(peer, pull, consumer, now_ms)
            ]
        if self._state.dead:
            graves = graves_of(self._state, self._intake.further, consumers)
            consumers += [self._members.enrol(peer, pull, grave, now_ms) for grave in graves]
        parked = ParkedPull(peer, correlation, pull, consumers, now_ms + pull.wait_ms, {}, patterns)
        if pull.bound is not None:
            parked.hold = self._state.holds.of_identity(pull.bound)
        if pull.held is not None:
            for stale in self.pulls.stale(parked):
                self.pulls.unpark(stale)
                self._parked[stale.peer].pop(id(stale), None)
                self._desk.refuse(stale.peer, stale.correlation, replaced(stale.pull))
        return parked

    def begin(self, parked: ParkedPull, now_ms: int) -> None:
        """Answer, or wait."""
        self._parked[parked.peer][id(parked)] = parked
        self.pulls.park(parked)
        self._serve(parked, now_ms)
        if not parked.answered:
            self._ends.set(parked.deadline_ms, parked)
            self._desk.wake(parked.deadline_ms)

    def loaded(self, parked: ParkedPull, now_ms: int) -> None:
        """What a pull needed read is there."""
        if not parked.answered:
            self._serve(parked, now_ms)

    def _enrol_matching(
        self, peer: Peer, pull: Pull, pattern: str, others: Sequence[Consumer], now_ms: int
    ) -> list[Consumer]:
        named = {consumer.group.partition for consumer in others}
        found = [one for one in self._patterns.partitions(pattern) if one.identity not in named]
        check_bound(pattern, len(others) + len(found))
        self._patterns.begin(pull.group, pattern)
        return [self._enrol_in(peer, pull, pattern, partition, now_ms) for partition in found]

    def _enrol_in(self, peer: Peer, pull: Pull, pattern: str, partition: Partition, now_ms: int) -> Consumer:
        if pull.group not in partition.groups:
            pull = replace(pull, start=self._patterns.start(pull.group, pattern, partition, pull.start))
        return self._members.enrol(peer, pull, partition, now_ms)

    def _join(self, partition: Partition, now_ms: int) -> None:
        """A subject is new: pulls that wait and name a pattern of it wait for it, too. A lane is new: those of its
        subject do.
        """
        if isinstance(partition, Lane):
            for identity in list(partition.groups.values()):
                head = self._state.family(self._state.groups[identity])[-1]
                self._widen(head, partition, now_ms)
            return
        for parked in list(self.pulls.patterned.values()):
            pattern = next((one for one in parked.patterns if matches_pattern(one, partition.name)), None)
            if pattern is None or any(one.group.partition == partition.identity for one in parked.consumers):
                continue
            try:
                check_bound(pattern, len(parked.consumers) + 1)
                consumer = self._enrol_in(parked.peer, parked.pull, pattern, partition, now_ms)
                self._members.agree(consumer, parked.pull.filter, now_ms)
            except WireError as error:
                self.pulls.unpark(parked)
                self._parked[parked.peer].pop(id(parked), None)
                self._desk.refuse(parked.peer, parked.correlation, error)
                continue
            parked.consumers.append(consumer)
            self.pulls.park(parked)

    def sifted(self, token: int, data: Buffer | Unread, now_ms: int) -> bool:
        """Whether it was a filter that asked for these bytes; then it goes on."""
        seats = self._filtered.seats
        if not seats.holds(token):
            return False
        ready = seats.loaded(token, data)
        while ready is not None:
            self.serve_group(ready, now_ms)
            ready = seats.next_in_line()
        return True

    def ticked(self, now_ms: int) -> None:
        """Whose time is over, and whose failures have become due."""
        while (over := self._ends.first()) is not None and over[0] <= now_ms:
            self._end(over[1], now_ms)
        later, self._filtered.later = self._filtered.later, {}
        for identity in later:
            self.serve_group(identity, now_ms)
        for group in self._restless():
            if any(due <= now_ms for due in self._dues(group)):
                self.serve_group(group.identity, now_ms)

    def next_wake(self, at_most: int, now_ms: int) -> int:
        """When ``ticked`` has something to do, or ``at_most``. What is due by now and was not given out waits for
        something else: room, a lock, an end of a suspension.
        """
        wake = at_most if not self._filtered.later else now_ms
        wake = min(wake, (self._ends.first() or (wake,))[0])
        for group in self._restless():
            wake = min([wake, *(due for due in self._dues(group) if due > now_ms)])
        return wake

    def _restless(self) -> list[Group]:
        """Groups that somebody waits for, and to which time alone may bring something. Thousands wait for messages."""
        waiting = map(self._state.groups.__getitem__, self.pulls.waiting)
        return [group for group in waiting if group.failed or group.owner or group.paused is not None]

    def _dues(self, group: Group) -> list[int]:
        """When time alone may bring something to those who wait for a group."""
        failure = group.first_due() if in_place(self._state, group) else group.next_failure()
        dues = [failure.due_ms] if failure is not None else []
        if group.paused is not None:  # a probe may be of what failed, or new
            probe_at_ms = group.health.probe_at_ms
            dues = (
                [probe_at_ms, *(max(probe_at_ms, due) for due in dues)] if group.health.probe is None else []
            )
        if group.owner:
            dues.append(self._locks.free_ms(group))
        return dues

    def show(self, shown: Mapping[int, int], now_ms: int) -> None:
        """Messages of partitions below these ends may be seen. All of them before anybody is given one: else of two
        lanes that are shown together the lower one could be first.
        """
        partitions = [self._state.partitions[identity] for identity in shown]
        for partition in partitions:
            partition.visible = max(partition.visible, shown[partition.identity])
        if self._patterns.has_new:
            for new in self._patterns.new():
                self._join(new, now_ms)
        for partition in partitions:
            for identity in partition.groups.values():
                if identity in self.pulls.waiting:
                    self.serve_group(identity, now_ms)

    def serve_group(self, identity: int, now_ms: int) -> None:
        """Something may have come for a group: serve those who wait, in the order of their coming. In a group in order
        whoever has the lock may have come last.
        """
        for parked in list(self.pulls.waiting.get(identity, {}).values()):
            consumer = parked.by_group[identity]
            if parked.answered or self._serve(parked, now_ms, consumer) or consumer.group.ordered:
                continue
            if parked.hold is None or parked.kept_back is not parked.hold:  # else others may be given it
                return

    def adopt(self, twin: Group, now_ms: int) -> None:
        """Dead letters were redriven: those who wait for their group wait for them, too."""
        grave = self._state.partitions[twin.partition]
        for living in [one for one, identity in self._state.dead.items() if identity == twin.identity]:
            for group in namesakes_of(self._state, self._intake.further, self._state.groups[living]):
                self._widen(group, grave, now_ms)
        self.serve_group(twin.identity, now_ms)

    def _widen(self, group: Group, partition: Partition, now_ms: int) -> None:
        """Who waits for a group waits for its namesake in another partition, too."""
        for parked in list(self.pulls.waiting.get(group.identity, {}).values()):
            if any(consumer.group.partition == partition.identity for consumer in parked.consumers):
                continue
            self.pulls.unpark(parked)
            parked.answered = False
            parked.consumers.append(self._members.enrol(parked.peer, parked.pull, partition, now_ms))
            self.pulls.park(parked)

    def _enrol_in_lanes(self, peer: Peer, pull: Pull, consumer: Consumer, now_ms: int) -> list[Consumer]:
        lanes = self._state.lanes.get(consumer.group.partition, {})
        return [self._members.enrol(peer, pull, lane, now_ms) for lane in lanes.values()]

    def end_pulls(self, peer: Peer, now_ms: int) -> None:
        """A consumer that says goodbye is given nothing more."""
        for parked in list(self._parked[peer].values()):
            self._answer(parked, None, now_ms)

    def give_up(self, consumer: Consumer, now_ms: int) -> None:
        """A consumer wants nothing more of its group: its pulls that wait for it are over."""
        for parked in list(self.pulls.waiting.get(consumer.group.identity, {}).values()):
            if parked.pull.consumer == consumer.name and not parked.answered:
                self._answer(parked, None, now_ms)

    def drain(self) -> None:
        """Who waits is told that the broker stops."""
        error = Unavailable("shutting_down", "the broker is about to stop")
        for peer in self._parked:
            for parked in self._parked[peer].values():
                self.pulls.unpark(parked)
                self._desk.refuse(peer, parked.correlation, error)
            self._parked[peer] = {}

    def _serve(self, parked: ParkedPull, now_ms: int, only: Consumer | None = None) -> bool:
        """Answer a pull if its groups have something for it; ``only`` one of them can have, when that is known."""
        sifting = False
        for consumer in self._turns.of(parked, only, now_ms):
            group = consumer.group
            if group.ordered and not self._locks.hold(
                self._turns.head(parked, consumer), parked.pull.wait_ms, now_ms
            ):
                continue
            if group.reached >= self._state.partitions[group.partition].visible and not group.failed:
                continue
            try:
                given = self._collect(parked, consumer, now_ms)
            except Sifting:
                sifting = True
                continue
            except Loading:
                return False
            if given.runs:
                if self._state.kin and group.identity in self._state.kin:
                    self._state.kin[group.identity].gave(group, given.messages)
                self._answer(parked, given, now_ms)
                return True
        if self._filtered.later:
            self._desk.wake(now_ms + 1)
        if parked.deadline_ms <= now_ms and not sifting:
            self._end(parked, now_ms)
            return True
        return False

    def _collect(self, parked: ParkedPull, consumer: Consumer, now_ms: int) -> Given:
        """What there is; failures of messages that do not exist are voided on the way, what cannot be read dies."""
        while True:
            given = self.pulls.collect(parked, consumer, now_ms)
            for first, messages in given.missing:
                self._desk.counters.messages_voided += messages
                self._desk.act(Voided(consumer.group.identity, first, messages), now_ms)
            if given.unread:
                self._filtered.doom(given, now_ms)
            elif given.runs or not given.missing:
                return given

    def serve_freed(self, now_ms: int) -> None:
        """Something was settled: those go on whom a quota kept back."""
        for identity in self._state.holds.freed():
            self.serve_group(identity, now_ms)

    def _end(self, parked: ParkedPull, now_ms: int) -> None:
        """Its time is over. Who was kept back is told so, for there was something."""
        kept_back = parked.kept_back
        if kept_back is None or kept_back.room > 0:
            self._answer(parked, None, now_ms)
            return
        self.pulls.unpark(parked)
        self._parked[parked.peer].pop(id(parked), None)
        self._intake.quotas.told_to_wait.note(kept_back.name, 1)
        self._desk.refuse(parked.peer, parked.correlation, full(kept_back.bound, parked.pull.wait_ms))

    def _answer(self, parked: ParkedPull, given: Given | None, now_ms: int) -> None:
        self.pulls.unpark(parked)
        self._parked[parked.peer].pop(id(parked), None)
        if given is None:
            self._desk.say(parked.peer, parked.correlation, commands.Pulled([], 0), Durability.HERE)
            return
        group, counters = given.consumer.group, self._desk.counters
        partition = self._state.partitions[group.partition]
        lease_ms = self._locks.lease_ms(group)
        self._grant(given, now_ms)
        if parked.hold is not None:
            given.consumer.given(len(given.runs), parked.hold)
        level = min(self._desk.level(partition), Durability.WRITTEN)
        if parked.pull.once:
            level = self._ack(given, now_ms)
        counters.messages_out += given.messages
        counters.bytes_out += given.size
        settings = group.settings
        wanted = TagFilter(settings.tags, settings.all_tags) if settings.tags else EVERYTHING
        gathered = memoryview(b"".join(given.gathered))
        answer = commands.Pulled(given.grants(partition.name), lease_ms, gathered, group.ordered, wanted)
        self._salvage.send(parked, given, answer, level)

    def _ack(self, given: Given, now_ms: int) -> Durability:
        """At most once: it is handled as soon as it is given out, and leaves when that is as durable as an ack."""
        ranges = merge_ranges([(run.pull, run.messages) for run in given.runs])
        group = given.consumer.group
        low = self._state.partitions[group.partition].low
        acked = Acked(given.consumer.identity, ranges)
        self._desk.counters.messages_acked += self._desk.act(acked, now_ms, low=low)
        if group.paused is not None:  # nobody will say how the probe went
            group.health.end_pause()
            self._desk.act(GroupResumed(group.identity), now_ms)
        return self._desk.level(self._state.partitions[group.partition])

    def _grant(self, given: Given, now_ms: int) -> None:
        """Number the deliveries and write the PULL."""
        pull = self._state.next_pull
        for index, run in enumerate(given.runs):
            given.runs[index] = PullRun(pull, run.first, run.messages, run.attempts)
            pull += run.messages
        group = given.consumer.group
        deadline_ms, limit_ms = now_ms + self._locks.lease_ms(group), group.settings.limit_ms(now_ms)
        if group.paused is not None:
            group.health.probe = given.runs[0].pull
        low = self._state.partitions[group.partition].low
        self._desk.act(Pulled(given.consumer.identity, deadline_ms, given.runs, limit_ms), now_ms, low=low)
        self._desk.wake(deadline_ms)
