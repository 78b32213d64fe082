"""``python -m tidemill_broker``: what ``tidemill up`` and ``tidemill inspect`` run. Wiring only."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence

from tidemill_broker.doors import Service, recover
from tidemill_broker.doors.control import routes_of, values_of
from tidemill_broker.doors.inspecting import inspect
from tidemill_broker.doors.manifests import read_manifests
from tidemill_broker.doors.metrics import render_metrics
from tidemill_broker.settings import BrokerSettings, read_settings
from tidemill_host.clock import RealClock
from tidemill_host.disk import RealDisk
from tidemill_host.files import Files
from tidemill_host.process import (
    FolderInUse,
    FolderLock,
    calm_collector,
    keep_memory,
    make_lanes,
    raise_file_limit,
    run,
    say,
    stop_event,
)
from tidemill_journal.errors import CorruptRun, JournalError
from tidemill_wire import limits
from tidemill_wire.declarations import Declaration
from tidemill_wire.errors import TidemillError


def parser() -> argparse.ArgumentParser:
    """The arguments; ``tidemill up`` passes its own through."""
    arguments = argparse.ArgumentParser(prog="tidemill")
    nouns = arguments.add_subparsers(dest="noun", required=True)
    up = nouns.add_parser("up", help="run a standalone queue")
    up.add_argument("-f", "--manifests", action="append", default=[])
    up.add_argument("--data", default="tidemill-data")
    up.add_argument("--host", default="127.0.0.1")
    up.add_argument("--port", type=_port, default=7400)
    up.add_argument("--http-port", type=_port, default=7401)
    look = nouns.add_parser("inspect", help="look into a data folder or a log file")
    look.add_argument("what", nargs="?", default="log")
    look.add_argument("path", nargs="?", default="tidemill-data")
    look.add_argument("--output", choices=("text", "json"), default="text")
    return arguments


def _port(written: str) -> int:
    """A port; the event loop would take the lowest 16 bits of any number."""
    if written.isascii() and written.isdigit() and int(written) < 1 << 16:
        return int(written)
    raise argparse.ArgumentTypeError(f"{written[:40]!r} is no port: write 0 to 65535, 0 for any free one")


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    arguments = parser().parse_args(argv)
    if arguments.noun == "inspect":
        return inspect(arguments.path, arguments.output, sys.stdout.write)
    try:
        settings = read_settings(os.environ)
        declarations = read_manifests(arguments.manifests)
        lock = FolderLock(arguments.data)
    except (TidemillError, FolderInUse, OSError) as error:
        sys.stderr.write(f"tidemill: {_sentence(error)}\n")
        return 1
    keep_memory()
    files_max = raise_file_limit()
    try:
        return run(_serve(arguments, declarations, settings, files_max))
    except (JournalError, TidemillError, OSError) as error:
        sys.stderr.write(f"tidemill: {_sentence(error)}\n")
        return 1
    finally:
        lock.release()


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        place = f" {error.filename}" if error.filename else ""
        return f"{error.strerror}{place}: choose another --port, --http-port or --data"
    return str(error)


async def _serve(
    arguments: argparse.Namespace,
    declarations: Sequence[Declaration],
    settings: BrokerSettings,
    files_max: int,
) -> int:
    # aiohttp's server takes a third of the start; nothing before needs it.
    from tidemill_broker.doors.dead import Dead
    from tidemill_broker.doors.gateway import Gateway
    from tidemill_broker.doors.gateway_steering import Steering
    from tidemill_broker.doors.queries import Queries
    from tidemill_broker.doors.why import Why
    from tidemill_host.web import Web

    stopping = stop_event()
    clock = RealClock()
    disk = RealDisk(arguments.data)
    broker, report = recover(disk, settings, clock.now_ms())
    for folder, size in report.cut_bytes.items():
        sys.stderr.write(
            f"tidemill: cut {size} bytes of a torn {folder} log; a copy is in {arguments.data}/aside\n"
        )
    lanes = make_lanes()
    service = Service(broker, disk, lanes, clock)
    service.declare(declarations)
    service.server.connections_max = min(limits.CONNECTIONS_MAX, files_max * 3 // 4)
    port = await service.listen(arguments.host, arguments.port)
    values = values_of(service, lambda: routes_of(service, port))
    gateway = Gateway(service)
    gateway.start()
    queries = Queries(broker, disk, lanes.read)
    steering = Steering(service)
    doors = (queries, Why(broker, Files(disk), queries, clock), Dead(broker), gateway, steering)
    routes = [route for door in doors for route in door.routes()]
    web = Web(values, lambda: render_metrics(service), service.server.statistics.refused, routes)
    http_max = min(limits.HTTP_CONNECTIONS_MAX, files_max // 16)
    http_port = await web.listen(arguments.host, arguments.http_port, http_max)
    calm_collector()
    say(f"ready tidemill://{arguments.host}:{port} http://{arguments.host}:{http_port}")
    if sys.stdout.isatty():
        _greet(arguments.host, http_port)
    service.failed.add_done_callback(lambda _: stopping.set())
    await stopping.wait()
    if service.failed.done():
        sys.stderr.write(f"tidemill: {_end(service.failed.result())}\n")
        return 1
    await service.drain()
    gateway.close()
    steering.close()
    await web.close()
    return 0


def _end(error: Exception) -> str:
    """Why the service cannot go on, and what to do."""
    if isinstance(error, OSError):
        return f"the disk refused ({error.strerror or error}): free or mend it, then start again"
    if isinstance(error, CorruptRun):
        return f"{error.file} was damaged and is removed: start again, and it is made again of its segment"
    traceback.print_exception(error)
    return f"work on the disk broke down ({error!r}): start again, and report the lines above"


def _greet(host: str, http_port: int) -> None:
    server = "" if http_port == 7401 else f" --server {host}:{http_port}"
    say(f"\nType next, in another terminal:\n  tidemill send hello 'first message'{server}")
    say(f"  tidemill consume hello --group demo --from earliest --count 1{server}\n\nCtrl-C stops the queue.")


if __name__ == "__main__":
    sys.exit(main())
