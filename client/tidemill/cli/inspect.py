"""`tidemill inspect`: look into the files of a queue, running or not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.failures import wrong_usage
from tidemill.cli.session import Form, FormOption
from tidemill.cli.up import DATA_DEFAULT, become, require_server


def build() -> typer.Typer:
    application = typer.Typer(
        help="Look into the files of a queue.", no_args_is_help=True, rich_markup_mode=None
    )
    application.command("log")(log)
    return application


def log(
    path: Annotated[
        Path,
        typer.Argument(metavar="[DIR|FILE]", help="A data folder, that of a cluster, or one file of a log."),
    ] = Path(DATA_DEFAULT),
    verify: Annotated[
        bool, typer.Option("--verify", help="Only say of each file whether it is good.")
    ] = False,
    output: FormOption = Form.TEXT,
) -> None:
    """Show what logs hold, an entry a line, and where they are damaged.

    The exit code is 1 when something is; then standard error says what.
    """
    require_server("inspect log")
    if not os.path.exists(path):  # of a Path it raises where this user may not look
        raise wrong_usage(
            f"{str(path)!r} does not exist: name the folder that `tidemill up --data` was given, or a log"
        )
    option = ("--verify",) if verify else ()
    become("tidemill_broker", "inspect", "log", str(path), "--output", output.value, *option)
