"""A broker group in a world: one master, its slaves, and what they promise together.

Two or three server nodes run as ``tidemill up`` with ``replicated`` does: a process begins fenced, is told by the
council (``council.py``) what it is, and begins anew in the same process when that changes. Clients ask the council's
book for the master, as they will ask meta for routes. Checked besides the promises of a lone broker: nobody commits in
an epoch but its master, and in the end all logs of the group are the same bytes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from sim.autopsy import NOW_MS, image_of, log_problems, state_of
from sim.checkers import Ack, History, PowerCut, Promise, Send, Terms, missing, violations
from sim.clients import GAP_S, Consuming, Producing
from sim.cluster import LATE, LONG_LEASE_MS, SUBJECTS, Wish, declare_subjects, draw_settings, note_grants
from sim.council import COUNCIL, Book, Council, attend
from sim.disk import Mount, SimDisk
from sim.faults import Kind
from sim.lanes import draw_priorities
from sim.noting import before_applied
from sim.sparing import Sparing
from sim.world import Cut, Env, Phases, World
from tidemill.errors import BrokerUnreachable
from tidemill.routes import Address, Routes
from tidemill_broker.actions import Action, Pulled
from tidemill_broker.doors import Service, machine_for, recover
from tidemill_broker.machine import Broker
from tidemill_broker.settings import BrokerSettings
from tidemill_host.dialer import Dialer
from tidemill_host.local import LocalPeer
from tidemill_host.machine import Ready
from tidemill_host.persist import Lanes
from tidemill_journal.errors import JournalError
from tidemill_ledger.following import Follower
from tidemill_ledger.membership import FENCED, Part, Role, part_of
from tidemill_ledger.pacing import Pacing
from tidemill_ledger.replication import Master
from tidemill_wire.appointments import Appointment

PORT = 7400
LATELY_S = 1.5
"""A process that died needs that long at most to be back and to have synced what its page cache has."""
GONE_S = 1000.0
"""An excuse of two power cuts reaches so far back."""
KINDS = tuple(
    kind
    for kind in Kind
    if kind
    not in {Kind.BIT_ROT, Kind.BAD_PLACE, Kind.READ_ERROR}  # what recovers from those is one broker alone
)


class Replicated:
    """The scenario."""

    kinds = KINDS
    probes = ("failovers", "truncations", "begun_anew", "snapshots", "wished_in", "wished_out", "paced")

    def __init__(self, seed: str, prefix: str = "") -> None:
        rng = random.Random(f"{seed}/replicated")
        self.phases = Phases(warm_up_s=2.0, faults_s=rng.choice((4.0, 8.0)), drain_max_s=200.0)
        self.servers = tuple(f"{prefix}s{number}" for number in range(1, rng.choice((2, 2, 3)) + 1))
        self.settings = self._draw_settings(seed)
        self.history = History()
        self.promises = {**SUBJECTS, LATE: Promise.NORMAL}
        self.groups: Mapping[str, Wish] = {"all": Wish(tuple(self.promises))}
        self.granted: dict[int, float] = {}
        self.problems: list[str] = []
        self.priorities = draw_priorities(seed)
        self.policies: dict[str, Any] = {}
        self.outages: dict[str, tuple[float, float]] = {}
        self.finished: set[str] = set()
        self.rot_seen = 0
        self.gap_s = GAP_S
        self._producers = tuple(f"{prefix}p{number}" for number in range(1, rng.randrange(2, 4)))
        self._consumers = tuple(f"{prefix}c{number}" for number in range(rng.randrange(1, 3)))
        self.clients = (*self._producers, *self._consumers)
        first_of_all = self.servers[:1]
        first = Appointment(
            "g", 1, *first_of_all, self.servers, self.servers if rng.random() < 0.5 else first_of_all, 0
        )
        self.council = Council(first, addresses={name: f"{name}:{PORT}" for name in self.servers})
        self.book: Book = self.council
        self.running: dict[str, Service] = {}
        self._commits: dict[int, str] = {}
        self._alone_s: dict[str, float] = {}
        """Until when a master knew of no other replica: of ``normal`` it promised what a broker alone does."""
        self._sparing = Sparing(seed)
        self._pacing = draw_pacing(seed)
        self._world: World

    def _draw_settings(self, seed: str) -> BrokerSettings:
        drawn = draw_settings(seed)
        return replace(
            drawn,
            replicated=True,
            durability="normal",
            retention_seconds=72 * 3600,
            lease_ms=3_000 if drawn.lease_ms == LONG_LEASE_MS else drawn.lease_ms,
        )

    def has_spool(self, _name: str) -> bool:
        """Spools are another scenario's."""
        return False

    async def fetch(self) -> Routes:
        """Whom clients go to."""
        if not self.council.heard:
            raise BrokerUnreachable("nobody is appointed yet")
        return (Address("g", self.council.appointment.master, PORT),)

    def build(self, world: World) -> None:
        self._world = world
        world.add_client(COUNCIL, self.council.serve)
        for name in self.servers:
            world.add_server(name, self._serve)
        for name in self._producers:
            world.add_client(name, Producing(self, self.gap_s).run)
        for name in self._consumers:
            world.add_client(name, self._consuming(name).run)

    def _consuming(self, _name: str) -> Consuming:
        return Consuming(self, "all")

    def drained(self) -> bool:
        if not (self.finished >= set(self._producers) and self._is_whole()):
            return False
        return not any(missing(self.history, self._terms()))

    def _is_whole(self) -> bool:
        """All replicas are in sync, and have all."""
        master = self.running.get(self.book.appointment.master)
        if master is None or not isinstance(master.machine, Master):
            return False
        stood = master.machine.stand(asks=False)
        return (
            set(self.book.appointment.in_sync) == set(self.servers)
            and stood.version == self.book.appointment.version
            and stood.committed == stood.ends
            and set(stood.slaves.values()) <= {stood.ends}
            and len(stood.slaves) == len(self.servers) - 1
        )

    def check(self, world: World) -> list[str]:
        terms = self._terms()
        problems = [*self.problems, *self._history_problems(terms)]
        master = self.book.appointment.master or self.servers[0]
        images = {name: image_of(world.nodes[name].disk) for name in self.servers}
        problems += self._differences(images, master)
        for before, after in pairwise(self.book.decided):
            if before.epoch == after.epoch:
                world.probes["wished_in"] += len(set(after.in_sync) - set(before.in_sync))
                world.probes["wished_out"] += len(set(before.in_sync) - set(after.in_sync))
        world.probes["failovers"] += max((one.epoch for one in self.book.decided), default=1) - 1
        settings = replace(self.settings, name=master)
        try:
            broker, _ = recover(images[master].mount(), settings, NOW_MS, FENCED)
        except JournalError as error:
            return [*problems, f"refused start: {error}"]
        problems += self._master_problems(images[master].mount(), broker, terms)
        first = used(state_of(broker))
        for name in self.servers:
            other, _ = recover(images[name].mount(), replace(self.settings, name=name), NOW_MS, FENCED)
            if other.logs.actions.end != broker.logs.actions.end:
                continue
            for part, value in used(state_of(other)).items():
                if value != first[part]:
                    problems.append(
                        f"different state: {part} of {name} is {value}, of {master} {first[part]}"
                    )
        return problems

    def _history_problems(self, terms: Terms) -> list[str]:
        return violations(self.history, terms)

    def _master_problems(self, disk: Mount, broker: Broker, terms: Terms) -> list[str]:
        """What the last master's disk has to say."""
        return log_problems(disk, broker, self.history, terms)

    def _differences(self, images: Mapping[str, SimDisk], master: str) -> list[str]:
        """Logs that are not equal where both are kept."""
        problems = []
        for folder in ("message", "action"):
            logs = {name: bytes_of(image, folder) for name, image in images.items()}
            start, data = logs[master]
            for name, (other_start, other) in logs.items():
                begin = max(start, other_start)
                end = min(
                    start + len(data), other_start + len(other)
                )  # of the last moment something may be missing
                if data[begin - start : end - start] != other[begin - other_start : end - other_start]:
                    problems.append(f"different bytes: {folder} of {name} is not that of {master}")
        return problems

    def _terms(self) -> Terms:
        cuts = [cut for cut in self._world.cuts if cut.node in self.servers]
        excuses = (
            [PowerCut(cut.at_s, cut.node, GONE_S) for cut in cuts] if len({c.node for c in cuts}) > 1 else []
        )
        excuses += [PowerCut(cut.at_s, cut.node, LATELY_S) for cut in cuts if self._was_alone(cut)]
        groups = dict.fromkeys(self.promises, ("all",))
        lone = [(PowerCut(cut.at_s, cut.node, GONE_S), self._alone_s.get(cut.node, -1.0)) for cut in cuts]
        return GroupTerms(groups, excuses, ack_promise=None, replaced_s=self.book.replaced_s, lone=lone)

    def _was_alone(self, cut: Cut) -> bool:
        """It lost power when it had just died, so that nothing synced what it had, and so had all others, who left the
        set for that.
        """
        lately = {one.node for one in self._world.deaths if cut.at_s - LATELY_S <= one.at_s < cut.at_s}
        return lately >= set(self.servers)

    # -- a server ----------------------------------------------------------------------------------------------

    async def _serve(self, env: Env) -> None:
        part, settings = FENCED, replace(self.settings, name=env.name)
        lanes = Lanes(ThreadPoolExecutor(1), ThreadPoolExecutor(1), ThreadPoolExecutor(4))
        while True:
            try:
                broker, _ = recover(env.disk, settings, env.clock.now_ms(), part)
            except JournalError as error:
                self.problems.append(f"refused start: {env.name}: {error}")
                raise
            machine = machine_for(broker, part, env.clock.now_ms())
            assert machine is not None
            self._watch(machine, env)
            if part.role is Role.MASTER:
                self._begins(broker, env)
            service = Service(broker, env.disk, lanes, env.clock, machine)
            self._equip(service, env)
            if part.role is Role.MASTER:
                self._declare(service)
            await service.listen("0.0.0.0", PORT)
            self.running[env.name] = service
            local = LocalPeer(service.server, lambda _command: None)
            async with asyncio.TaskGroup() as tasks:
                work = [tasks.create_task(self._attend(env, local))]
                if part.role is Role.SLAVE:
                    host, _, port = part.master_address.rpartition(":")
                    work.append(tasks.create_task(Dialer(service.server, host, int(port)).keep()))
                stopped = self._stopped(env)
                ends = service.failed, service.turned, stopped
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if stopped.done():
                    work.pop(0).cancel()
                    await self._say_goodbye(env, service)
                for task in work:
                    task.cancel()
            del self.running[env.name]
            if service.failed.done():
                raise SystemExit(1)
            if stopped.done() and not service.turned.done():
                await (service.rest() if service.is_halted else service.drain())
                return
            await service.rest()
            if service.failed.done():
                raise SystemExit(1)
            self._ends(broker, env)
            part = self._note_turn(env.name, part_of(env.name, service.turned.result()))

    def _equip(self, service: Service, env: Env) -> None:
        """Before it listens, whatever its part is."""

    def _stopped(self, env: Env) -> asyncio.Future[None]:
        """Done when the process is told to stop, which nobody does."""
        return asyncio.get_running_loop().create_future()

    async def _say_goodbye(self, env: Env, service: Service) -> None:
        """Before it stops."""

    async def _attend(self, env: Env, local: LocalPeer) -> None:
        """Hear who is what."""
        await attend(local, [])

    def _note_turn(self, name: str, part: Part) -> Part:
        if part.cut is not None:
            self._world.probes["truncations"] += 1
        if part.anew:
            self._world.probes["begun_anew"] += 1
        return part

    def _declare(self, service: Service) -> None:
        """What a master is told of at its start."""
        service.declare(declare_subjects())

    def _begins(self, broker: Broker, env: Env) -> None:
        """A mastership begins with what lies on the disk."""

    def _ends(self, broker: Broker, env: Env) -> None:
        """A process is something else from now on, and begins anew with what it has left on the disk."""

    def _watch(self, machine: Any, env: Env) -> None:
        """Check after each turn; note who commits, and what is granted."""
        ready, state = machine.ready, machine.inner.state
        probes = self._world.probes

        def check_and_ready() -> Ready:
            if self._sparing.due():
                machine.check()
            if isinstance(machine, Master):
                self._note_commit(machine, env.name)
                probes["paced"] += any(
                    not feed.pace.allows(machine._now_ms) for feed in machine.feeds.values()
                )
            else:
                self._note_slave(machine)
                probes["snapshots"] += machine._copying is not None
            return ready()

        def note(action: Action) -> None:
            if isinstance(action, Pulled):
                self.problems += note_grants(self.granted, action, env.loop.now)

        machine.ready = check_and_ready
        if isinstance(machine, Master):
            machine.pacing = self._pacing
            before_applied(state, note)

    def _note_commit(self, machine: Master, name: str) -> None:
        """Whoever commits something of its own in an epoch is the only one who does."""
        epoch = machine.appointment.epoch
        if epoch < self.book.appointment.epoch and self.book.replaced_s:
            # Deposed, and it has not heard of it: what it answers of the class low is with it alone.
            self.book.replaced_s[-1] = self._world.now_s
        if len(machine.appointment.replicas) == 1:
            self._alone_s[name] = self._world.now_s
        if machine.committed.action > machine.inner.state.epochs[-1].action:
            other = self._commits.setdefault(epoch, name)
            if other != name:
                self.problems.append(f"two masters: {other} and {name} commit in epoch {epoch}")

    def _note_slave(self, machine: Follower) -> None:
        """A slave had its turn."""


