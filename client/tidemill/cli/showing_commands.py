"""The `list` and `show` commands that read a picture; the nouns `clients` and `routes`, which people only look at."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidemill.cli import showing
from tidemill.cli.completing import complete_broker
from tidemill.cli.failures import CommandFailed
from tidemill.cli.reading import read_picture
from tidemill.cli.removing import GroupArgument
from tidemill.cli.screen import drains
from tidemill.cli.session import (
    SERVER_DEFAULT,
    Output,
    OutputOption,
    ServerOption,
    SubjectArgument,
    listing,
    perform,
)
from tidemill.cli.tables import print_fields, print_rows

OVER_SECONDS = 3.0
SERVERS = ("name", "service", "group", "role", "alive", "in_sync", "version", "up_s", "http")
CLIENTS = ("client", "silent_ms", "produces", "consumes")
ROUTES = ("subject", "partition", "group", "order_keys", "state")

OverOption = Annotated[
    float,
    typer.Option("--over", min=0, max=3600, metavar="SECONDS", help="Look twice, so far apart; 0: once."),
]


def show_subject(
    subject: SubjectArgument, server: ServerOption = SERVER_DEFAULT, output: OutputOption = Output.TABLE
) -> None:
    """Show a subject: how much of it is kept where, its groups, and what was declared of it."""

    async def run() -> None:
        print_fields(await showing.subject_fields(server, subject), output)

    perform(run(), server)


def show_group(
    subject: SubjectArgument,
    group: GroupArgument,
    over: OverOption = OVER_SECONDS,
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a consumer group: how far it is, who is in it, and when it will have done all, at this pace."""

    async def run() -> None:
        fields = await showing.group_fields(server, (subject, group), over)
        if output is Output.TABLE:
            fields = {**fields, "drains_in_s": None, "drains_in": drains(fields)}
            del fields["drains_in_s"]
        print_fields(fields, output)

    perform(run(), server)


async def print_servers(server: str, output: Output) -> None:
    """What serves: brokers, delay services, and meta."""
    picture = await read_picture(server, subjects=False, clients=False)
    print_rows(showing.server_rows(picture), SERVERS, output, "No broker has registered yet.")


def show_server(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="As `tidemill brokers list` has it.", autocompletion=complete_broker
        ),
    ],
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one broker, delay service or meta with all that it says of itself."""

    async def run() -> None:
        picture = await read_picture(server, subjects=False, clients=False)
        print_fields(showing.server_fields(picture, name), output)

    perform(run(), server)


def build_clients() -> typer.Typer:
    """The commands below `tidemill clients`."""
    about = "programs that were heard of late, and what they produce and consume"
    application = listing("List the programs that produce and consume, or show one.", about, _clients)
    application.command("show")(show_client)
    return application


def build_routes() -> typer.Typer:
    """The commands below `tidemill routes`."""
    about = "the partitions of all subjects, and which broker group each lies on"
    application = listing("List where subjects lie, or show it of one.", about, _all_routes)
    application.command("show")(show_route)
    return application


async def _clients(server: str, output: Output) -> None:
    rows = await showing.client_rows(server)
    shown = [{name: row[name] for name in CLIENTS} for row in rows] if output is Output.TABLE else rows
    print_rows(shown, CLIENTS, output, "No program was heard of late.")


def show_client(
    name: Annotated[str, typer.Argument(metavar="CLIENT", help="As `tidemill clients list` has it.")],
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one program: what it produces and consumes, under which names."""

    async def run() -> None:
        row = _only([row for row in await showing.client_rows(server) if row["client"] == name], name)
        print_fields(row, output)

    perform(run(), server)


async def _all_routes(server: str, output: Output) -> None:
    await _routes(server, "", output)


def show_route(
    subject: SubjectArgument, server: ServerOption = SERVER_DEFAULT, output: OutputOption = Output.TABLE
) -> None:
    """Show the partitions of one subject, and which broker group each lies on."""
    perform(_routes(server, subject, output), server)


async def _routes(server: str, subject: str, output: Output) -> None:
    rows = await showing.route_rows(server, subject)
    print_rows(rows, ROUTES, output, "Meta has placed no subject yet.")


def _only(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    if not rows:
        raise CommandFailed(f"there is no program {name!r}: `tidemill clients list` has those heard of late")
    return rows[0]
