"""`tidemill canary`: probes through each broker group, all the time, until SIGTERM or Ctrl-C.

Exit codes: 0 it was told to end, 2 it was asked for in a wrong way.
"""

from __future__ import annotations

import asyncio
import signal
from socket import socket
from typing import Annotated

import typer

from tidemill.canary.options import CanarySettings
from tidemill.cli.failures import CommandFailed, wrong_usage
from tidemill.cli.session import SERVER_DEFAULT, ServerOption, perform
from tidemill.cli.up import CANARY_PORT

DEFAULTS = CanarySettings()


def canary(
    name: Annotated[
        str, typer.Option(help="Its consumer group; two canaries at a time have two names.")
    ] = DEFAULTS.name,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", "-g", metavar="BROKER-GROUP", help="Only these broker groups."),
    ] = None,
    interval: Annotated[
        float, typer.Option(min=0.01, max=60, metavar="SECONDS", help="From one probe to the next.")
    ] = DEFAULTS.interval_s,
    later_every: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="From one probe for later to the next; 0: none.")
    ] = DEFAULTS.later_every_s,
    later: Annotated[
        float, typer.Option(min=0, max=3600, metavar="SECONDS", help="For how long these are to wait.")
    ] = DEFAULTS.later_s,
    patience: Annotated[
        float,
        typer.Option(
            min=0.1, metavar="SECONDS", help="For how long others come before one that did not is lost."
        ),
    ] = DEFAULTS.patience_s,
    metrics_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Serve /metrics and /v1/canary there; 0: any free one.")
    ] = CANARY_PORT,
    metrics_socket: Annotated[
        int | None, typer.Option(min=0, hidden=True, help="A descriptor at which it is listened already.")
    ] = None,
    server: ServerOption = SERVER_DEFAULT,
) -> None:
    """Send probes through each broker group and judge what comes back: loss, doubles, order, times, failovers."""
    from tidemill.cli.worker import configure_logging
    from tidemill_wire.errors import Refused
    from tidemill_wire.fields import parse_group

    try:
        for one in (name, *(group or ())):
            parse_group(one)
    except Refused as error:
        raise wrong_usage(f"{error.detail}: {error.kind.advice}") from None
    settings = CanarySettings(
        name, interval, later_every, later, patience, groups=tuple(group or ()), look_s=DEFAULTS.look_s
    )
    configure_logging()
    place = metrics_port if metrics_socket is None else socket(fileno=metrics_socket)
    perform(_run(server, settings, place), server)


async def _run(server: str, settings: CanarySettings, place: int | socket) -> None:
    from tidemill.canary.canary import Canary
    from tidemill.exporter import metrics_page

    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with Canary.over(server, settings) as canary:
        try:
            told = {"/v1/canary": canary.to_map}
            async with metrics_page(
                place, canary.statistics, told=told, hindered=lambda: canary.hindered
            ) as found:
                print(f"ready http://127.0.0.1:{found}", flush=True)
                await stopped.wait()
        except OSError as error:
            said = error.strerror or str(error)
            raise CommandFailed(
                f"port {place} cannot be listened at ({said}): name another --metrics-port"
            ) from None
