"""``python -m tidemill_operator``: one replica of the operator. Wiring only."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import secrets
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import kopf

from tidemill_operator.doors import watch
from tidemill_operator.doors.advising import Advisor, Lookup
from tidemill_operator.doors.api import Api, NoAccess, Refused, log_in
from tidemill_operator.doors.apply import Applier
from tidemill_operator.doors.health import Health, Sentinel
from tidemill_operator.doors.keys import Keys
from tidemill_operator.doors.lease import Lease, LeaseLost
from tidemill_operator.doors.logs import begin_logging, say
from tidemill_operator.doors.meta import Metas
from tidemill_operator.doors.metrics import Metrics
from tidemill_operator.doors.runtime import Parts, Runtime
from tidemill_operator.kinds import OPTIONAL, OURS, STORAGE_CLASS, WATCHED, Kind
from tidemill_operator.planners import PLANNERS
from tidemill_operator.settings import OperatorSettings, read_settings
from tidemill_wire.errors import TidemillError
from tidemill_wire.settings import settings_line

if TYPE_CHECKING:
    import grpc.aio

KINDS_PAUSE_S = 2.0
logger = logging.getLogger("tidemill.operator")


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    arguments = argparse.ArgumentParser(
        prog="python -m tidemill_operator", description="Make Kubernetes objects of tidemill true."
    )
    arguments.add_argument(
        "--namespace",
        action="append",
        default=[],
        help="look after this namespace; several times for several",
    )
    arguments.add_argument("--host", default="0.0.0.0", help="where probes, metrics and autoscalers ask")
    arguments.add_argument("--port", type=int, default=8080)
    arguments.add_argument(
        "--scaler-port", type=int, default=0, help="where KEDA's external scaler is, over gRPC; 0: nowhere"
    )
    arguments.add_argument("--log-format", choices=("text", "json"), default=None)
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    arguments = parser().parse_args(argv)
    try:
        begin_logging(arguments.log_format or os.environ.get("TIDEMILL_LOG_FORMAT", "text"))
    except ValueError as error:
        sys.stderr.write(f"tidemill: {error}\n")
        return 1
    watch.quiet()
    try:
        settings = read_settings(os.environ)
        access = log_in()
    except (TidemillError, NoAccess) as error:
        say(str(error), logging.ERROR)
        return 1
    settings = replace(
        settings,
        name=settings.name or f"{socket.gethostname()[:60]}-{secrets.token_hex(4)}",
        lease_namespace=settings.lease_namespace or access.default_namespace or "default",
    )
    say(settings_line("operator", settings))
    try:
        asyncio.run(_serve(arguments, settings, access))
    except BaseExceptionGroup as group:
        lost = group.subgroup(LeaseLost)
        if lost is None:
            raise
        say("the lease could not be renewed in time: another replica goes on", logging.ERROR)
        return 1
    return 0


async def _serve(
    arguments: argparse.Namespace, settings: OperatorSettings, access: kopf.ConnectionInfo
) -> None:
    metrics = Metrics()
    api = Api(access, metrics, settings.writes)
    metas = Metas(settings, metrics, Keys(api.get))
    await api.open()
    await metas.open()
    namespaces = tuple(dict.fromkeys(arguments.namespace))
    parts = Parts(api, Applier(api, metrics, settings.name), metas, metrics, PLANNERS)
    runtime = Runtime(parts, settings, namespaces, random.Random(secrets.randbits(64)))
    lookup = Lookup(runtime.store, api, metas)
    advisor = Advisor(lookup.answers)
    health = Health(runtime, metrics, settings, lookup, advisor)
    lease = Lease(api, settings, settings.lease_namespace, settings.name)
    home = (
        namespaces[0]
        if namespaces and settings.lease_namespace not in namespaces
        else settings.lease_namespace
    )
    health.stands_by = lease.stands_by
    health.sentinel = sentinel = Sentinel(api, settings, home, runtime)
    port = await health.listen(arguments.host, arguments.port)
    scaling = await _scaler(arguments, settings, advisor)
    sys.stdout.write(f"ready http://{arguments.host}:{port}\n")
    sys.stdout.flush()
    try:
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(health.tick())]

            def end() -> None:
                for task in background:
                    task.cancel()

            await lease.acquire()
            metrics.leader.set(1)
            kinds = await _kinds(api, runtime, cluster_wide=not namespaces)
            background += [
                tasks.create_task(lease.keep()), tasks.create_task(runtime.run()), tasks.create_task(sentinel.run())
            ]  # fmt: skip
            started = asyncio.Event()
            background.append(tasks.create_task(_note_ready(started, health)))
            await kopf.operator(
                registry=watch.registry(kinds, sentinel.heard, end),
                settings=watch.settings(),
                clusterwide=not namespaces,
                namespaces=namespaces,
                ready_flag=started,
            )
            end()
    finally:
        await lease.release()
        if scaling is not None:
            await scaling.stop(None)
        await health.close()
        await metas.close()
        await api.close()


async def _scaler(
    arguments: argparse.Namespace, settings: OperatorSettings, advisor: Advisor
) -> grpc.aio.Server | None:
    """What answers KEDA, where it is wanted."""
    if not arguments.scaler_port:
        return None
    from tidemill_operator.doors.scaler import Scaler, serve  # gRPC takes a tenth of the start

    credentials = None
    if settings.scaler_tls:
        from tidemill_operator.doors.scaler_tls import ScalerFiles

        credentials = ScalerFiles(settings.scaler_tls, clients=settings.scaler_clients).credentials()
    server, _ = await serve(arguments.scaler_port, Scaler(advisor), arguments.host, credentials)
    return server


async def _note_ready(started: asyncio.Event, health: Health) -> None:
    await started.wait()
    health.ready = True


async def _kinds(api: Api, runtime: Runtime, *, cluster_wide: bool) -> list[Kind]:
    """What is watched, and was looked at. Our own kinds must be there: their definitions may be on their way."""
    wanted = [*OURS, *WATCHED, *OPTIONAL, *([STORAGE_CLASS] if cluster_wide else [])]
    while True:
        try:
            served = await api.serves(wanted)
            missing = [one.kind for one in OURS if one.full not in served]
            if not missing:
                kinds = [one for one in wanted if one.full in served]
                await runtime.looking.around(kinds)
                return kinds
            logger.warning("kinds_missing kinds=%s advice=%s", ",".join(missing), "install tidemill's CRDs")
        except Refused as refused:
            logger.warning("api_away why=%s", refused)
        await asyncio.sleep(KINDS_PAUSE_S)


if __name__ == "__main__":
    sys.exit(main())
