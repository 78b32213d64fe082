"""Names that a shell completes: those of subjects, consumer groups and brokers, as the queue knows them now.

A shell waits for them while a person types, so whoever does not answer at once has no names, and nothing is said.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import typer

from tidemill.cli.failures import CommandFailed
from tidemill_wire.fields import NAME

PATIENCE_SECONDS = 1.0
NAMES_MAX = 500
"""More does nobody read."""


OF_COMPLETION = ("--show-completion", "--install-completion")
TAKES_A_NAME = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"
"""Where this is set, typer takes the name of a shell; else it looks which one this is, and takes none."""


@contextmanager
def shell_named(arguments: Sequence[str]) -> Generator[None]:
    """A shell may be named, as one that is set up from another one has to be."""
    is_named = len(arguments) == 2 and arguments[0] in OF_COMPLETION
    if is_named:
        os.environ[TAKES_A_NAME] = "1"
    try:
        yield
    finally:
        if is_named:
            del os.environ[TAKES_A_NAME]


def complete_subject(context: typer.Context, incomplete: str) -> list[str]:
    """Subjects that begin so."""
    return _beginning(incomplete, (row.get("name") for row in _rows(context, "/v1/subjects")))


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Consumer groups that begin so; of the subject, when one is written before."""
    subject = context.params.get("subject")
    rows = _rows(context, "/v1/groups")
    return _beginning(
        incomplete, (row.get("group") for row in rows if not subject or row.get("subject") == subject)
    )


def complete_broker_group(context: typer.Context, incomplete: str) -> list[str]:
    """Broker groups that begin so."""
    return _beginning(incomplete, (row.get("group") for row in _rows(context, "/v1/brokers")))


def complete_broker(context: typer.Context, incomplete: str) -> list[str]:
    """Brokers that begin so."""
    rows = _rows(context, "/v1/brokers")
    return _beginning(incomplete, (one.get("name") for row in rows for one in row.get("brokers", ())))


def _beginning(incomplete: str, names: Iterable[object]) -> list[str]:
    """Names of tidemill's own have marks that no person types."""
    found = {name for name in names if isinstance(name, str) and NAME.fullmatch(name)}
    return sorted(name for name in found if name.startswith(incomplete))[:NAMES_MAX]


def _rows(context: typer.Context, path: str) -> list[Mapping[str, Any]]:
    from tidemill.cli.asking import ask
    from tidemill.cli.session import SERVER_DEFAULT

    server = context.params.get("server") or os.environ.get("TIDEMILL_SERVER") or SERVER_DEFAULT
    try:
        found = asyncio.run(ask(str(server).partition(",")[0], "GET", path, timeout_s=PATIENCE_SECONDS))
    except CommandFailed:
        return []
    rows = cast("list[object]", found) if isinstance(found, list) else []
    return [cast("Mapping[str, Any]", row) for row in rows if isinstance(row, dict)]
