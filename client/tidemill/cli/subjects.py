"""`tidemill subjects`: what can be sent to and consumed from; and removing one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from tidemill.cli.removing import remove_subject
from tidemill.cli.session import Output, connected, listing
from tidemill.cli.showing_commands import show_subject
from tidemill.cli.tables import print_rows

COLUMNS = ("name", "durability", "messages", "bytes", "first_sequence", "next_sequence")


def build() -> typer.Typer:
    application = listing("List the subjects, show or remove one.", "the subjects", _subjects)
    application.command("show")(show_subject)
    application.command("remove")(remove_subject)
    return application


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """A subject as meta has it has its whole route, of which a person is shown where it leads."""
    if "route" not in row:
        return dict(row)
    route: Mapping[str, Any] = row["route"] or {}
    partitions: Sequence[Mapping[str, Any]] = route.get("partitions", ())
    return {
        "name": row["name"],
        "state": row["state"],
        "partitions": len(partitions),
        "groups": sorted({one["group"] for one in partitions}),
        "declared": row["declared"] is not None,
    }


async def _subjects(server: str, output: Output) -> None:
    async with connected(server) as client:
        rows = await client.subjects()
    if output is Output.TABLE:
        rows = [_shown(row) for row in rows]
    print_rows(rows, COLUMNS, output, "There are no subjects yet: `tidemill send SUBJECT BODY` makes one.")