def draw_pacing(seed: str) -> Pacing:
    """A slave that copies is held back by the little that such clients do; in some worlds by nothing."""
    rng = random.Random(f"{seed}/pacing")
    return Pacing(
        idle_bytes=rng.choice((1, 30_000, 200_000, 1 << 30)),
        floor_bytes=rng.choice((4_000, 5_000, 50_000)),
        share=rng.choice((4, 100, 1 << 30)),
        near_bytes=rng.choice((0, 1_000, 20_000)),
    )


@dataclass(frozen=True, slots=True)
class GroupTerms(Terms):
    """A message of the class ``low`` is on its master alone for a while: with the master goes what only it had. So is
    one of the class ``normal`` as long as the master is the only replica, or has not heard of another one.
    """

    replaced_s: Sequence[float] = ()
    lone: Sequence[tuple[PowerCut, float]] = ()
    """Power cuts of brokers, and until when each of them was the only replica that it knew of."""

    def may_be_lost(self, promise: Promise, operation: Send | Ack) -> bool:
        if promise is Promise.LOW and any(operation.invoked_s <= at_s for at_s in self.replaced_s):
            return True
        cuts = [cut for cut, until_s in self.lone if operation.invoked_s <= until_s]
        alone = replace(self, cuts=cuts)
        return Terms.may_be_lost(self, promise, operation) or Terms.may_be_lost(alone, promise, operation)


def used(state: dict[str, Any]) -> dict[str, Any]:
    """A sequence that was given out counts as used; a slave need not say so before it becomes master."""
    cursors: dict[int, int] = {}
    for _, partition, _, cursor, *_ in state["groups"]:
        cursors[partition] = max(cursor, cursors.get(partition, 0))
    rows = [
        [row[0], row[1], row[2], max(row[3], cursors.get(row[0], 0)), *row[4:]] for row in state["partitions"]
    ]
    return state | {"partitions": rows}


def bytes_of(image: SimDisk, folder: str) -> tuple[int, bytes]:
    """Where a log begins, and all of it."""
    files = sorted(name for name in image.names.cached if name.startswith(folder + "/"))
    start = int(files[0][len(folder) + 1 :].partition(".")[0]) if files else 0
    return start, b"".join(bytes(image.names.cached[name].cached) for name in files)


def make(seed: str) -> Replicated:
    return Replicated(seed)
