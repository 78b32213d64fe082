"""`tidemill outbox`: the table of messages that wait in a program's own database."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.failures import CommandFailed, wrong_usage
from tidemill.cli.session import (
    SERVER_DEFAULT,
    Output,
    OutputOption,
    ServerOption,
    YesOption,
    find_server,
    interactive,
    perform,
)
from tidemill.cli.tables import print_rows, print_value
from tidemill_wire.counted import counted

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

LOOK = "look at --url or TIDEMILL_OUTBOX_URL"
NEEDS = "the outbox needs SQLAlchemy: pip install 'tidemill[outbox]'"

UrlOption = Annotated[
    str,
    typer.Option(
        "--url", metavar="URL", envvar="TIDEMILL_OUTBOX_URL",
        help="The database as SQLAlchemy writes it, such as postgresql+psycopg://user@host/shop.",
    ),
]  # fmt: skip
TableOption = Annotated[str, typer.Option("--table", help="The outbox's table.")]
RowOption = Annotated[list[int] | None, typer.Option("--row", help="This row only; may be repeated.")]
AllOption = Annotated[bool, typer.Option("--all", help="All that were set aside.")]
TABLE_DEFAULT = "tidemill_outbox"
COLUMNS = ("id", "subject", "attempts", "age_ms", "reason")


def build() -> typer.Typer:
    """The commands below `tidemill outbox`."""
    application = typer.Typer(
        help="Look at the messages that wait in a program's own database, and settle those set aside.",
        no_args_is_help=True,
    )
    application.command("create")(create)
    application.command("status")(status)
    application.command("retry")(retry)
    application.command("purge")(purge)
    application.command("forget")(forget)
    application.command("relay")(relay)
    return application


def create(url: UrlOption, table: TableOption = TABLE_DEFAULT) -> None:
    """Make the tables, or bring them to this version."""

    async def run() -> None:
        from sqlalchemy import Engine

        from tidemill.outbox import create_tables, create_tables_async

        engine = _engine(url)
        if isinstance(engine, Engine):
            reached = create_tables(engine, table)
        else:
            reached = await create_tables_async(engine, table)
            await engine.dispose()
        print(f"{table} is of version {reached}")

    _perform(run, url)


def status(url: UrlOption, table: TableOption = TABLE_DEFAULT, output: OutputOption = Output.TABLE) -> None:
    """How many messages wait, since when, who sends them; and what was set aside. Exit code 1 when something was."""

    async def run() -> None:
        from tidemill.outbox.desk import status as ask

        told = await _asked(url, table, ask)
        if output is not Output.TABLE:
            print_value(told, output)
        else:
            aside = told.pop("set_aside")
            print_rows([told], ("table",), output, "")
            if aside:
                print()
                print_rows(aside, COLUMNS, output, "")
        if told["aside"]:
            raise CommandFailed(
                f"{counted(told['aside'], 'message')} of {table} cannot be sent: mend the cause and say "
                "`tidemill outbox retry`, or give them up with `tidemill outbox purge`"
            )

    _perform(run, url)


def retry(
    url: UrlOption,
    row: RowOption = None,
    everything: AllOption = False,
    table: TableOption = TABLE_DEFAULT,
) -> None:
    """Let messages that were set aside be sent again."""
    ids = _chosen(row, everything)

    async def run() -> None:
        from tidemill.outbox.desk import retry as do

        done = await _asked(url, table, lambda connection, found: do(connection, found, ids))
        _refuse_unknown(done, ids, table)
        print(f"{counted(done, 'message')} will be sent again")

    _perform(run, url)


def purge(
    url: UrlOption,
    row: RowOption = None,
    everything: AllOption = False,
    table: TableOption = TABLE_DEFAULT,
    yes: YesOption = False,
) -> None:
    """Delete messages that were set aside, for ever. What waits to be sent is never deleted."""
    ids = _chosen(row, everything)
    if not yes:
        if not interactive(sys.stdin):
            raise wrong_usage("a purge cannot be undone: say --yes when nobody can be asked")
        typer.confirm(f"Delete what was set aside in {table}, for ever?", abort=True, err=True)

    async def run() -> None:
        from tidemill.outbox.desk import purge as do

        done = await _asked(url, table, lambda connection, found: do(connection, found, ids))
        _refuse_unknown(done, ids, table)
        print(f"{counted(done, 'message')} deleted")

    _perform(run, url)


def forget(url: UrlOption) -> None:
    """Delete what @idempotent need not remember any more."""

    async def run() -> None:
        from tidemill.outbox.once import forget as do

        done = await _asked(url, TABLE_DEFAULT, lambda connection, _: do(connection))
        print(f"{counted(done, 'message')} forgotten")

    _perform(run, url)


def relay(url: UrlOption, server: ServerOption = SERVER_DEFAULT, table: TableOption = TABLE_DEFAULT) -> None:
    """Send what programs write that do not send themselves, until Ctrl-C."""

    async def run() -> None:
        import asyncio
        import signal

        from tidemill.outbox import Outbox

        await find_server(server)
        over = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, over.set)
        async with Outbox(_engine(url), server, table=table):
            print(f"sending what is left in {table}, until Ctrl-C", file=sys.stderr, flush=True)
            await over.wait()

    _perform(run, url)


def _chosen(row: list[int] | None, everything: bool) -> list[int] | None:
    if bool(row) == everything:
        raise wrong_usage("say which: --row ID, as often as needed, or --all")
    return None if everything else row


def _refuse_unknown(done: int, ids: list[int] | None, table: str) -> None:
    """Who names rows wants one of those at least."""
    if ids and not done:
        raise CommandFailed(
            f"no such row of {table} was set aside: `tidemill outbox status` lists those that were"
        )


async def _asked(url: str, table: str, ask: Callable[[Any, Any], Any]) -> Any:
    from tidemill.outbox.database import Database, DatabaseAway
    from tidemill.outbox.schema import tables

    try:
        return await Database(_engine(url)).run(ask, tables(name=table))
    except DatabaseAway as error:
        raise CommandFailed(f"the database cannot be asked ({error}): {LOOK}") from None


def _engine(url: str) -> Engine | AsyncEngine:
    """One connection, that of this command."""
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    parsed = make_url(url)
    make: Callable[..., Any] = create_async_engine if parsed.get_dialect().is_async else create_engine
    engine: Engine | AsyncEngine = make(parsed, poolclass=NullPool)
    return engine


def _perform(run: Callable[[], Any], url: str) -> None:
    """What goes wrong with a database is one sentence, too; without the password that may be in its address."""
    try:
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError:
        raise CommandFailed(NEEDS) from None
    try:
        perform(run(), "the database")
    except ValueError as error:
        raise wrong_usage(str(error)) from None
    except ModuleNotFoundError as error:
        raise CommandFailed(
            f"the driver {error.name} of that URL is not installed: pip install it, or name another one in the URL"
        ) from None
    except SQLAlchemyError as error:
        said = str(error).partition("\n")[0].replace(url, "the URL")
        raise CommandFailed(f"the database cannot be asked ({said}): {LOOK}") from None
