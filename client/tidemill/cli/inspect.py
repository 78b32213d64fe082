"""`tidemill inspect`: look into the files of a queue, running or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.failures import wrong_usage
from tidemill.cli.session import Output, OutputOption
from tidemill.cli.up import DATA_DEFAULT, become, require_server


def build() -> typer.Typer:
    application = typer.Typer(
        help="Look into the files of a queue.", no_args_is_help=True, rich_markup_mode=None
    )
    passing = {"allow_extra_args": True, "ignore_unknown_options": True}
    application.command("log", context_settings=passing)(log)
    return application


def log(
    context: typer.Context,
    path: Annotated[
        Path,
        typer.Argument(metavar="[DIR|FILE]", help="A data folder, or one file of a log.", show_default=True),
    ] = Path(DATA_DEFAULT),
    output: OutputOption = Output.TEXT,
) -> None:
    """Show what a log holds, and where it is damaged."""
    require_server("inspect log")
    if not path.exists():
        raise wrong_usage(
            f"{str(path)!r} does not exist: name the folder that `tidemill up --data` was given, or a log"
        )
    become("tidemill_broker", "inspect", "log", str(path), "--output", output.value, *context.args)
