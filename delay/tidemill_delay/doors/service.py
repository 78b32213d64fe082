"""A delay service that serves: its port, and the connections to brokers that it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from tidemill_delay.applying import DelayApplier
from tidemill_delay.bounds import Told, not_told
from tidemill_delay.machine import Delay
from tidemill_delay.recovery import FOLDERS, Recovery
from tidemill_delay.routing import Ways
from tidemill_delay.settings import DelaySettings
from tidemill_host.clock import Clock
from tidemill_host.dialer import Dialer
from tidemill_host.disk import Disk
from tidemill_host.files import Files
from tidemill_host.hosted import Hosted, Room
from tidemill_host.persist import Lanes
from tidemill_host.storage import Storage
from tidemill_host.zones import offset_in
from tidemill_ledger.following import Follower
from tidemill_ledger.group_metrics import Begun
from tidemill_ledger.membership import LONE, Part, Role
from tidemill_ledger.opening import Report
from tidemill_ledger.replication import Master
from tidemill_wire.access import Charter
from tidemill_wire.routes import State

Runs: TypeAlias = Delay | Master[Delay] | Follower[Delay]


def recover(disk: Disk, settings: DelaySettings, now_ms: int, part: Part = LONE) -> tuple[Delay, Report]:
    """The delay service that lies on a disk."""
    storage = Storage(disk, FOLDERS)
    try:
        recovery = Recovery(storage, settings, part)
        delay = recovery.run(now_ms)
        delay.intake.zones = delay.recurring.zones = offset_in
        delay.keeping.settle_by(partial(settle, Files(disk)))
        return delay, recovery.report
    finally:
        storage.close()


def settle(files: Files, names: Sequence[str]) -> bytes:
    """Put files on the disk: a read that reads nothing."""
    files.sync(names)
    return b""


def machine_for(delay: Delay, part: Part, now_ms: int) -> Master[Delay] | Follower[Delay] | None:
    """The machine for a service's part; a lone one is its own."""
    name = delay.settings.name
    if part.role is Role.LONE:
        return None
    if part.role is Role.MASTER:
        return Master(delay, name, part, now_ms)
    return Follower(delay, DelayApplier(delay), name, part, now_ms)


class DelayService(Hosted[Runs]):
    """See the module."""

    def __init__(
        self, delay: Delay, disk: Disk, lanes: Lanes, clock: Clock, machine: Runs | None = None
    ) -> None:
        room = Room(delay.intake, delay.settings.free_space_min_percent, "the delay service's")
        super().__init__(machine or delay, disk, lanes, clock, delay.settings.name, room)
        self.delay = delay
        self.begun = Begun()
        self.server.epoch = delay.logs.epoch
        if machine is not None:
            self.hear_itself()
        if isinstance(machine, Master) and delay.settings.meta:
            delay.intake.bound_of = not_told

    def began(self, report: Report, seconds: float) -> None:
        """What it took to read what lies on the disk."""
        cut = sum(report.cut_bytes.values())
        self.begun = Begun(seconds, report.actions_replayed, report.batches_replayed, cut)

    async def reach(self, host: str, port: int) -> None:
        """Keep a connection to a broker, until it is cancelled."""
        await Dialer(self.server, host, port).keep()

    @property
    def state(self) -> State:
        """What the disk lets it take."""
        return "RW" if self.delay.intake.refusal is None else "R"

    def heed(self, due: object) -> None:
        """What meta says in a beat besides an appointment: who may do what, and what subjects let be sent."""
        if isinstance(due, Charter):
            self.ward(due)
            return
        assert isinstance(due, Told), due
        self.delay.intake.bound_of = due.seconds.get

    @property
    def is_halted(self) -> bool:
        """A master that takes nothing, and does nothing by itself."""
        return isinstance(self.machine, Master) and self.machine.halted

    @property
    def leads(self) -> bool:
        """Whether it brings messages to brokers."""
        return not isinstance(self.machine, Follower)

    def found(self, subject: str, groups: Sequence[str], ways: Ways | None = None) -> None:
        """Which broker groups take a subject, and which partitions its order keys."""
        self.delay.route(subject, groups, self._clock.now_ms(), ways)
        self.turn.start()

    def gone(self, subject: str) -> None:
        """Meta knows no such subject: it was removed, or is to be declared first."""
        self.delay.gone(subject, self._clock.now_ms())
        self.turn.start()

    def everywhere(self, group: str) -> None:
        """A lone broker has every subject."""
        self.delay.everywhere((group,), self._clock.now_ms())
        self.turn.start()

    async def drain(self, deadline_seconds: float = 10.0) -> None:
        """Take no more work, answer what was taken, checkpoint, close. The checkpoint of a slave would wait for its
        master to say what is committed, which may have ended.
        """
        leads, keeping = self.leads, self.delay.keeping
        self.server.stop_listening()
        self.delay.drain()
        if leads:
            keeping.checkpoint(self._clock.now_ms())
        self.turn.start()
        await self.settle(lambda: self.turn.idle and (keeping.settled or not leads), deadline_seconds)
        self.close("the delay service stops")

    async def ended(self) -> Exception:
        """Until it has failed: why."""
        return await asyncio.shield(self.failed)
