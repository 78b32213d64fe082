"""``python -m tidemill_meta``: one replica of meta. Wiring only."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import socket
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tidemill_host import log
from tidemill_host.browsers import parse_names
from tidemill_host.clock import RealClock
from tidemill_host.listening import listening
from tidemill_host.locks import Locks
from tidemill_host.process import (
    FolderInUse,
    FolderLock,
    calm_collector,
    note,
    parse_port,
    raise_file_limit,
    run,
    say,
    stop_event,
)
from tidemill_host.settings import read_lock_settings
from tidemill_meta.doors.store import SqlStore
from tidemill_meta.settings import MetaSettings, read_settings
from tidemill_meta.storing import StoreAway, StoreDamaged
from tidemill_wire.addresses import address_of
from tidemill_wire.errors import TidemillError
from tidemill_wire.settings import settings_line

if TYPE_CHECKING:
    from tidemill_host.doorman import Doorman
    from tidemill_meta.doors.replica import Replica
    from tidemill_meta.doors.reviewing import ReviewDoor

COLLECT_YOUNG = 4_000
"""Objects after which cycles are looked for among the newest: most of what meta makes stays, and a look at many of
those stops the loop. With 20,000 it took up to 35 ms, and 216 ms for the generation above.
"""
COLLECT_MIDDLE = 1_000
DATABASE_VARIABLE = "TIDEMILL_META_DATABASE"


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    arguments = argparse.ArgumentParser(
        prog="python -m tidemill_meta", description="Run one replica of meta."
    )
    arguments.add_argument("--data", default="tidemill-meta", help="folder of the SQLite database")
    arguments.add_argument(
        "--database",
        default="",
        help=f"postgresql://USER@HOST/NAME, for several replicas; else {DATABASE_VARIABLE}, else SQLite in --data",
    )
    arguments.add_argument("--host", default="127.0.0.1")
    arguments.add_argument("--port", type=parse_port, default=7401)
    log.add_log_option(arguments)
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    arguments = parser().parse_args(argv)
    url = arguments.database or os.environ.get(DATABASE_VARIABLE, "")
    lock: FolderLock | None = None
    try:
        log.begin_log("meta", arguments)
        settings = read_settings(os.environ)
        locks = Locks(read_lock_settings(os.environ))
        if not url:
            lock = FolderLock(arguments.data)
            url = f"sqlite:///{os.path.abspath(arguments.data)}/meta.db"
        store = SqlStore(url)
    except (TidemillError, FolderInUse, OSError) as error:
        log.error("start", str(error))
        return 1
    if not settings.name:
        settings = replace(settings, name=f"{socket.gethostname()[:60]}-{secrets.token_hex(4)}")
    log.LOG.name(settings.name)
    note(settings_line("meta", settings))
    note(settings_line("locks", locks.settings))
    files_max = raise_file_limit()
    try:
        return run(_serve(arguments, locks, settings, store, files_max))
    except StoreDamaged as error:
        place = f"{arguments.data}/meta.db" if lock is not None else "the database"
        log.error("damaged", f"{place} is damaged ({error}): put a copy of it back, or move it away")
        return 1
    except StoreAway as error:
        log.error("database", f"the database does not answer ({error}): start it, or look at its address")
        return 1
    except (TidemillError, OSError) as error:
        log.error("start", str(error))
        return 1
    finally:
        if lock is not None:
            lock.release()


async def _serve(
    arguments: argparse.Namespace, locks: Locks, settings: MetaSettings, store: SqlStore, files_max: int
) -> int:
    # aiohttp's server takes a third of the start; nothing before needs it.
    from tidemill_console.relay import Relay
    from tidemill_console.serving import Pages
    from tidemill_host.web import Web
    from tidemill_meta.doors.access import AccessDoor
    from tidemill_meta.doors.api import Api
    from tidemill_meta.doors.metrics import render_metrics
    from tidemill_meta.doors.replica import Replica
    from tidemill_meta.doors.reviewing import ReviewDoor
    from tidemill_meta.doors.takeovers import Takeovers
    from tidemill_meta.doors.watch import Watch

    stopping, clock = stop_event(), RealClock()
    replica = Replica(settings, store, clock)
    watch = Watch(replica.meta, clock)
    door, takeovers = AccessDoor(replica, locks.access), Takeovers(replica.meta)

    def changed(keys: list[tuple[str, str]]) -> None:
        watch.changed(keys)
        door.changed(keys)
        takeovers.look(clock.now_ms())

    replica.changed = changed
    replica.meta.locked = locks.access.locked
    await replica.open()
    door.obey()
    api = Api(replica, watch)
    refused: Counter[str] = Counter()
    locks.count(refused)
    reviews = ReviewDoor(locks.access, settings, clock.now_ms)
    doorman = _doorman(locks, reviews, clock.now_ms, refused)
    relay = Relay(replica.meta.control_of, locks.caller)
    routes = [*api.routes(), *door.routes(), *reviews.routes(), *Pages().routes(), *relay.routes()]
    names = parse_names(settings.console_hosts)
    metrics = partial(render_metrics, replica, watch, api, takeovers, locks.certificates)
    web = Web(_values(replica), metrics, refused, routes, doorman, names)
    most = min(settings.connections_max, files_max * 3 // 4)
    with listening(arguments.host, arguments.port, "port"):
        port = await web.listen(arguments.host, arguments.port, most, locks.tls)
    calm_collector(COLLECT_YOUNG, COLLECT_MIDDLE)
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(replica.run(), name="replica")
        say(f"ready {locks.scheme}://{address_of(arguments.host, port)}")
        await stopping.wait()
        await web.close()
        await relay.close()
        await reviews.close()
        work.cancel()
    await replica.close()
    return 0


def _values(replica: Replica) -> dict[str, Callable[[], Any]]:
    """What paths without parameters answer."""
    from tidemill_host.health import ready_when
    from tidemill_meta.doors.page import page

    return {
        "/healthz": lambda: {"status": "ok"},
        "/readyz": ready_when(lambda: why_not_ready(replica)),
        "/openapi.json": page,
    }


def _doorman(locks: Locks, reviews: ReviewDoor, now_ms: Callable[[], int], refused: Counter[str]) -> Doorman:
    """Who is let in, of those whose tokens Kubernetes knows, too."""
    from tidemill_console.permits import PERMITS as CONSOLE_PERMITS
    from tidemill_meta.doors.permits import PERMITS

    found = locks.doorman({**PERMITS, **CONSOLE_PERMITS}, "meta", now_ms, refused)
    found.review = reviews.look
    return found


def why_not_ready(replica: Replica) -> str:
    """In words; empty when it is."""
    fresh = replica.meta.senses.fresh(replica.clock.now_ms())
    return "" if fresh else "this replica of meta does not know what the others do, the database is away"


if __name__ == "__main__":
    sys.exit(main())
