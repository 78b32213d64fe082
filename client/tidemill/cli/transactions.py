"""`tidemill transactions`: those that nobody has decided, and a person's word on one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.session import (
    SERVER_DEFAULT,
    Output,
    OutputOption,
    ServerOption,
    connected,
    listing,
    perform,
)
from tidemill.cli.tables import print_fields, print_rows, print_value, timestamp
from tidemill_wire.counted import counted

if TYPE_CHECKING:
    from tidemill.transactions import Outcome

COLUMNS = ("id", "group", "broker", "subjects", "messages", "bytes", "stored_at", "checks", "next_check_at")
NONE = "No transaction is pending."

GroupOption = Annotated[str | None, typer.Option("--group", "-g", help="Of this producer group only.")]


def parse_identity(written: str) -> str:
    """A transaction's id, checked before anything is connected."""
    from tidemill_wire.transacting import parse_transaction_id

    try:
        parse_transaction_id(written)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return written


IdArgument = Annotated[
    str,
    typer.Argument(metavar="ID", callback=parse_identity, help="The transaction's id, as `list` shows it."),
]


def build() -> typer.Typer:
    """The commands below `tidemill transactions`."""
    about = "List transactions that nobody has decided, show one, and decide it."
    things = "the transactions that are pending, the oldest of each broker group first"
    application = listing(about, things, _transactions, list_transactions)
    application.command("show")(show)
    application.command("commit")(commit)
    application.command("rollback")(rollback)
    return application


def list_transactions(
    group: GroupOption = None, server: ServerOption = SERVER_DEFAULT, output: OutputOption = Output.TABLE
) -> None:
    perform(_transactions(server, output, group), server)


async def _transactions(server: str, output: Output, group: str | None = None) -> None:
    async with connected(server) as mq:
        found = await mq.undecided()
    rows = [_row(row) for row in found.rows if group in (None, row.get("group"))]
    print_rows(rows, COLUMNS, output, NONE)
    if found.away:
        raise CommandFailed(
            f"{', '.join(found.away)} cannot be asked now, what is pending there is not shown: "
            "look with `tidemill status`"
        )
    hidden = found.pending - len(found.rows)
    if hidden:
        raise CommandFailed(f"{counted(hidden, 'transaction')} more are pending: decide some of these first")


def show(
    identity: IdArgument, server: ServerOption = SERVER_DEFAULT, output: OutputOption = Output.TABLE
) -> None:
    """Show one that is pending with all that is known of it."""

    async def run() -> None:
        async with connected(server) as mq:
            found = await mq.undecided()
        row = next((row for row in found.rows if row["id"] == identity), None)
        if row is None:
            away = f"; {', '.join(found.away)} cannot be asked now" if found.away else ""
            raise CommandFailed(f"no transaction of that id is pending: it was decided, or never begun{away}")
        print_fields(_row(row), output)

    perform(run(), server)


def commit(
    identity: IdArgument, server: ServerOption = SERVER_DEFAULT, output: OutputOption = Output.TABLE
) -> None:
    """Make the messages of a transaction messages, whatever its producer group would say."""
    _decide(identity, "commit", server, output)


def rollback(
    identity: IdArgument, server: ServerOption = SERVER_DEFAULT, output: OutputOption = Output.TABLE
) -> None:
    """Show the messages of a transaction to nobody, ever."""
    _decide(identity, "rollback", server, output)


def _decide(identity: str, outcome: Outcome, server: str, output: Output) -> None:
    async def run() -> None:
        async with connected(server) as mq:
            count = await mq.decide(identity, outcome)
        if output is not Output.TABLE:
            print_value({"id": identity, "outcome": outcome, "messages": count}, output)
        elif outcome == "commit":
            print(f"Transaction {identity} is committed: {counted(count, 'message')}.")
        else:
            print(f"Transaction {identity} is rolled back.")

    perform(run(), server)


def _row(said: dict[str, Any]) -> dict[str, Any]:
    """As a person reads it."""
    times = {"stored_ms": "stored_at", "next_check_ms": "next_check_at"}
    return {
        times.get(name, name): timestamp(datetime.fromtimestamp(value / 1000, UTC))
        if name in times
        else value
        for name, value in said.items()
    }
