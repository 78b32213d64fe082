"""All commands as one typer application."""

from __future__ import annotations

from typing import Annotated

import typer

from tidemill.cli import (
    archive,
    bench,
    broker,
    browse,
    consume,
    dead,
    expand,
    find,
    groups,
    inspect,
    outbox,
    send,
    status,
    subjects,
    timers,
    transactions,
    up,
    why,
    worker,
)
from tidemill.cli.failures import USAGE, print_failure


def build() -> typer.Typer:
    application = typer.Typer(
        help="tidemill, a durable message queue: run it, send to it, consume from it, look into it.",
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,  # plain help starts twice as fast and can be piped
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    application.callback()(_version_option)
    application.command("up")(up.up)
    application.command("status")(status.status)
    application.command("send")(send.send)
    application.command("consume")(consume.consume)
    application.command("browse")(browse.browse)
    application.command("find")(find.find)
    application.command("worker")(worker.worker)
    application.command("why")(why.why)
    application.add_typer(subjects.build(), name="subjects")
    application.command("expand")(expand.expand)
    application.add_typer(groups.build(), name="groups")
    application.add_typer(dead.build(), name="dead")
    application.add_typer(timers.build(), name="timers")
    application.add_typer(transactions.build(), name="transactions")
    application.add_typer(outbox.build(), name="outbox")
    application.command("archive", context_settings=archive.PASSED_ON)(archive.archive)
    application.add_typer(broker.build(), name="broker")
    application.add_typer(inspect.build(), name="inspect")
    application.add_typer(bench.build(), name="bench")
    return application


def explain_usage(error: Exception) -> int:
    """Print what was wrong with the command's arguments; the exit code."""
    context = getattr(error, "ctx", None)
    said = str(getattr(error, "format_message", error.__str__)())
    if type(error).__name__ == "NoArgsIsHelpError":
        print(said)
        return USAGE
    command = getattr(context, "command_path", "tidemill")
    print_failure(f"{said.rstrip('. ')} (see `{command} --help`)")
    return int(getattr(error, "exit_code", USAGE))


def _version_option(
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version and leave.")] = False,
) -> None:
    """tidemill, a durable message queue: run it, send to it, consume from it, look into it."""
