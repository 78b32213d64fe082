"""Where the world comes in: a broker on a disk, on the loop, behind a port."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

from tidemill_broker.applying import BrokerApplier
from tidemill_broker.doors.status import left_of, subject_rows
from tidemill_broker.gate import Inventory, Told, Unfenced, Unmade
from tidemill_broker.group_settings import GroupSettings
from tidemill_broker.machine import Broker
from tidemill_broker.partitions import SubjectSettings
from tidemill_broker.positions import begin_as_asked
from tidemill_broker.recovery import Recovery
from tidemill_broker.settings import BrokerSettings
from tidemill_host import log
from tidemill_host.clock import Clock
from tidemill_host.disk import Disk
from tidemill_host.hosted import Hosted, Room
from tidemill_host.machine import Unread
from tidemill_host.persist import Lanes
from tidemill_host.storage import Storage
from tidemill_journal.errors import CorruptRun
from tidemill_ledger.following import Follower
from tidemill_ledger.group_metrics import Begun
from tidemill_ledger.membership import LONE, Part, Role
from tidemill_ledger.opening import Report
from tidemill_ledger.replication import Master
from tidemill_wire import limits
from tidemill_wire.access import Charter
from tidemill_wire.declarations import ConsumerGroup, Declaration, Subject
from tidemill_wire.errors import Unavailable, WireError
from tidemill_wire.kinds import Start
from tidemill_wire.routes import State
from tidemill_wire.vigil import Vigil

WHOLE = (1, 1)
ALONE: Mapping[str, tuple[int, int]] = {}
FOLDERS = ("message", "action", "consume", "index", "checkpoint", "aside")


Runs: TypeAlias = Broker | Master[Broker] | Follower[Broker]


def recover(disk: Disk, settings: BrokerSettings, now_ms: int, part: Part = LONE) -> tuple[Broker, Report]:
    """The broker that lies on a disk."""
    storage = Storage(disk, FOLDERS)
    try:
        recovery = Recovery(storage, settings, part)
        return recovery.run(now_ms), recovery.report
    finally:
        storage.close()


def machine_for(broker: Broker, part: Part, now_ms: int) -> Master[Broker] | Follower[Broker] | None:
    """The machine for a broker's part; a lone one is its own."""
    name = broker.settings.name
    if part.role is Role.LONE:
        return None
    return (
        Master(broker, name, part, now_ms)
        if part.role is Role.MASTER
        else Follower(broker, BrokerApplier(broker), name, part, now_ms)
    )


