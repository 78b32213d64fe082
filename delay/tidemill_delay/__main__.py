"""``python -m tidemill_delay``: a delay service of a cluster, one of a delay group. Wiring only.

It is told by meta what it is in its group, and begins anew in the same process when that changes. The one that runs
beside a lone broker is in that broker's process (``standalone``).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tidemill_delay.attendance import DelayAttendance
from tidemill_delay.doors.service import DelayService, machine_for, recover
from tidemill_delay.machine import Delay
from tidemill_delay.settings import PREFIX, DelaySettings, read_settings
from tidemill_host import log
from tidemill_host.clock import RealClock
from tidemill_host.dialer import Dialer
from tidemill_host.disk import RealDisk
from tidemill_host.listening import listen_on, listening
from tidemill_host.lives import Life, next_life
from tidemill_host.locks import Locks
from tidemill_host.persist import Lanes
from tidemill_host.process import (
    FolderInUse,
    FolderLock,
    calm_collector,
    keep_memory,
    make_lanes,
    note,
    parse_port,
    raise_file_limit,
    run,
    stop_event,
    tell_recovered,
)
from tidemill_host.settings import read_lock_settings
from tidemill_host.whereabouts import Whereabouts
from tidemill_journal.errors import JournalError
from tidemill_ledger.attendance import Identity
from tidemill_ledger.farewell import Farewell
from tidemill_ledger.membership import FENCED, Part, Role, part_of
from tidemill_ledger.readiness import why_not_ready
from tidemill_wire import limits
from tidemill_wire.addresses import split_address
from tidemill_wire.errors import TidemillError
from tidemill_wire.settings import SettingsError, settings_line


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    arguments = argparse.ArgumentParser(prog="python -m tidemill_delay")
    arguments.add_argument("--data", default="tidemill-delay")
    arguments.add_argument("--host", default="127.0.0.1")
    arguments.add_argument("--port", type=parse_port, default=7402)
    arguments.add_argument("--http-port", type=parse_port, default=7403)
    log.add_log_option(arguments)
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    arguments = parser().parse_args(argv)
    try:
        log.begin_log("delay", arguments)
        settings = read_settings(os.environ)
        locks = Locks(read_lock_settings(os.environ))
        whereabouts = Whereabouts(arguments.data, arguments.host, arguments.port, arguments.http_port, locks)
        log.LOG.name(settings.name)
        if not (settings.replicated and settings.meta):
            raise SettingsError(
                f"a delay service of its own is one of a group: set {PREFIX}REPLICATED=true and {PREFIX}META, "
                "or run `tidemill up`, which has one beside its broker"
            )
        lock = FolderLock(whereabouts.data)
    except (TidemillError, FolderInUse, OSError) as error:
        log.error("start", str(error))
        return 1
    note(settings_line("delay", settings))
    note(settings_line("locks", locks.settings))
    keep_memory()
    files_max = raise_file_limit()
    try:
        return run(_live(whereabouts, settings, files_max))
    except (JournalError, TidemillError, OSError) as error:
        log.error("ended", str(error))
        return 1
    finally:
        lock.release()


@dataclass(slots=True)
class Premises:
    """What the process has for as long as it lives, whatever it is in its group."""

    whereabouts: Whereabouts
    settings: DelaySettings
    files_max: int
    disk: RealDisk
    lanes: Lanes
    clock: RealClock
    stopping: asyncio.Event
    life: Life


async def _live(whereabouts: Whereabouts, settings: DelaySettings, files_max: int) -> int:
    """One part after the other; the exit code."""
    disk, clock = RealDisk(whereabouts.data), RealClock()
    life = next_life(disk, clock.now_ms(), lambda: secrets.token_hex(8))
    premises = Premises(whereabouts, settings, files_max, disk, make_lanes(), clock, stop_event(), life)
    part: Part | int = FENCED
    while isinstance(part, Part):
        part = await _play(premises, part)
    return part


async def _play(premises: Premises, part: Part) -> Part | int:
    """Be a delay service with that part, until it is to be another one, or the process is to end with an exit code."""
    from tidemill_delay.doors.metrics import render_metrics
    from tidemill_delay.doors.page import page
    from tidemill_host.health import beginning, ready_when
    from tidemill_host.permits import COMMON
    from tidemill_host.web import Web

    at = premises.whereabouts
    with beginning(at.host, at.http_port, at.locks.tls):
        service = _prepare(premises, part)
    port = await listen_on(service, at.host, at.port, again=at.known)

    def process() -> dict[str, Any]:
        named = {"name": premises.settings.name, "role": part.role.value}
        return {**named, "epoch": part.epoch, "pid": os.getpid()}

    values: dict[str, Callable[[], Any]] = {
        "/healthz": lambda: {"status": "ok"},
        "/readyz": ready_when(lambda: _why_not_ready(service)),
        "/v1/process": process,
        "/openapi.json": page,
    }
    refused, clock = service.server.statistics.refused, premises.clock
    doorman = at.locks.doorman(COMMON, "delay", clock.now_ms, refused)
    web = Web(values, lambda: render_metrics(service), refused, (), doorman)
    http_max = min(limits.HTTP_CONNECTIONS_MAX, premises.files_max // 16)
    with listening(at.host, at.http_port, "--http-port"):
        http_port = await web.listen(at.host, at.http_port, http_max, at.locks.tls)
    calm_collector()
    at.say_ready((port, http_port), f"{part.role.value} in epoch {part.epoch}")
    await _until(service, part, premises)
    end: Part | int = 0
    if service.turned.done() and not service.failed.done():
        await service.rest()
        end = part_of(premises.settings.name, service.turned.result())
    elif not service.failed.done() and service.is_halted:
        await service.rest()  # what it had is with whoever comes next
    elif not service.failed.done():
        await service.drain()
    await web.close()
    if service.failed.done():
        error = service.failed.result()
        log.error("ended", f"the delay service ended ({error!r}): mend what it says, then start again")
        return 1
    return end


def _prepare(premises: Premises, part: Part) -> DelayService:
    """The service that lies on the disk, with that part."""
    disk, clock = premises.disk, premises.clock
    began = clock.seconds()
    delay, report = recover(disk, premises.settings, clock.now_ms(), part)
    tell_recovered(report, premises.whereabouts.data)
    machine = machine_for(delay, part, clock.now_ms())
    service = DelayService(delay, disk, premises.lanes, clock, machine)
    premises.whereabouts.locks.guard(service.server, service="delay")
    premises.whereabouts.locks.count(service.server.statistics.refused)
    service.began(report, clock.seconds() - began)
    service.server.connections_max = min(limits.CONNECTIONS_MAX, premises.files_max * 3 // 4)
    return service


async def _until(service: DelayService, part: Part, premises: Premises) -> None:
    """Serve, attend meta, reach the master or the brokers, until something ends it."""
    from tidemill_delay.doors.finding import Finding
    from tidemill_host.attending import Attending
    from tidemill_host.parting import Parting

    settings, at = premises.settings, premises.whereabouts
    metas = settings.meta.split(",")
    data, control = at.addresses(settings.advertise)
    group, life = settings.name.partition("-")[0], premises.life
    identity = Identity(group, settings.name, life.boot, data, control, life.folder, service="delay")
    async with asyncio.TaskGroup() as tasks:
        host, port = split_address(part.master_address)
        stalls = tasks.create_task(service.stalls.keep())
        locked = service.server.gate.access.locked
        attending = Attending(service, DelayAttendance(identity), metas, hears=locked)
        work = [tasks.create_task(attending.keep())]
        reviewing = at.locks.reviewing(settings.meta, service.server.turn.now_ms)
        work.append(tasks.create_task(reviewing.keep()))
        if part.role is Role.SLAVE and port.isdigit():
            work.append(tasks.create_task(Dialer(service.server, host, int(port)).keep()))
        if part.role is Role.MASTER:
            work.append(tasks.create_task(Finding(service, metas).keep()))
        stopped = tasks.create_task(premises.stopping.wait())
        await asyncio.wait((service.failed, service.turned, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        stalls.cancel()
        service.is_stopping = premises.stopping.is_set()
        if service.is_stopping and settings.say_goodbye:
            work.pop(0).cancel()  # what meta says from now on is for whoever comes next
            await Parting(service.server, metas).say_unless(service.failed, partial(Farewell, identity))
        for task in work:
            task.cancel()


def _why_not_ready(service: DelayService) -> str:
    """In words; empty when it is."""
    if service.is_stopping:
        return f"{service.delay.settings.name} is about to stop"
    return "" if isinstance(service.machine, Delay) else why_not_ready(service.machine)


if __name__ == "__main__":
    sys.exit(main())
