"""A group of delay services without a loop, beside one real broker that all of them reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from samples.brokers import Rig, empty_disk
from samples.delays import BROKER, NOW_MS, SMALL, SUBJECT, at_broker, later
from samples.hosting import Hosted
from samples.replicas import Group, Replica
from sim.disk import SimDisk
from tidemill_delay.doors.service import machine_for, recover
from tidemill_delay.settings import DelaySettings
from tidemill_host.machine import Peer
from tidemill_ledger.membership import Part, Role
from tidemill_wire.commands import Command, SendBatches, Sent, Welcome


class Calendar(Replica):
    """One delay service of the group."""

    def __init__(self, name: str, disk: SimDisk | None = None, **more: object) -> None:
        self.rig: Rig | None = None
        self.arrived: list[bytes] = []
        """Bodies of what it made the broker store."""
        self.deaf = False
        """The broker takes what it is sent, and its answers get lost."""
        super().__init__(name, disk or empty_disk(), **more)

    def settings_as(self, **more: Any) -> DelaySettings:
        return replace(SMALL, name=self.name, replicated=True, **more)

    def machine_of(self, part: Part) -> Hosted:
        now_ms = self.now_ms = max(self.now_ms, NOW_MS)
        self.delay, self.report = recover(self.disk.mount(), self.settings, now_ms, part)
        self.delay.route(SUBJECT, ("g0",), now_ms)
        return machine_for(self.delay, part, now_ms) or self.delay

    def meet(self) -> None:
        """The master of the group reaches the broker."""
        if self.part.role is Role.MASTER:
            self.machine.connected(BROKER, self.now_ms)
            self.say(Welcome(1, "g0-0", 1), BROKER)

    def left(self, peer: Peer, correlation: int, command: Command) -> None:
        if peer != BROKER:
            super().left(peer, correlation, command)
            return
        assert isinstance(command, SendBatches)
        assert self.rig is not None
        answer, stored = at_broker(self.rig, command, self.now_ms)
        self.arrived += [body for batch in stored for body in batch.bodies()]
        if not self.deaf:
            self.say_as(correlation, answer, BROKER)

    def send_later(
        self,
        bodies: Sequence[bytes],
        due_ms: int,
        *,
        number: int,
        timer_keys: Sequence[str | None] | None = None,
    ) -> int:
        """One batch; the number of its answer."""
        batch = later(bodies, [due_ms] * len(bodies), sequence=number, timer_keys=timer_keys)
        return self.say(SendBatches(batch))


class Calendars(Group[Calendar]):
    """See the module."""

    def __init__(self, *names: str, **more: object) -> None:
        super().__init__(*names, kind=Calendar, **more)
        self.rig = Rig(now_ms=NOW_MS)
        for one in self.replicas.values():
            one.rig = self.rig

    def lead(self, epoch: int, master: str, *in_sync: str, version: int = 0) -> None:
        """A master is appointed, and reaches the broker."""
        self.appoint(epoch, master, [master, *in_sync], version)
        self[master].meet()
        self.run()

    def pass_time(self, milliseconds: int, step_ms: int = 500) -> None:
        for _ in range(milliseconds // step_ms):
            self.tick(step_ms)

    @property
    def arrived(self) -> list[bytes]:
        """Whoever sent it."""
        return [body for one in self.replicas.values() for body in one.arrived]

    def taken(self, name: str, number: int) -> bool:
        """Whether a SEND was answered, and all of it taken."""
        answer = self[name].answers.get(number)
        return isinstance(answer, Sent) and not answer.refused
