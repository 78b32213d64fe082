"""`tidemill groups`: who consumes and how far they are; and letting them go on elsewhere, stand still, or go on."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.removing import GroupArgument, agreed, remove_group
from tidemill.cli.session import (
    SERVER_DEFAULT,
    Output,
    OutputOption,
    ServerOption,
    SubjectArgument,
    connected,
    listing,
    perform,
)
from tidemill.cli.showing_commands import show_group
from tidemill.cli.tables import print_rows, print_value

if TYPE_CHECKING:
    from tidemill import Moved

COLUMNS = (
    "name",
    "group",
    "subject",
    "lag",
    "in_flight",
    "failed",
    "dead",
    "paused",
    "consumption",
    "suspended",
    "over_quota",
    "consumers",
)


def build() -> typer.Typer:
    application = listing("List the consumer groups, or steer one.", "the consumer groups", _groups)
    application.command("show")(show_group)
    application.command("seek")(seek)
    application.command("suspend")(suspend)
    application.command("resume")(resume)
    application.command("remove")(remove_group)
    return application


async def _groups(server: str, output: Output) -> None:
    async with connected(server) as client:
        rows = await client.groups()
    shown = rows
    if output is Output.TABLE:
        shown = [
            {
                name: ", ".join(value) if name == "brokers" else value
                for name, value in row.items()
                if name != "away"
            }
            for row in rows
        ]
    print_rows(
        shown, COLUMNS, output, "There are no groups yet: `tidemill consume SUBJECT --group NAME` makes one."
    )
    away = sorted({name for row in rows for name in row.get("away", ())})
    if away:
        raise CommandFailed(
            f"{', '.join(away)} cannot be asked now, what lies there is not counted: look with `tidemill status`"
        )


def parse_place(written: str) -> str:
    """earliest, latest, a sequence or a time; kept as text, because that is what an option is."""
    place_of(written)
    return written


def place_of(written: str) -> str | int | datetime:
    """Where a group goes on."""
    from tidemill_wire.schema import parse_timestamp

    if written in ("earliest", "latest"):
        return written
    if written.isascii() and written.isdigit() and len(written) <= 18:
        return int(written)
    at_ms = parse_timestamp(written if len(written) > len("2026-09-01") else f"{written}T00:00:00Z")
    if at_ms is None or at_ms < 0:
        raise typer.BadParameter(
            f"{written[:60]!r} is no place: write earliest, latest, a sequence such as 4711, "
            "or a time such as 2026-09-01T00:00:00Z or 2026-09-01"
        )
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def seek(
    subject: SubjectArgument,
    group: GroupArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="earliest|latest|TIME|SEQUENCE", callback=parse_place, help="Where it goes on."
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen and do nothing.")] = False,
    server: ServerOption = SERVER_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Let a group go on at another place of a subject. What its consumers hold, and what failed, counts no more."""
    perform(_seek((subject, group), place_of(to), (yes, dry_run), server, output), server)


async def _seek(
    names: tuple[str, str], to: str | int | datetime, consent: tuple[bool, bool], server: str, output: Output
) -> None:
    yes, dry_run = consent
    async with connected(server) as client:
        expected = await client.seek(*names, to, rehearsal=True)
        if output is Output.TABLE:
            print(_sentence(names, expected, "would go on"))
        if dry_run:
            if output is not Output.TABLE:
                print_value(asdict(expected), output)
            return
        if not yes and not agreed(", or --dry-run to see what would happen"):
            print("Nothing was done.")
            return
        moved = await client.seek(*names, to)
    if output is Output.TABLE:
        print(_sentence(names, moved, "goes on"))
    else:
        print_value(asdict(moved), output)


def _sentence(names: tuple[str, str], moved: Moved, does: str) -> str:
    subject, group = names
    counts = (
        (moved.again, "delivered again"),
        (moved.skipped, "skipped"),
        (moved.in_flight, "in flight, void"),
        (moved.failed, "waiting for another attempt, dropped"),
    )
    said = ", ".join(f"{count:,} {what}" for count, what in counts if count) or "no message is concerned"
    return f"Group {group} of {subject} {does} at sequence {moved.sequence:,}: {said}."


def suspend(subject: SubjectArgument, group: GroupArgument, server: ServerOption = SERVER_DEFAULT) -> None:
    """Deliver nothing more to a group. It keeps its place; what its consumers hold they may acknowledge."""
    perform(_suspend(subject, group, server, suspended=True), server)


def resume(subject: SubjectArgument, group: GroupArgument, server: ServerOption = SERVER_DEFAULT) -> None:
    """Let a suspended group go on where it stood."""
    perform(_suspend(subject, group, server, suspended=False), server)


async def _suspend(subject: str, group: str, server: str, *, suspended: bool) -> None:
    async with connected(server) as client:
        await (client.suspend if suspended else client.resume)(subject, group)
    print(f"Group {group} of {subject} {'is suspended' if suspended else 'goes on'}.")
