"""Answers pulls: at once when there is something, else when something comes or the time is over.

parked  --something for one of its groups-->  answered with grants and slices
parked  --its wait is over-------------------> answered with nothing
parked  --its connection ends, the broker drains-->  gone
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemill_broker.actions import Pulled, Voided
from tidemill_broker.consume_log import ConsumeLog, Loading
from tidemill_broker.desk import Desk
from tidemill_broker.groups import Consumer, Group
from tidemill_broker.intake import Intake
from tidemill_broker.members import Members, replaced
from tidemill_broker.partitions import Partition
from tidemill_broker.pulls import Given, ParkedPull, Pulls
from tidemill_host.machine import Buffer, Peer, Send
from tidemill_wire import commands, limits
from tidemill_wire.commands import Pull
from tidemill_wire.errors import Unavailable


class Serving:
    """Pulls, parked and answered."""

    def __init__(self, desk: Desk, intake: Intake, members: Members, consume_log: ConsumeLog) -> None:
        self._desk = desk
        self._state = desk.state
        self._intake = intake
        self._members = members
        self.pulls = Pulls(desk.state, desk.logs, consume_log)
        self._parked: dict[Peer, dict[int, ParkedPull]] = {}
        self._rotation = 0  # subjects of one pull take turns

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
        partitions = [
            self._state.by_name.get(subject.encode()) or self._intake.create(subject.encode(), now_ms)
            for subject in pull.subjects
        ]
        consumers = [self._members.enrol(peer, pull, partition, now_ms) for partition in partitions]
        consumers += [
            self._enrol_twin(peer, pull, consumer.group, now_ms)
            for consumer in consumers
            if consumer.group.identity in self._state.dead
        ]
        parked = ParkedPull(peer, correlation, pull, consumers, now_ms + pull.wait_ms)
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
            self._desk.wake(parked.deadline_ms)

    def loaded(self, token: int, data: Buffer, consume_log: ConsumeLog, now_ms: int) -> None:
        """What had to be read is there."""
        for waiter in consume_log.loaded(token, data):
            if not isinstance(waiter, ParkedPull):
                assert callable(waiter)
                waiter(now_ms)
            elif not waiter.answered:
                self._serve(waiter, now_ms)

    def ticked(self, now_ms: int) -> None:
        """Whose time is over, and whose failures have become due."""
        for parked_of_peer in list(self._parked.values()):
            for parked in list(parked_of_peer.values()):
                if parked.deadline_ms <= now_ms:
                    self._answer(parked, [], now_ms)
        for identity in list(self.pulls.waiting):
            group = self._state.groups[identity]
            due_ms = self._due_ms(group)
            if due_ms is not None and due_ms <= now_ms:
                self.serve_group(identity, now_ms)
                if group.paused is not None:
                    group.health.probe_later(now_ms)

    def next_wake(self, at_most: int) -> int:
        """When ``ticked`` has something to do, or ``at_most``."""
        wake = at_most
        for parked_of_peer in self._parked.values():
            for parked in parked_of_peer.values():
                wake = min(wake, parked.deadline_ms)
        for identity in self.pulls.waiting:
            due_ms = self._due_ms(self._state.groups[identity])
            if due_ms is not None:
                wake = min(wake, due_ms)
        return wake

    def _due_ms(self, group: Group) -> int | None:
        """When something is due for a group that waits, if time alone brings it."""
        if group.paused is not None:
            return group.health.probe_at_ms if group.health.probe is None else None
        failure = group.next_failure()
        return failure.due_ms if failure is not None else None

    def show(self, partition: Partition, end: int, now_ms: int) -> None:
        """Messages below ``end`` may be seen."""
        partition.visible = max(partition.visible, end)
        for identity in partition.groups.values():
            if identity in self.pulls.waiting:
                self.serve_group(identity, now_ms)

    def serve_group(self, identity: int, now_ms: int) -> None:
        """Something may have come for a group: serve those who wait, in the order of their coming."""
        for parked in list(self.pulls.waiting.get(identity, {}).values()):
            if not parked.answered and not self._serve(parked, now_ms):
                return

    def adopt(self, twin: Group, now_ms: int) -> None:
        """Dead letters were redriven: those who wait for their group wait for them, too."""
        for living, identity in self._state.dead.items():
            if identity == twin.identity:
                for parked in list(self.pulls.waiting.get(living, {}).values()):
                    if any(consumer.group is twin for consumer in parked.consumers):
                        continue
                    self.pulls.unpark(parked)
                    parked.answered = False
                    parked.consumers.append(
                        self._enrol_twin(parked.peer, parked.pull, self._state.groups[living], now_ms)
                    )
                    self.pulls.park(parked)
        self.serve_group(twin.identity, now_ms)

    def _enrol_twin(self, peer: Peer, pull: Pull, group: Group, now_ms: int) -> Consumer:
        twin = self._state.groups[self._state.dead[group.identity]]
        return self._members.enrol(peer, pull, self._state.partitions[twin.partition], now_ms)

    def end_pulls(self, peer: Peer, now_ms: int) -> None:
        """A consumer that says goodbye is given nothing more."""
        for parked in list(self._parked[peer].values()):
            self._answer(parked, [], now_ms)

    def drain(self) -> None:
        """Who waits is told that the broker stops."""
        error = Unavailable("shutting_down", "the broker is about to stop")
        for peer, parked_here in self._parked.items():
            for parked in list(parked_here.values()):
                self.pulls.unpark(parked)
                self._desk.refuse(peer, parked.correlation, error)
            parked_here.clear()

    def _serve(self, parked: ParkedPull, now_ms: int) -> bool:
        """Answer a pull if its groups have something for it."""
        start = self._rotation % len(parked.consumers)
        self._rotation += 1
        for consumer in (*parked.consumers[start:], *parked.consumers[:start]):
            try:
                given = self.pulls.collect(parked, consumer, now_ms)
            except Loading:
                return False
            for first, messages in given.missing:
                self._desk.counters.messages_voided += messages
                self._desk.act(Voided(consumer.group.identity, first, messages), now_ms)
            if given.runs:
                self._answer(parked, [given], now_ms)
                return True
        if parked.deadline_ms <= now_ms:
            self._answer(parked, [], now_ms)
            return True
        return False

    def _answer(self, parked: ParkedPull, given: Sequence[Given], now_ms: int) -> None:
        self.pulls.unpark(parked)
        self._parked[parked.peer].pop(id(parked), None)
        counters = self._desk.counters
        grants: list[commands.Grant] = []
        lease_ms = 0
        for part in given:
            group = part.consumer.group
            lease_ms = group.settings.lease_ms
            self._grant(part, now_ms)
            grants += part.grants(self._state.partitions[group.partition].name)
            counters.messages_out += part.messages
            counters.bytes_out += part.size
        slices = [piece for part in given for piece in part.slices]
        trailing = sum(piece.size for piece in slices)
        head = commands.encode_command(commands.Pulled(grants, lease_ms), parked.correlation, trailing)
        self._desk.sends.append(Send(parked.peer, head, slices))

    def _grant(self, given: Given, now_ms: int) -> None:
        """Number the deliveries and write the PULL."""
        pull = self._state.next_pull
        for index, run in enumerate(given.runs):
            given.runs[index] = run._replace(pull=pull)
            pull += run.messages
        deadline_ms = now_ms + given.consumer.group.settings.lease_ms
        group = given.consumer.group
        if group.paused is not None:
            group.health.probe = given.runs[0].pull
        self._desk.act(Pulled(given.consumer.identity, deadline_ms, given.runs), now_ms)
        self._desk.wake(deadline_ms)
