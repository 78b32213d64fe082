"""`tidemill log-level`: what services say on standard error, more or less of it, for a while."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidemill.cli.asking import PortRefused, Unanswered, ask
from tidemill.cli.completing import complete_broker
from tidemill.cli.failures import CommandFailed
from tidemill.cli.picture import Node
from tidemill.cli.reading import read_picture
from tidemill.cli.session import SERVER_DEFAULT, Output, OutputOption, ServerOption, perform
from tidemill.cli.tables import print_rows
from tidemill_wire.log_lines import Level

COLUMNS = ("name", "level", "usual", "seconds")
PATH = "/v1/log-level"


def log_level(
    level: Annotated[
        Level | None, typer.Argument(metavar="[debug|info|warning|error]", help="From which level on.")
    ] = None,
    seconds: Annotated[
        int, typer.Option("--for", metavar="SECONDS", min=1, max=86_400, help="So long.")
    ] = 600,
    name: Annotated[
        str | None,
        typer.Option(
            "--broker", metavar="NAME", help="Of this process only.", autocompletion=complete_broker
        ),
    ] = None,
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show from which level on services log, or let them log more for a while; then it is as before by itself."""

    async def run() -> None:
        picture = await read_picture(server, subjects=False, clients=False)
        nodes = [node for node in picture.nodes if name in {None, node.name}]
        if not nodes:
            raise CommandFailed(f"there is no broker {name!r}: `tidemill brokers list` has all")
        answers = [(node, await _told(node, level, seconds)) for node in nodes]
        rows = [{"name": node.name, **said} for node, said in answers if said is not None]
        print_rows(rows, COLUMNS, output, "Nobody answers.")
        silent = [node.name for node, said in answers if said is None]
        if silent:
            raise CommandFailed(f"{', '.join(silent)} did not answer: look with `tidemill doctor`")

    perform(run(), server)


async def _told(node: Node, level: Level | None, seconds: int) -> dict[str, Any] | None:
    try:
        said: dict[str, Any] = (
            await ask(node.http, "GET", PATH)
            if level is None
            else await ask(node.http, "POST", PATH, {"level": level.value, "seconds": seconds})
        )
    except (Unanswered, PortRefused):
        return None
    return said
