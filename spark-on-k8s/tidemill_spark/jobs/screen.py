"""What people see: tables of rows, and how far something has come."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from types import TracebackType
from typing import Any, Self, cast

import msgpack

from tidemill_spark.archive import Totals
from tidemill_spark.histories import History, cells, document
from tidemill_spark.replay import Counts
from tidemill_spark.schema import properties_of

SHORT = 60
FIRST = ("stored_at", "subject", "key", "id", "body", "tags", "properties")
"""What a table of messages shows; JSON has all columns."""


def say(sentence: str) -> None:
    """One line on standard error."""
    sys.stderr.write(f"tidemill: {' '.join(sentence.split())}\n")


def show(table: Any, output: str, *, head: bool = True) -> None:
    """Rows of a table of Arrow."""
    rows = cast("list[dict[str, Any]]", table.to_pylist())
    if output == "json":
        sys.stdout.writelines(json.dumps(_plain(row), ensure_ascii=False, default=str) + "\n" for row in rows)
        return
    names = [name for name in FIRST if name in table.column_names] if "body" in table.column_names else []
    names = names if "id" in names else list(table.column_names)
    _table(names, rows, head=head)


def show_history(history: History, output: str) -> None:
    """What became of a message: a line of JSON, or a table."""
    said = document(history)
    if output == "json":
        sys.stdout.write(json.dumps(said, ensure_ascii=False, default=_said) + "\n")
        return
    message = {name: _said(value) for name, value in history.message.items()}
    where = f"{message['broker_group']}/{message['partition']}, {message['sequence']:,}"
    sys.stdout.write(f"{message['id']}\n  of {message['subject']} ({where}), stored {message['stored_at']}\n")
    for one in said["groups"]:
        sys.stdout.write(f"  {one['group']}: {one['outcome'] or '-'}\n")
    rows = cells(history)
    if rows:
        _table(list(rows[0]), rows)
    elif history.archived:
        sys.stdout.write("  no group was given it, as far as actions are archived\n")
    else:
        sys.stdout.write("  no actions of its subject are archived there\n")


def _table(names: Sequence[str], rows: Sequence[Mapping[str, Any]], *, head: bool = True) -> None:
    lines_of = [[_cell(name, row[name]) for name in names] for row in rows]
    if sys.stdout.isatty():
        _rich(names, lines_of)
        return
    lines = [[name.replace("_", " ").upper() for name in names], *lines_of] if head else lines_of
    widths = [max((len(line[at]) for line in lines), default=0) for at in range(len(names))]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write("  ".join(padded).rstrip() + "\n")


def _rich(names: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    made = Table(box=None, header_style="bold", pad_edge=False)
    for name in names:
        made.add_column(name.replace("_", " "), overflow="fold")
    for line in cells:
        made.add_row(*line)
    Console(highlight=False, markup=False).print(made)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(row)
    if isinstance(made.get("properties"), bytes):
        made["properties"] = properties_of(made["properties"])
    return {name: _said(value) for name, value in made.items()}


def _said(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name == "properties" and isinstance(value, bytes):
        try:
            value = cast("object", msgpack.unpackb(value))
        except (ValueError, msgpack.UnpackException):
            pass  # shown as the bytes that it is
    said = _said(value)
    if isinstance(said, list):
        said = ", ".join(map(str, cast("list[object]", said)))
    text = " ".join(str(said).split()) or "-"
    return text if len(text) <= SHORT or name == "id" else f"{text[: SHORT - 1]}…"


class Progress:
    """A bar with rows, bytes and rate where somebody sees it; nothing where nobody does."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TransferSpeedColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rows]:,} rows"),
                TextColumn("{task.completed:,.0f} bytes"), TransferSpeedColumn(), TimeElapsedColumn(),
                console=Console(stderr=True),
            )  # fmt: skip
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=None, rows=0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def archived(self, totals: Totals) -> None:
        """So far has a run come."""
        self._at(totals.rows_read, totals.read_bytes, totals.planned_bytes)

    def resent(self, counts: Counts) -> None:
        """So far has a replay come."""
        self._at(counts.rows, counts.bytes, None)

    def _at(self, rows: int, done: int, total: int | None) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total and max(total, done), rows=rows)
