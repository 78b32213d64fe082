"""`tidemill subjects`: what can be sent to and consumed from; and removing one."""

from __future__ import annotations

import typer

from tidemill.cli.removing import remove_subject
from tidemill.cli.session import Output, connected, listing
from tidemill.cli.showing_commands import show_subject
from tidemill.cli.tables import print_rows

COLUMNS = ("name", "durability", "messages", "bytes", "first_sequence", "next_sequence")


def build() -> typer.Typer:
    application = listing("List the subjects, show or remove one.", "subjects", _subjects)
    application.command("show")(show_subject)
    application.command("remove")(remove_subject)
    return application


async def _subjects(server: str, output: Output) -> None:
    async with connected(server) as client:
        rows = await client.subjects()
    print_rows(rows, COLUMNS, output, "There are no subjects yet: `tidemill send SUBJECT BODY` makes one.")
