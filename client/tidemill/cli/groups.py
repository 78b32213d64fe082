"""`tidemill groups`: who consumes, and how far they are."""

from __future__ import annotations

from tidemill.cli.session import SERVER_DEFAULT, Output, OutputOption, ServerOption, connected, perform
from tidemill.cli.tables import print_rows

COLUMNS = ("name", "group", "subject", "lag", "in_flight", "failed", "dead", "paused", "consumers")


def groups(server: ServerOption = SERVER_DEFAULT, output: OutputOption = Output.TEXT) -> None:
    """List the consumer groups."""
    perform(_groups(server, output), server)


async def _groups(server: str, output: Output) -> None:
    async with connected(server) as client:
        rows = await client.groups()
    print_rows(
        rows, COLUMNS, output, "There are no groups yet: `tidemill consume SUBJECT --group NAME` makes one."
    )
