"""``python -m tidemill_standalone``: what ``tidemill up`` runs. Wiring only.

up        a broker with meta beside it, in this process; or a broker of a group, when TIDEMILL_REPLICATED says so
cluster   meta and brokers as processes, which this one looks after
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tidemill_broker import __main__ as broker
from tidemill_broker.doors.manifests import read_grants, read_manifests
from tidemill_broker.settings import read_settings
from tidemill_delay.settings import read_settings as read_delay_settings
from tidemill_host import log
from tidemill_host.locks import Locks
from tidemill_host.process import FolderInUse, FolderLock, parse_port
from tidemill_host.settings import read_lock_settings
from tidemill_meta.settings import read_settings as read_meta_settings
from tidemill_standalone.plan import PlanError, Wanted, check, is_cluster
from tidemill_wire.errors import TidemillError

if TYPE_CHECKING:
    from tidemill_standalone.canary import Perch

REPLICATED = "TIDEMILL_REPLICATED"
ADVERTISE = "TIDEMILL_ADVERTISE"


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["cluster"]:
        return cluster(argv[1:])
    if os.environ.get(REPLICATED, "").lower() == "true":
        return broker.main(argv)  # one of a group: its meta is somewhere else
    data = broker.parser().parse_args(own_parser().parse_known_args(argv)[1]).data
    if is_cluster(folders_of(data)):
        sys.stderr.write(
            f"tidemill: {data} holds a cluster: start it with --brokers, or name another --data\n"
        )
        return 1
    own, argv = own_parser().parse_known_args(argv)
    if own.canary is None:
        from tidemill_standalone.beside import MetaBeside

        return broker.main(argv, MetaBeside)
    from tidemill_standalone.watched import MetaAndCanary

    perch = perched(own.canary)
    return 1 if perch is None else broker.main(argv, partial(MetaAndCanary, perch))


def cluster(argv: Sequence[str]) -> int:
    """Keep a cluster; the exit code."""
    arguments = cluster_parser().parse_args(argv)
    perch = None if arguments.canary is None else perched(arguments.canary)
    if perch is None and arguments.canary is not None:
        return 1
    wanted = Wanted(
        arguments.data, arguments.host, arguments.http_port, arguments.brokers, arguments.slaves,
        arguments.delays, arguments.manifests, "" if perch is None else perch.address,
        os.environ.get(ADVERTISE, ""),
    )  # fmt: skip
    try:
        log.begin_log("keeper", arguments)
        check(wanted, folders_of(wanted.data), wanted.advertised)
        for read in (
            read_settings,
            read_meta_settings,
            read_delay_settings,
        ):  # said once, and not by each child
            read(os.environ)
        locks = Locks(read_lock_settings(os.environ))
        declarations = read_manifests(wanted.manifests)
        grants = read_grants(wanted.manifests, locked=locks.access.locked)
        lock = FolderLock(wanted.data)
    except OSError as error:
        place = f" {error.filename}" if error.filename else ""
        log.error(
            "start", f"{error.strerror or error}{place}: look at what is there, or choose another --data"
        )
        return 1
    except (PlanError, TidemillError, FolderInUse) as error:
        log.error("start", str(error))
        return 1
    from tidemill_standalone.keeper import Keeper

    try:
        return asyncio.run(Keeper(wanted, declarations, grants, locks, perch).run())
    finally:
        lock.release()


def cluster_parser() -> argparse.ArgumentParser:
    """The arguments; ``tidemill up`` passes its own through."""
    arguments = argparse.ArgumentParser(prog="tidemill up")
    arguments.add_argument("-f", "--manifests", action="append", default=[])
    arguments.add_argument("--data", default="tidemill-data")
    arguments.add_argument("--host", default="127.0.0.1")
    arguments.add_argument("--http-port", type=parse_port, default=7401)
    arguments.add_argument("--brokers", type=int, default=1)
    arguments.add_argument("--slaves", type=int, default=0)
    arguments.add_argument("--delays", type=int, default=1)
    add_canary_option(arguments)
    log.add_log_option(arguments)
    return arguments


def own_parser() -> argparse.ArgumentParser:
    """What the broker knows nothing of."""
    arguments = argparse.ArgumentParser(prog="tidemill up", add_help=False, allow_abbrev=False)
    add_canary_option(arguments)
    return arguments


def add_canary_option(arguments: argparse.ArgumentParser) -> None:
    arguments.add_argument("--canary", type=parse_port, help="run a canary, with its page at this port")


def perched(port: int) -> Perch | None:
    """The place of the canary's page; it is said when it cannot be had."""
    from tidemill_standalone.canary import Perch

    try:
        return Perch(port)
    except OSError as error:
        said = error.strerror or str(error)
        log.error("start", f"port {port} cannot be listened at ({said}): name another --canary-port")
        return None


def folders_of(data: str) -> list[str]:
    """What lies in a data folder, when there is one."""
    return os.listdir(data) if os.path.isdir(data) else []


if __name__ == "__main__":
    sys.exit(main())
