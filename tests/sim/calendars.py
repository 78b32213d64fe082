"""Messages for later in a world with a delay group: a master and slaves, appointed as in ``replicated``, and a broker.

What ``later`` asks of one delay service is asked of the group: what was answered is stored once, not before its time,
while masters are killed, cut off, stalled and replaced with deliveries on their way. In the end all replicas have the
same logs, and the same hours.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Coroutine, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from sim.autopsy import NOW_MS, image_of
from sim.council import COUNCIL, Council, attend
from sim.disk import SimDisk
from sim.faults import Kind
from sim.kernel import make_lanes
from sim.later import BROKER, CONSUMER, PORT, ROUTES, Later
from sim.replicated import KINDS, bytes_of, draw_pacing
from sim.world import Env, World
from tidemill.errors import BrokerUnreachable
from tidemill.settings import ClientSettings
from tidemill_delay.doors.service import DelayService, machine_for, recover
from tidemill_delay.machine import Delay
from tidemill_delay.state import State
from tidemill_host.dialer import Dialer
from tidemill_host.local import LocalPeer
from tidemill_host.machine import Ready
from tidemill_journal.errors import JournalError
from tidemill_ledger.following import Follower
from tidemill_ledger.membership import FENCED, Part, Role, part_of
from tidemill_ledger.replication import Master
from tidemill_wire.appointments import Appointment


class Directory:
    """The HTTP port of a cluster: who leads the delay group changes."""

    def __init__(self, council: Council) -> None:
        self._council = council

    async def get(self, path: str, timeout_s: float = 0.0) -> Any:
        del path, timeout_s
        master = self._council.appointment.master
        return {**ROUTES, "delays": [{**ROUTES["delays"][0], "name": master, "host": master}]}  # type: ignore[index]

    async def post(self, path: str, body: object, timeout_s: float = 0.0) -> Any:
        raise BrokerUnreachable(f"{path} is not here")

    async def lines(self, path: str, body: object, silence_s: float) -> AsyncGenerator[Any]:
        raise BrokerUnreachable(f"{path} is not here")
        yield


class Calendars(Later):
    """The scenario."""

    kinds = tuple(kind for kind in KINDS if kind is not Kind.CLOCK_STEP)
    probes = (
        *(
            "closed",
            "paged",
            "failovers",
            "truncations",
            "begun_anew",
            "snapshots",
            "wished_in",
            "waiting_led",
        ),
    )

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        rng = random.Random(f"{seed}/calendars")
        self._group = tuple(f"d{number}" for number in range(1, rng.choice((2, 2, 3)) + 1))
        self.servers = (BROKER, *self._group)
        catch_up = rng.choice((1, 5_000, 1 << 28))
        self._settings = replace(self._settings, replicated=True, catch_up_bytes=catch_up)
        first = self._group[:1]
        self._late_s = rng.choice((0.0, 0.0, 2.0, 4.0))
        """When the last replica begins for the first time: others have removed a part of their logs by then."""
        in_sync = self._group if rng.random() < 0.5 and not self._late_s else first
        addresses = {name: f"{name}:{PORT}" for name in self._group}
        self._council = Council(Appointment("delay", 1, *first, self._group, in_sync, 0), addresses=addresses)
        self._running: dict[str, DelayService] = {}
        self._pacing = draw_pacing(seed)

    def build(self, world: World) -> None:
        self._world = world
        world.add_client(COUNCIL, self._council.serve)
        world.add_server(BROKER, self._serve_broker)
        for name in self._group:
            world.add_server(name, self._serve_one)
        for name in self._producers:
            world.add_client(name, self._produce)
        world.add_client(CONSUMER, self._consume)

    def drained(self) -> bool:
        return super().drained() and self._is_whole()

    def _is_whole(self) -> bool:
        """All replicas are in sync, and have all."""
        now = self._council.appointment
        master = self._running.get(now.master)
        if master is None or not isinstance(master.machine, Master):
            return False
        stood = master.machine.stand()
        others = len(self._group) - 1
        return (
            set(now.in_sync) == set(self._group)
            and stood.version == now.version
            and stood.committed == stood.ends
            and set(stood.slaves.values()) == ({stood.ends} if others else set())
            and len(stood.slaves) == others
        )

    def check(self, world: World) -> list[str]:
        decided = self._council.decided
        world.probes["failovers"] += max((one.epoch for one in decided), default=1) - 1
        world.probes["wished_in"] += sum(
            len(set(after.in_sync) - set(before.in_sync))
            for before, after in pairwise(decided)
            if before.epoch == after.epoch
        )
        images = {name: image_of(world.nodes[name].disk) for name in self._group}
        return [*super().check(world), *self._differences(images)]

    def _differences(self, images: Mapping[str, SimDisk]) -> list[str]:
        """Logs that are not equal where both are kept, and replicas that would go on otherwise."""
        problems: list[str] = []
        master = self._council.appointment.master
        for folder in ("message", "action"):
            logs = {name: bytes_of(image, folder) for name, image in images.items()}
            start, data = logs[master]
            for name, (other_start, other) in logs.items():
                begin, end = max(start, other_start), min(start + len(data), other_start + len(other))
                if data[begin - start : end - start] != other[begin - other_start : end - other_start]:
                    problems.append(f"different bytes: {folder} of {name} is not that of {master}")
        known: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {}
        for name, image in images.items():
            try:
                delay, _ = recover(image.mount(), replace(self._settings, name=name), NOW_MS, FENCED)
            except JournalError as error:
                problems.append(f"refused start: {name}: {error}")
                continue
            ends = delay.logs.messages.end, delay.logs.actions.end
            known[name] = ends, said(delay.state, image)
        if master in known:
            problems += [
                f"different hours: {part} of {name} is {value!r:.200}, of {master} {known[master][1].get(part)!r:.200}"
                for name, (ends, parts) in known.items()
                if ends == known[master][0]
                for part, value in parts.items()
                if value != known[master][1].get(part)
            ]
        return problems

    # -- a server ----------------------------------------------------------------------------------------------

    async def _serve_one(self, env: Env) -> None:
        part, settings = FENCED, replace(self._settings, name=env.name)
        if env.name == self._group[-1] and env.life == 1:
            await asyncio.sleep(self._late_s)
        while True:
            try:
                delay, report = recover(env.disk, settings, env.clock.now_ms(), part)
            except JournalError as error:
                self._problems.append(f"refused start: {env.name}: {error}")
                raise
            self._world.probes["truncations"] += part.cut is not None and bool(report.cut_bytes)
            self._world.probes["begun_anew"] += part.anew
            machine = machine_for(delay, part, env.clock.now_ms())
            assert machine is not None
            self._watch(machine, delay, env)
            service = DelayService(delay, env.disk, make_lanes(kernel=env.life % 2 == 1), env.clock, machine)
            await service.listen("0.0.0.0", PORT)
            self._tell(service)
            self._running[env.name] = service
            part = await self._play(env, service, part)

    def _tell(self, service: DelayService) -> None:
        """Which brokers there are."""
        service.everywhere("g0")

    def _bringing(self, env: Env, service: DelayService) -> list[Coroutine[Any, Any, None]]:
        """What a master does to reach brokers."""
        del env
        return [service.reach(BROKER, PORT)]

    async def _play(self, env: Env, service: DelayService, part: Part) -> Part:
        """Be that, until it is to be something else."""
        local = LocalPeer(service.server, lambda _command: None)
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(attend(local, []))]
            if part.role is Role.SLAVE:
                host, _, port = part.master_address.rpartition(":")
                work.append(tasks.create_task(Dialer(service.server, host, int(port)).keep()))
            if part.role is Role.MASTER:
                work += [tasks.create_task(one) for one in self._bringing(env, service)]
            await asyncio.wait((service.failed, service.turned), return_when=asyncio.FIRST_COMPLETED)
            for task in work:
                task.cancel()
        del self._running[env.name]
        if not service.failed.done():
            await service.rest()
        if service.failed.done():
            raise SystemExit(1)
        return part_of(env.name, service.turned.result())

    def _watch(self, machine: Any, delay: Delay, env: Env) -> None:
        """Check after each turn, and note what came about."""
        ready, probes = machine.ready, self._world.probes
        if isinstance(machine, Master):
            machine.pacing = self._pacing
            probes["waiting_led"] |= machine.appointment.epoch > 1 and delay.state.waiting > 0

        def check_and_ready() -> Ready:
            machine.check()
            self._look(delay)
            if isinstance(machine, Follower):
                probes["snapshots"] |= machine._copying is not None
            return ready()

        machine.ready = check_and_ready

    # -- clients -----------------------------------------------------------------------------------------------

    def _settings_of(self, env: Env) -> ClientSettings:
        return replace(super()._settings_of(env), open_port=lambda _host, _port: Directory(self._council))


def said(state: State, image: SimDisk) -> dict[str, Any]:
    """What a replica would go on with, and the hours that it has."""
    hours: dict[str, Any] = {
        f"hour {hour.start_ms}": (hour.count, hour.size, hour.done.to_bytes())
        for hour in state.hours.values()
    }
    for hour in state.hours.values():
        for name in (f"schedule/{hour.start_ms:020}.pieces", f"schedule/{hour.start_ms:020}.rows"):
            hours[name] = bytes(image.names.cached[name].cached) if name in image.names.cached else b""
    return {
        **hours,
        "messages": state.messages,
        "closed": state.closed_ms,
        "kept": state.kept,
        "cancelled": state.cancelled,
    }


def make(seed: str) -> Calendars:
    return Calendars(seed)
