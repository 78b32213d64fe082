"""`tidemill subjects`: what can be sent to and consumed from; and removing one."""

from __future__ import annotations

import typer

from tidemill.cli.removing import remove_subject
from tidemill.cli.session import SERVER_DEFAULT, Output, OutputOption, ServerOption, connected, perform
from tidemill.cli.showing_commands import show_subject
from tidemill.cli.tables import print_rows

COLUMNS = ("name", "durability", "messages", "bytes", "first_sequence", "next_sequence")


def build() -> typer.Typer:
    application = typer.Typer(
        help="List the subjects, show or remove one.", rich_markup_mode=None, invoke_without_command=True
    )
    application.callback(invoke_without_command=True)(subjects)
    application.command("list")(list_subjects)
    application.command("show")(show_subject)
    application.command("remove")(remove_subject)
    return application


def subjects(
    context: typer.Context, server: ServerOption = SERVER_DEFAULT, output: OutputOption = Output.TABLE
) -> None:
    """List the subjects, or remove one."""
    if context.invoked_subcommand is None:
        perform(_subjects(server, output), server)


def list_subjects(server: ServerOption = SERVER_DEFAULT, output: OutputOption = Output.TABLE) -> None:
    """List the subjects."""
    perform(_subjects(server, output), server)


async def _subjects(server: str, output: Output) -> None:
    async with connected(server) as client:
        rows = await client.subjects()
    print_rows(rows, COLUMNS, output, "There are no subjects yet: `tidemill send SUBJECT BODY` makes one.")