class Service(Hosted[Runs]):
    """A broker that serves."""

    def __init__(
        self, broker: Broker, disk: Disk, lanes: Lanes, clock: Clock, machine: Runs | None = None
    ) -> None:
        room = Room(broker.intake, broker.settings.free_space_min_percent, "the broker's")
        super().__init__(machine or broker, disk, lanes, clock, broker.settings.name, room)
        self.broker = broker
        self.begun = Begun()
        self._problems: dict[str, str] = {}
        self.turn.vigil = Vigil(enabled=broker.settings.stay_awake)
        self.turn.unread = _say_unread
        self.server.epoch = broker.logs.epoch
        if machine is not None:
            self.hear_itself()
        if isinstance(machine, Master) and broker.settings.meta:
            broker.intake.gate.wait()

    def began(self, report: Report, seconds: float) -> None:
        """What it took to read what lies on the disk."""
        cut = sum(report.cut_bytes.values())
        self.begun = Begun(seconds, report.actions_replayed, report.batches_replayed, cut)

    async def drain(self, deadline_seconds: float = 10.0) -> None:
        """Take no more work, answer what was taken, checkpoint, close."""
        self.server.stop_listening()
        self.broker.drain()
        self.broker.keeping.checkpoint(self._clock.now_ms())
        self.turn.start()
        await self.settle(lambda: self.turn.idle and self.broker.keeping.settled, deadline_seconds)
        self.close("the broker stops")

    def declare(
        self, declarations: Iterable[Subject | ConsumerGroup], shares: Mapping[str, tuple[int, int]] = ALONE
    ) -> None:
        """Make subjects and groups as the manifests say. ``shares`` says how much of a subject is here; all is, unless
        it says otherwise.
        """
        now_ms = self._clock.now_ms()
        settings = self.broker.settings
        for declaration in declarations:
            if isinstance(declaration, Subject):
                made = subject_settings(declaration, settings, shares.get(declaration.name, WHOLE))
                known = self.broker.state.by_name.get(declaration.name.encode())
                if known is not None and declaration.durability_stays:
                    made = replace(made, durability=known.settings.durability)
                self.broker.intake.declare(declaration.name, made, now_ms)
        for declaration in declarations:
            if isinstance(declaration, ConsumerGroup):
                self._declare_group(declaration, now_ms)
        self.turn.start()

    def obey(self, told: Told) -> Unmade | None:
        """What people said at meta; one thing that cannot be made holds up no other: what that is and why, when all
        else is done. A master that has stopped for whoever comes next writes nothing more.
        """
        self._check_leads()
        self.broker.intake.gate.obey(told)
        self.broker.removing.obey(told.removed, self._clock.now_ms())
        for removal in told.removed:
            if not removal.group:  # a new subject of that name begins without its debt
                self.broker.intake.quotas.forget(removal.subject)
        self.broker.vanished(told.vanished, self._clock.now_ms())
        self.turn.start()
        problems: list[tuple[Declaration, WireError]] = []
        for one in told.declared:
            try:
                self.declare([one], told.shares)
            except WireError as error:
                problems.append((one, error))
        self.broker.archiving.obey(told.archived, told.released, self._clock.now_ms())
        self.turn.start()
        return Unmade(tuple(one for one, _ in problems), problems[0][1]) if problems else None

    @property
    def now_ms(self) -> int:
        """By its clock."""
        return self._clock.now_ms()

    def heed(self, due: object) -> object:
        """What meta says to it in a beat, and what it wants to know."""
        if isinstance(due, Charter):
            self.ward(due)
            return None
        if isinstance(due, Inventory):
            return self.inventory(due.subjects)
        unmade = None
        if isinstance(due, Unfenced):
            self._problems["fence"] = str(due)
        else:
            assert isinstance(due, Told)
            unmade = self.obey(due)
            self._problems["declared"] = str(unmade) if unmade is not None else ""
        self.problem = "; ".join(filter(None, self._problems.values()))
        return unmade

    def inventory(self, subjects: Iterable[str]) -> dict[str, Any]:
        """What is left of subjects."""
        self._check_leads()
        return {"rows": [left_of(self.broker.state, subject) for subject in subjects]}

    @property
    def is_halted(self) -> bool:
        """A master that takes nothing, and does nothing by itself."""
        return isinstance(self.machine, Master) and self.machine.halted

    def _check_leads(self) -> None:
        if self.is_halted:
            raise Unavailable("not_master", f"{self.broker.settings.name} takes no work now")

    @property
    def state(self) -> State:
        """What the disk lets the broker take."""
        return "RW" if self.broker.intake.refusal is None else "R"

    def _declare_group(self, group: ConsumerGroup, now_ms: int) -> None:
        raw_name = group.subject.encode()
        partition = self.broker.state.by_name.get(raw_name) or self.broker.intake.create(raw_name, now_ms)
        words = {"earliest": int(Start.EARLIEST), "latest": int(Start.LATEST)}
        start = group.start if isinstance(group.start, int) else words[group.start]
        members, settings = self.broker.members, GroupSettings.declared(group)
        for one in (partition, *self.broker.intake.further.of(group.subject)):
            place, lanes = begin_as_asked(one, start), members.begun(one, start)
            made = members.declare_group(one, group.name, place, settings, now_ms, lanes)
            self.broker.dead_letters.declared(made, now_ms)

    def _fail(self, error: Exception) -> None:
        """A run that is damaged, or that the disk cannot read, is removed, and made again by the restart."""
        if isinstance(error, CorruptRun):
            with suppress(OSError):  # the restart meets it again, and says so again
                self._disk.remove(error.file)
        super()._fail(error)

    def subjects(self) -> list[dict[str, Any]]:
        """What the control plane tells about subjects."""
        return list(subject_rows(self.broker.state))


def _say_unread(unread: Unread) -> None:
    """For whoever looks after the disk: what is lost may be whole on a slave, or in a copy of the folder."""
    becomes = "messages that lie there become dead letters, rows are made again"
    log.error("unread", f"{unread}: look at the disk; {becomes}")


def subject_settings(
    subject: Subject, defaults: BrokerSettings, share: tuple[int, int] = WHOLE
) -> SubjectSettings:
    """A declaration as the broker keeps it."""
    return SubjectSettings(
        subject.durability or defaults.durability,
        subject.spec.retention.message_seconds or defaults.retention_seconds,
        subject.retention_bytes or 0,
        subject.message_bytes_max or limits.MESSAGE_BYTES_DEFAULT,
        subject.best_tried,
        subject.deduplication_seconds,
        () if subject.archive_required else None,
        subject.rates.part(*share) if subject.rates else None,
        -(-subject.in_flight_max * share[0] // share[1]),
        subject.dead_letters_kept,
        subject.later_seconds,
    )
