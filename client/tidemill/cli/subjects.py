"""`tidemill subjects`: what can be sent to and consumed from."""

from __future__ import annotations

from tidemill.cli.session import SERVER_DEFAULT, Output, OutputOption, ServerOption, connected, perform
from tidemill.cli.tables import print_rows

COLUMNS = ("name", "durability", "messages", "bytes", "first_sequence", "next_sequence")


def subjects(server: ServerOption = SERVER_DEFAULT, output: OutputOption = Output.TEXT) -> None:
    """List the subjects."""
    perform(_subjects(server, output), server)


async def _subjects(server: str, output: Output) -> None:
    async with connected(server) as client:
        rows = await client.subjects()
    print_rows(rows, COLUMNS, output, "There are no subjects yet: `tidemill send SUBJECT BODY` makes one.")
