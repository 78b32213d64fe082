"""``python -m tidemill_broker``: what ``tidemill up`` and ``tidemill inspect`` run. Wiring only."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from tidemill_broker.doors import Service, machine_for, recover
from tidemill_broker.doors.control import routes_of, values_of
from tidemill_broker.doors.greeting import greeting
from tidemill_broker.doors.half_subjects import subjects_of
from tidemill_broker.doors.inspecting import Wanted, run_inspect
from tidemill_broker.doors.manifests import read_grants, read_manifests
from tidemill_broker.doors.metrics import MetricsPage
from tidemill_broker.doors.neighbour import Later, Neighbour, Nobody
from tidemill_broker.load import Load
from tidemill_broker.settings import BrokerSettings, parse_labels, read_settings
from tidemill_host import log
from tidemill_host.browsers import parse_names
from tidemill_host.clock import RealClock
from tidemill_host.dialer import Dialer
from tidemill_host.disk import RealDisk
from tidemill_host.files import Files
from tidemill_host.listening import listen_on, listening
from tidemill_host.lives import NOBODY, Life, next_life
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
    say,
    stop_event,
)
from tidemill_host.settings import read_lock_settings
from tidemill_journal.errors import CorruptRun, JournalError
from tidemill_ledger.attendance import Identity
from tidemill_ledger.membership import Part, Role, first_part, part_of
from tidemill_wire import limits
from tidemill_wire.addresses import address_of, split_address
from tidemill_wire.counted import counted
from tidemill_wire.declarations import Declaration
from tidemill_wire.errors import TidemillError
from tidemill_wire.settings import settings_line

if TYPE_CHECKING:
    from tidemill_broker.doors.delaying import DelayGroups
    from tidemill_host.attending import Attending
    from tidemill_host.doorman import Doorman
    from tidemill_host.routing import Route

NEXT = ("send hello 'first message'", "consume hello --group demo --from earliest --count 1")

MoveIn: TypeAlias = Callable[[argparse.Namespace, Sequence[Declaration], BrokerSettings], Neighbour]
"""Makes the service that shares the process, when there is to be one."""


def parser() -> argparse.ArgumentParser:
    """The arguments; ``tidemill up`` passes its own through."""
    arguments = argparse.ArgumentParser(prog="tidemill")
    nouns = arguments.add_subparsers(dest="noun", required=True)
    up = nouns.add_parser("up", help="run a standalone queue")
    up.add_argument("-f", "--manifests", action="append", default=[])
    up.add_argument("--data", default="tidemill-data")
    up.add_argument("--host", default="127.0.0.1")
    up.add_argument("--port", type=parse_port, default=7400)
    up.add_argument("--http-port", type=parse_port, default=7401)
    up.set_defaults(known=False)
    log.add_log_option(up)
    look = nouns.add_parser("inspect", help="look into a data folder or a log file")
    look.add_argument("what", nargs="?", default="log")
    look.add_argument("path", nargs="?", default="tidemill-data")
    look.add_argument("--output", choices=("text", "json", "yaml"), default="text")
    look.add_argument("--verify", action="store_true")
    return arguments


def main(argv: Sequence[str] | None = None, move_in: MoveIn | None = None) -> int:
    """Run, with a neighbour when there is one; the exit code."""
    arguments = parser().parse_args(argv)
    if arguments.noun == "inspect":
        return run_inspect(Wanted(arguments.path, arguments.output, arguments.verify))
    try:
        log.begin_log("broker", arguments)
        settings = read_settings(os.environ)
        arguments.locks = Locks(read_lock_settings(os.environ))
        log.LOG.name(settings.name)
        declarations = read_manifests(arguments.manifests)
        arguments.grants = read_grants(arguments.manifests, locked=arguments.locks.access.locked)
        lock = FolderLock(arguments.data)
    except (TidemillError, FolderInUse, OSError) as error:
        log.error("start", _sentence(error))
        return 1
    note(settings_line("broker", settings))
    note(settings_line("locks", arguments.locks.settings))
    keep_memory()
    files_max = raise_file_limit()
    try:
        neighbour = move_in(arguments, declarations, settings) if move_in is not None else None
        return run(_serve(arguments, declarations, settings, files_max, neighbour))
    except (JournalError, TidemillError, OSError) as error:
        log.error("start", _sentence(error))
        return 1
    finally:
        lock.release()


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        place = f" {error.filename}" if error.filename else ""
        return f"{error.strerror}{place}: look at what is there, or choose another --data"
    return str(error)


@dataclass(slots=True)
class Premises:
    """What a process has for as long as it lives, whatever it is in its broker group."""

    arguments: argparse.Namespace
    declarations: Sequence[Declaration]
    settings: BrokerSettings
    files_max: int
    disk: RealDisk
    lanes: Lanes
    clock: RealClock
    stopping: asyncio.Event
    life: Life
    neighbour: Neighbour | None = None
    """Who else lives here, and shares the HTTP port."""
    delays: DelayGroups | None = None
    """Where what comes over HTTP for later goes, in a cluster."""


async def _serve(
    arguments: argparse.Namespace,
    declarations: Sequence[Declaration],
    settings: BrokerSettings,
    files_max: int,
    neighbour: Neighbour | None,
) -> int:
    disk, clock = RealDisk(arguments.data), RealClock()
    life = NOBODY
    if settings.replicated and settings.meta:
        life = next_life(disk, clock.now_ms(), lambda: secrets.token_hex(8))
    premises = Premises(
        arguments, declarations, settings, files_max, disk, make_lanes(), clock, stop_event(), life, neighbour
    )
    if neighbour is None:
        return await _live(premises)
    assert not settings.replicated  # a neighbour is told of one service, and of one port
    async with asyncio.TaskGroup() as tasks:
        kept = tasks.create_task(neighbour.keep())
        try:
            end: int | Exception = await _live(premises)
        except (JournalError, TidemillError, OSError) as error:
            end = error  # a sentence for a person, and no group of errors
        kept.cancel()
    if isinstance(end, Exception):
        raise end
    return end


async def _live(premises: Premises) -> int:
    """One part after the other; the exit code."""
    part: Part | int = first_part(premises.settings.replicated)
    while isinstance(part, Part):
        part = await _play(premises, part)
    if premises.delays is not None:
        premises.delays.close()
    return part


async def _play(premises: Premises, part: Part) -> Part | int:
    """Be a broker with that part, until it is to be another one, or the process is to end with that exit code."""
    # aiohttp's server takes a third of the start; nothing before needs it.
    from tidemill_broker.doors.archives import archive_doors
    from tidemill_broker.doors.dead import Dead
    from tidemill_broker.doors.gateway import Gateway
    from tidemill_broker.doors.gateway_steering import Steering
    from tidemill_broker.doors.overview import Overview
    from tidemill_broker.doors.queries import Queries
    from tidemill_broker.doors.replicas import Replicas
    from tidemill_broker.doors.timers import TimersDoor
    from tidemill_broker.doors.transactions import TransactionsDoor
    from tidemill_broker.doors.why import Why
    from tidemill_host.health import beginning
    from tidemill_host.web import Web

    arguments, disk, lanes, clock = premises.arguments, premises.disk, premises.lanes, premises.clock
    locks: Locks = arguments.locks
    with beginning(arguments.host, arguments.http_port, locks.tls):
        service = _prepare(premises, part)
    broker = service.broker
    port = await listen_on(service, arguments.host, arguments.port, again=arguments.known)
    values = values_of(service, lambda: routes_of(service, port))
    neighbour = premises.neighbour
    later = _later(premises)
    gateway, replicas = Gateway(service, later), Replicas(service, part)
    if not part.follows:
        gateway.start()
    queries = Queries(broker, disk, lanes.read)
    archives = archive_doors(service, queries, disk, lanes.read)
    steering, why = Steering(service, queries), Why(broker, Files(disk), queries, clock)
    transactions = TransactionsDoor(service)
    timers, overview = TimersDoor(later, clock), Overview(broker, clock)
    looks = (queries, why, Dead(broker), overview)
    doors = (*looks, gateway, steering, replicas, *archives, transactions, timers)
    routes = [route for door in doors for route in door.routes()]
    if neighbour is not None:
        routes += _shared(neighbour, service, values)
    numbers = neighbour.metrics if neighbour is not None else bytes
    refused, doorman = service.server.statistics.refused, _doorman(premises, service)
    names = parse_names(premises.settings.console_hosts)
    web = Web(values, MetricsPage(service, clock, numbers).render, refused, routes, doorman, names)
    http_max = min(limits.HTTP_CONNECTIONS_MAX, premises.files_max // 16)
    with listening(arguments.host, arguments.http_port, "--http-port"):
        http_port = await web.listen(arguments.host, arguments.http_port, http_max, locks.tls)
    overview.start()
    calm_collector()
    _say_ready(arguments, part, (port, http_port))
    if neighbour is not None:
        neighbour.opened((port, http_port))
    await _until(service, part, premises)
    for one in (overview, gateway, steering, transactions, replicas):
        one.close()
    end = await _ended(service)
    await web.close()
    if service.failed.done():
        log.error("ended", _end(service.failed.result()))
        return 1
    return end


def _doorman(premises: Premises, service: Service) -> Doorman:
    """Who is let in at the HTTP port, which a neighbour may share."""
    from tidemill_broker.doors.permits import PERMITS

    permits = PERMITS if premises.neighbour is None else {**premises.neighbour.permits, **PERMITS}
    locks: Locks = premises.arguments.locks
    return locks.doorman(permits, "broker", premises.clock.now_ms, service.server.statistics.refused)


def _shared(neighbour: Neighbour, service: Service, values: dict[str, Callable[[], Any]]) -> Iterable[Route]:
    """The paths of whoever shares the HTTP port, which is described as one."""
    own_page = values["/openapi.json"]
    values["/openapi.json"] = lambda: neighbour.page(own_page())
    return neighbour.routes(service, values["/v1/routes"])


async def _ended(service: Service) -> Part | int:
    """It stops; what it is to be next."""
    if service.failed.done():
        return 0
    if service.turned.done():
        await service.rest()
        return part_of(service.broker.settings.name, service.turned.result())
    if service.is_halted:
        await service.rest()  # what it had is with whoever comes next
    else:
        await service.drain()
    return 0


def _later(premises: Premises) -> Later:
    """Who keeps what comes over HTTP for later."""
    from tidemill_broker.doors.delaying import DelayGroups

    settings = premises.settings
    if premises.neighbour is not None:
        return premises.neighbour.later
    if not (settings.replicated and settings.meta):
        return Nobody()
    caller = premises.arguments.locks.caller
    premises.delays = premises.delays or DelayGroups(settings.name, settings.meta.split(","), caller)
    return premises.delays


def _prepare(premises: Premises, part: Part) -> Service:
    """The broker that lies on the disk, with that part."""
    arguments, settings, clock = premises.arguments, premises.settings, premises.clock
    began = clock.seconds()
    broker, report = recover(premises.disk, settings, clock.now_ms(), part)
    for folder, size in report.cut_bytes.items():
        kept = f"a copy is in {arguments.data}/aside"
        log.warning(
            "torn_tail", f"cut {counted(size, 'byte')} of a torn {folder} log; {kept}", log=folder, bytes=size
        )
    machine = machine_for(broker, part, clock.now_ms())
    service = Service(broker, premises.disk, premises.lanes, clock, machine)
    arguments.locks.guard(service.server, subjects_of(broker))
    arguments.locks.count(service.server.statistics.refused)
    service.began(report, clock.seconds() - began)
    if not part.follows:
        service.declare(premises.declarations)
    service.server.connections_max = min(limits.CONNECTIONS_MAX, premises.files_max * 3 // 4)
    return service


async def _until(service: Service, part: Part, premises: Premises) -> None:
    """Serve, attend meta, and keep a connection to the master, until something ends it."""
    async with asyncio.TaskGroup() as tasks:
        host, port = split_address(part.master_address)
        stalls = tasks.create_task(service.stalls.keep())
        work: list[asyncio.Task[None]] = []
        if part.role is Role.SLAVE and port.isdigit():
            work.append(tasks.create_task(Dialer(service.server, host, int(port)).keep()))
        attending = _attending(service, premises)
        if attending is not None:
            reviewing = premises.arguments.locks.reviewing(premises.settings.meta, premises.clock.now_ms)
            work.append(tasks.create_task(reviewing.keep()))
            work.append(tasks.create_task(attending.keep()))
        stopped = tasks.create_task(premises.stopping.wait())
        await asyncio.wait((service.failed, service.turned, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        stalls.cancel()
        service.is_stopping = premises.stopping.is_set()
        if attending is not None and service.is_stopping and premises.settings.say_goodbye:
            work.pop().cancel()  # what meta says from now on is for whoever comes next
            await _say_goodbye(service, premises)
        for task in work:
            task.cancel()


async def _say_goodbye(service: Service, premises: Premises) -> None:
    """Hand over, and tell meta, before it stops."""
    from tidemill_host.parting import Parting
    from tidemill_ledger.farewell import Farewell

    parting = Parting(service.server, premises.settings.meta.split(","))
    await parting.say_unless(service.failed, partial(Farewell, _identity(premises)))


def _attending(service: Service, premises: Premises) -> Attending | None:
    """What tells meta of this broker; nothing when it is alone, or somebody else appoints."""
    from tidemill_broker.attendance import Attendance
    from tidemill_host.attending import Attending

    settings = premises.settings
    if not (settings.replicated and settings.meta):
        return None
    attendance = Attendance(_identity(premises), Load(settings.load_bytes))
    locked = service.server.gate.access.locked
    return Attending(service, attendance, settings.meta.split(","), hears=locked)


def _identity(premises: Premises) -> Identity:
    settings, arguments = premises.settings, premises.arguments
    host = settings.advertise or arguments.host
    data, control = address_of(host, arguments.port), address_of(host, arguments.http_port)
    group, life = settings.name.partition("-")[0], premises.life
    labels = parse_labels(settings.labels)
    return Identity(group, settings.name, life.boot, data, control, life.folder, labels)


def _say_ready(arguments: argparse.Namespace, part: Part, ports: tuple[int, int]) -> None:
    if arguments.known:
        say(f"{part.role.value} in epoch {part.epoch}")
        return
    arguments.port, arguments.http_port = ports  # whatever this process becomes, it stays where it was found
    arguments.known = True
    data, control = (address_of(arguments.host, port) for port in ports)
    say(f"ready tidemill://{data} {arguments.locks.scheme}://{control}")
    if sys.stdout.isatty():
        say(greeting(arguments.host, ports[1], NEXT, "queue"))


def _end(error: Exception) -> str:
    """Why the service cannot go on, and what to do."""
    if isinstance(error, OSError):
        place = f" at {error.filename}" if error.filename else ""
        return f"the disk refused{place} ({error.strerror or error}): free or mend it, then start again"
    if isinstance(error, CorruptRun):
        return f"{error.file} was damaged and is removed: start again, and it is made again of its segment"
    return (
        f"the broker made a mistake ({error!r}) and ended before it does harm: "
        "start again, and report the line above, which says where it was"
    )


if __name__ == "__main__":
    sys.exit(main())
