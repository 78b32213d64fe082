"""`tidemill archive`: messages in files, and out of them again. The work is done by another process, of an extra."""

from __future__ import annotations

from importlib.util import find_spec

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.up import become

MODULES = ("tidemill_spark", "pyarrow", "numpy", "duckdb")
PASSED_ON: dict[str, bool | list[str]] = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}
"""All that is written is for that process, `--help`, too."""


def archive(context: typer.Context) -> None:
    """Archive messages, find them in files, send them again: run, find, sql, replay, reconcile, compact, expire."""
    missing = [module for module in MODULES if find_spec(module) is None]
    if missing:
        raise CommandFailed(
            f"`tidemill archive` needs more ({', '.join(missing)} not found): pip install 'tidemill[spark]'"
        )
    become("tidemill_spark", *(context.args or ["--help"]))
