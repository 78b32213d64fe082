"""All commands as one typer application."""

from __future__ import annotations

import os
import re
from typing import Annotated

import typer

from tidemill.cli import (
    access,
    apply,
    archive,
    bench,
    broker,
    browse,
    canary,
    consume,
    dead,
    doctor,
    expand,
    find,
    groups,
    inspect,
    log_level,
    outbox,
    send,
    showing_commands,
    status,
    subjects,
    timers,
    top,
    transactions,
    up,
    why,
    worker,
)
from tidemill.cli.failures import USAGE, print_failure
from tidemill.cli.helping import dressed

IN_WORDS = (
    (re.compile(r"Value error, "), ""),
    (re.compile(r"Input should be a valid integer.*"), "write a whole number"),
    (re.compile(r"Input should be a valid number.*"), "write a number"),
    (re.compile(r"Input should be greater than or equal to (\S+)"), r"write \1 or more"),
    (re.compile(r"Input should be less than or equal to (\S+)"), r"write \1 or less"),
)
"""What is said to programmers, as it is said to people."""


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
    application.command("apply")(apply.apply)
    application.command("status")(status.status)
    application.command("doctor")(doctor.doctor)
    application.command("top")(top.top)
    application.command("canary")(canary.canary)
    application.command("log-level")(log_level.log_level)
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
    application.add_typer(access.build_grants(), name="grants")
    application.add_typer(access.build_tokens(), name="tokens")
    application.add_typer(broker.build(), name="brokers")
    application.add_typer(
        broker.build(), name="broker", hidden=True
    )  # as it was called before there was a list
    application.add_typer(showing_commands.build_clients(), name="clients")
    application.add_typer(showing_commands.build_routes(), name="routes")
    application.command("archive", context_settings=archive.PASSED_ON)(archive.archive)
    application.add_typer(inspect.build(), name="inspect")
    application.add_typer(bench.build(), name="bench")
    return dressed(application)


def explain_usage(error: Exception) -> int:
    """Print what was wrong with the command's arguments; the exit code."""
    context = getattr(error, "ctx", None)
    said = str(getattr(error, "format_message", error.__str__)())
    if type(error).__name__ == "NoArgsIsHelpError":
        print(said)
        return USAGE
    command = getattr(context, "command_path", "tidemill")
    for pattern, words in IN_WORDS:
        said = pattern.sub(words, said)
    print_failure(f"{said.rstrip('. ')} (see `{command} --help`)")
    return int(getattr(error, "exit_code", USAGE))


def _version_option(
    _version: Annotated[bool, typer.Option("--version", "-V", help="Show the version and leave.")] = False,
    ca: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="Authorities of the queue's certificate; TLS is spoken. TIDEMILL_CA"
        ),
    ] = "",
    cert: Annotated[
        str, typer.Option(metavar="FILE", help="A certificate to show to the queue. TIDEMILL_CERT")
    ] = "",
    key: Annotated[str, typer.Option(metavar="FILE", help="Its private key. TIDEMILL_KEY")] = "",
    token_file: Annotated[
        str,
        typer.Option(metavar="FILE", help="A file with the token that says who you are. TIDEMILL_TOKEN_FILE"),
    ] = "",
) -> None:
    """tidemill, a durable message queue: run it, send to it, consume from it, look into it."""
    # What a command opens a client with is the environment, in this process and in those that it becomes.
    given = {"CA": ca, "CERT": cert, "KEY": key, "TOKEN_FILE": token_file}
    os.environ.update({f"TIDEMILL_{name}": value for name, value in given.items() if value})
