"""`tidemill top`: rates, lag and brokers, again and again, or once for scripts."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.picture import Picture
from tidemill.cli.reading import read_picture
from tidemill.cli.screen import rows, screen
from tidemill.cli.session import SERVER_DEFAULT, Output, OutputOption, ServerOption, interactive, perform
from tidemill.cli.tables import print_value

if TYPE_CHECKING:
    from rich.live import Live


def top(
    every: Annotated[
        float, typer.Option("--every", min=0.1, max=3600, metavar="SECONDS", help="Between two looks.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show one screen, of two looks, and leave.")] = False,
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show rates, lag and brokers until Ctrl-C; into a file or pipe, and as JSON or YAML, once."""
    live = not once and output is Output.TABLE and interactive(sys.stdout)
    perform(_watch(server, every) if live else _once(server, every, output), server)


async def _once(server: str, every: float, output: Output) -> None:
    before = await read_picture(server, subjects=False, clients=False)
    await asyncio.sleep(every)
    now = await read_picture(server, subjects=False, clients=False)
    if output is Output.TABLE:
        print("\n".join(screen(now, before, shutil.get_terminal_size((120, 24)).columns)))
    else:
        print_value(rows(now, before), output)


async def _watch(server: str, every: float) -> None:
    from rich.console import Console
    from rich.live import Live

    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    console = Console(highlight=False, markup=False)
    with Live(console=console, screen=True, auto_refresh=False) as view:
        before: Picture | None = None
        while not over.is_set():
            now = await read_picture(server, subjects=False, clients=False)
            _show(view, now, before)
            before = now
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), every)


def _show(view: Live, now: Picture, before: Picture | None) -> None:
    from rich.text import Text

    width, height = view.console.size
    view.update(Text("\n".join(screen(now, before, width, height)), no_wrap=True), refresh=True)
