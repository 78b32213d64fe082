"""What becomes of deliveries: acked, failed, extended, handed back; by their consumer, or by time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemill_broker.actions import (
    Acked,
    ConsumerForgotten,
    Extended,
    FailedDeliveries,
    FailureDetail,
    GroupPaused,
    GroupResumed,
    Parked,
    Reason,
    Released,
)
from tidemill_broker.dead_letters import DeadLetters
from tidemill_broker.desk import Desk
from tidemill_broker.failures import SILENT, SILENT_MAX, due_after, fingerprint_of
from tidemill_broker.groups import Group
from tidemill_broker.locks import Locks
from tidemill_broker.members import Members, probed
from tidemill_broker.order import in_place
from tidemill_broker.pull_log import Consumer
from tidemill_broker.pulls import ParkedPull
from tidemill_broker.ranges import merge_ranges, ranges_without
from tidemill_broker.serving import Serving
from tidemill_broker.statistics import LEVEL_MAX
from tidemill_host.machine import Durability, Peer
from tidemill_wire import commands
from tidemill_wire.commands import Ack, Extend, Nack, Release, Yield
from tidemill_wire.limits import DOOMED_MS
from tidemill_wire.pods import mark_of
from tidemill_wire.ranges import count_of, pairs, portions


class Settling:
    """Ends deliveries."""

    def __init__(
        self, desk: Desk, members: Members, serving: Serving, locks: Locks, dead_letters: DeadLetters
    ) -> None:
        self._desk = desk
        self._state = desk.state
        self._members = members
        self._serving = serving
        self._locks = locks
        self._dead_letters = dead_letters

    def settle(self, peer: Peer, correlation: int, command: commands.Settle, now_ms: int) -> None:
        """A consumer says what became of deliveries; it is told which of them were not its own any more. Leases that
        are over have ended before: which of the two this turn comes to first must not decide who has a message.
        """
        consumer = self._members.holder(command)
        self._end_leases(now_ms)
        if not consumer.peer:  # back over a new connection, and too busy to pull: who settles is not gone
            consumer.gone_at_ms = now_ms
        group, ranges = consumer.group, command.ranges
        lost = [bound for first, last in pairs(ranges) for bound in consumer.missing(first, last)]
        level = Durability.WRITTEN
        match command:
            case Ack():
                was_full = self._state.room(group) <= 0
                self._acked(consumer, command, now_ms)
                if was_full or group.ordered:
                    self._serving.serve_group(group.identity, now_ms)
                level = self._desk.level(self._state.partitions[group.partition])
            case Nack():
                self._nacked(consumer, command, now_ms)
            case Extend():
                lost += self._extend(consumer, command, now_ms)
            case Release():
                self._release(consumer, ranges, now_ms)
                if not consumer.keyed and not group.allocation:  # a start forgets the first, not the second
                    self._keep_order(group, now_ms)
                self._serving.serve_group(group.identity, now_ms)
            case _:
                raise AssertionError(command)
        self._desk.say(peer, correlation, commands.Done(lost), level)

    def goodbye(self, peer: Peer, now_ms: int) -> None:
        """A consumer that says so is gone at once, and its pulls are over: it is not given what it hands back."""
        self._serving.end_pulls(peer, now_ms)
        for consumer in self._members.of(peer):
            self._locks.free(consumer, now_ms)
            self._fail_all(consumer, now_ms)

    def give_up(self, peer: Peer, correlation: int, command: Yield, now_ms: int) -> None:
        """A consumer gives up the locks of partitions. What it holds there it may settle, and others wait for it."""
        held = 0
        for subject in command.subjects:
            group = self._state.group_of(subject, command.group)
            consumer = None if group is None else group.consumers.get(command.consumer)
            if group is None or consumer is None or not group.ordered:
                continue
            held += sum(
                delivery.count
                for one in self._state.family(group)
                if command.consumer in one.consumers
                for delivery in one.consumers[command.consumer].held()
            )
            self._serving.give_up(consumer, now_ms)
            self._locks.free(consumer, now_ms)
            self._serving.serve_group(group.identity, now_ms)
        self._desk.say(peer, correlation, commands.Done(count=held))

    def take_back(self, parked: ParkedPull, now_ms: int) -> list[int]:
        """A consumer is here over a new connection. What the broker gave it, and it does not hold, is due again; the
        groups that got something back.

        A consumer that was there all the time never began them: they are released, as if never given out. A fresh one
        cannot know what an earlier process of its name did with them; it may have died of one of them, so that counts
        as an attempt, as it does when nobody comes back.

        In order nothing may be missing before what is given next. So a consumer of such a group that does not say what
        it holds counts as holding nothing, and what lies behind something that is due again is taken back, too; but not
        from one that keeps the order of each key itself: what it says it holds is at work.
        """
        pull, groups = parked.pull, list[int]()
        for consumer in parked.consumers:
            group = consumer.group
            if pull.held is None and (not group.ordered or consumer.resumed_by == parked.peer):
                continue
            consumer.resumed_by = parked.peer
            ranges = ranges_without(_held(consumer), pull.held or [])
            if not ranges:
                continue
            groups.append(group.identity)
            if pull.fresh:
                back = self._dropped(consumer, ranges, Reason.CONSUMER_GONE, now_ms)
            else:
                back = self._release(consumer, ranges, now_ms)
                if not consumer.keyed and not group.allocation:  # a start forgets the first, not the second
                    self._keep_order(group, now_ms)
            self._desk.counters.messages_taken_back += back
        return groups

    def ticked(self, now_ms: int) -> None:
        """Leases that ended, consumers that did not come back."""
        self._end_leases(now_ms)
        for consumer in self._members.take_gone(now_ms):
            self._locks.free(consumer, now_ms)
            self._fail_all(consumer, now_ms)
            self._desk.act(
                ConsumerForgotten(consumer.identity, consumer.group.identity, consumer.name), now_ms
            )

    def vanished(self, pods: Iterable[str], now_ms: int) -> None:
        """Somebody who knows says that these pods are gone: what their consumers hold is over now, and not when they
        have been away for long. Not in order, where a consumer that lives after all would go on beside the next one.
        Who lives is told that its leases are lost, and asks again; a pull of who is gone is given nothing more.
        """
        marks = [mark_of(pod) for pod in pods]
        for group in list(self._state.groups.values()) if marks else ():
            if group.ordered:
                continue
            for consumer in list(group.consumers.values()):
                if any(mark in consumer.name for mark in marks) and any(consumer.held()):
                    self._serving.give_up(consumer, now_ms)
                    self._desk.counters.leases_ended += sum(1 for _ in consumer.held())
                    self._fail_all(consumer, now_ms)

    def _end_leases(self, now_ms: int) -> None:
        while (ended := self._state.leases.next_end()) is not None and ended[0] <= now_ms:
            consumer = ended[1]
            over = [one for one in consumer.held() if one.deadline_ms <= now_ms]
            self._desk.counters.leases_ended += len(over)
            renewed = [(one.pull, one.count) for one in over if one.held_to_the_limit]
            silent = [(one.pull, one.count) for one in over if not one.held_to_the_limit]
            if renewed:  # no outage, which is what fails again and again: this takes the limit's time
                self._fail(consumer, merge_ranges(renewed), Reason.HELD_TOO_LONG, now_ms)
            self._dropped(consumer, merge_ranges(silent), Reason.LEASE_ENDED, now_ms)
            self._serving.serve_group(consumer.group.identity, now_ms)

    def next_wake(self, at_most: int) -> int:
        """When ``ticked`` has something to do, or ``at_most``."""
        ended = self._state.leases.next_end()
        if ended is not None:
            at_most = min(at_most, ended[0])
        return self._members.wake_at_ms(at_most)

    def _acked(self, consumer: Consumer, ack: Ack, now_ms: int) -> None:
        group = consumer.group
        was_probe = probed(consumer, ack.ranges)
        low = self._state.partitions[group.partition].low
        acked = Acked(consumer.identity, ack.ranges, ack.kept_until_ms)
        concerned = self._desk.act(acked, now_ms, low=low)
        self._desk.counters.messages_acked += concerned
        if group.errors:  # of a group that never failed, nobody needs to know how well it is
            group.health.note_acked(concerned, now_ms)
        if was_probe:
            group.health.end_pause()
            self._desk.act(GroupResumed(group.identity), now_ms)
            for one in self._state.everywhere(group):
                self._serving.serve_group(one.identity, now_ms)

    def _extend(self, consumer: Consumer, extend: Extend, now_ms: int) -> list[int]:
        """Leases begin anew, up to their limit; the ranges that are to be called lost for it.

        In order a consumer reckons with a renewed lease by its own clock. So there it is told nothing of one that is
        cut short but that it is lost: it begins nothing of it any more, and what it is at may be acked until the limit.
        """
        deadline_ms = now_ms + self._locks.lease_ms(consumer.group)
        if extend.parked_ms >= 0:
            again_ms, detail = now_ms + extend.parked_ms, _detail_of(extend)
            self._desk.act(Parked(consumer.identity, deadline_ms, extend.ranges, again_ms, detail), now_ms)
            return []
        self._desk.act(Extended(consumer.identity, deadline_ms, extend.ranges), now_ms)
        return consumer.shortened(extend.ranges, deadline_ms) if consumer.group.ordered else []

    def _nacked(self, consumer: Consumer, nack: Nack, now_ms: int) -> None:
        detail = _detail_of(nack)
        delay_ms = DOOMED_MS if nack.reject else nack.delay_ms
        concerned = self._fail(consumer, nack.ranges, Reason.NACK, now_ms, detail, delay_ms)
        self._desk.counters.messages_nacked += concerned
        group = consumer.group
        # A handler that says when, or that never, is not broken; an exception tells of more than its delay.
        asked = nack.reject or (nack.delay_ms >= 0 and not nack.error)
        if concerned and not asked:
            self._suffered(group, detail.fingerprint, concerned, now_ms)
        self._serving.serve_group(group.identity, now_ms)

    def _suffered(self, group: Group, mark: str, messages: int, now_ms: int) -> None:
        """So many messages failed of one mistake: perhaps none is to blame but what all of them need."""
        if group.health.note_failed(mark, messages, now_ms) and not group.paused:
            group.health.begin_pause(now_ms)
            self._desk.act(GroupPaused(group.identity, now_ms, mark), now_ms)
            self._desk.counters.groups_paused += 1

    def _dropped(self, consumer: Consumer, ranges: Sequence[int], reason: Reason, now_ms: int) -> int:
        """Deliveries of which their consumer said nothing are over; how many messages that were. Those by which an
        outage is noticed are not to blame for it either: they are failed when the group is paused.
        """
        if ranges:
            messages = min(count_of(ranges), SILENT_MAX)
            self._suffered(consumer.group, SILENT[reason].fingerprint, messages, now_ms)
        return self._fail(consumer, ranges, reason, now_ms)

    def _fail_all(self, consumer: Consumer, now_ms: int) -> None:
        ranges = _held(consumer)
        self._dropped(consumer, ranges, Reason.CONSUMER_GONE, now_ms)
        if ranges or consumer.group.ordered:
            self._serving.serve_group(consumer.group.identity, now_ms)

    def _fail(
        self,
        consumer: Consumer,
        ranges: Sequence[int],
        reason: Reason,
        now_ms: int,
        detail: FailureDetail | None = None,
        delay_ms: int = -1,
    ) -> int:
        """Write that deliveries failed: those that are due together in one record. How many messages that were."""
        group, concerned = consumer.group, 0
        counted = 0 if group.paused is not None else 1
        was_probe = probed(consumer, ranges)
        for due_ms, spans in self._dues(consumer, ranges, reason, delay_ms, now_ms).items():
            for part in portions(merge_ranges(spans)):
                action = FailedDeliveries(consumer.identity, due_ms, reason, part, now_ms, counted, detail)
                concerned += self._desk.act(action, now_ms)
            if due_ms != DOOMED_MS:
                self._desk.wake(due_ms)
        self._probe_over(group, was_probe, now_ms)
        if concerned and (reason is not Reason.NACK or not consumer.keyed):
            self._keep_order(group, now_ms)  # before the first of what failed may have left
        self._dead_letters.bury(now_ms)
        return concerned

    def _release(self, consumer: Consumer, ranges: Sequence[int], now_ms: int) -> int:
        """Take deliveries back as if they had never been given; how many messages that were."""
        back, was_probe = 0, probed(consumer, ranges)
        for part in portions(ranges):
            back += self._desk.act(Released(consumer.identity, part), now_ms)
        self._probe_over(consumer.group, was_probe, now_ms)
        return back

    def _keep_order(self, group: Group, now_ms: int) -> None:
        """In a group in order a failed message comes again before anything newer: what lies behind it and is given out
        is taken back. Not so where the subject's strategy is to go on, and not behind what is doomed: that comes never.
        """
        if in_place(self._state, group) and len(group.failed) > len(group.doomed):
            first = min(one for one in group.failed if one not in group.doomed)
            for consumer, ranges in group.held_behind(first):
                self._release(consumer, ranges, now_ms)

    def _dues(
        self, consumer: Consumer, ranges: Sequence[int], reason: Reason, delay_ms: int, now_ms: int
    ) -> dict[int, list[tuple[int, int]]]:
        """Due time -> (first, count) of pull sequences."""
        group = consumer.group
        dues: dict[int, list[tuple[int, int]]] = {}
        for first, last in pairs(ranges):
            for index in consumer.overlapping(first, last):
                delivery = consumer.deliveries[index]
                start = max(first, delivery.pull)
                count = min(last + 1, delivery.pull + delivery.count) - start
                due_ms = delay_ms
                if delay_ms != DOOMED_MS:
                    failed = (delivery.attempts, delivery.since_ms)
                    due_ms = due_after(group.settings, failed, reason, delay_ms, now_ms)
                    if due_ms == DOOMED_MS and group.paused is not None:
                        due_ms = now_ms + group.settings.backoff_ms[-1]  # the outage is to blame
                if due_ms != DOOMED_MS:
                    self._desk.counters.retries[min(delivery.attempts + 2, LEVEL_MAX)] += count
                dues.setdefault(due_ms, []).append((start, count))
        return dues

    def _probe_over(self, group: Group, was_probe: bool, now_ms: int) -> None:
        """The probe of a paused group was not acked: the next one comes later."""
        if was_probe:
            group.health.probe_failed(now_ms)
            self._desk.wake(group.health.probe_at_ms)


def _held(consumer: Consumer) -> list[int]:
    return merge_ranges([(delivery.pull, delivery.count) for delivery in consumer.held()])


def _detail_of(said: Nack | Extend) -> FailureDetail:
    mark = fingerprint_of(said.reason, said.error, said.place)
    return FailureDetail(said.reason, said.error, said.place, mark)
