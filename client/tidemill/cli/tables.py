"""Rows of named values for people and for programs."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from tidemill.cli.session import Output, interactive

if TYPE_CHECKING:
    from tidemill.message import Message
    from tidemill.search import StoredMessage


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], output: Output, empty: str) -> None:
    """A table with ``columns`` first and what else there is after them; JSON is one object a line."""
    if output is Output.JSON:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False, default=str))
        return
    if not rows:
        print(empty, file=sys.stderr)
        return
    names = [name for name in columns if any(name in row for row in rows)]
    names += [name for row in rows for name in row if name not in names and name not in columns]
    names = list(dict.fromkeys(names))
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    numeric = [all(_is_number(row.get(name)) for row in rows) for name in names]
    heads = [name.replace("_", " ") for name in names]
    if interactive(sys.stdout):
        _print_rich(heads, cells, numeric)
        return
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    for line in [[head.upper() for head in heads], *cells]:
        aligned = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        )
        print("  ".join(aligned).rstrip())


def message_as_json(message: Message | StoredMessage) -> dict[str, Any]:
    """A message as an object; a body that is not UTF-8 as {"base64": …}."""
    body: str | dict[str, str]
    try:
        body = message.body.decode()
    except UnicodeDecodeError:
        body = {"base64": base64.b64encode(message.body).decode()}
    return {
        "id": message.id,
        "subject": message.subject,
        "sequence": message.sequence,
        "body": body,
        "key": message.key,
        "tags": sorted(message.tags),
        "properties": message.properties,
        "priority": message.priority,
        "attempts": message.attempts,
        "stored_at": timestamp(message.stored_at),
    }


def timestamp(at: datetime) -> str:
    """As all output writes a time of UTC."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _print_rich(heads: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for head, right in zip(heads, numeric, strict=True):
        table.add_column(head, justify="right" if right else "left", overflow="fold")
    for line in cells:
        table.add_row(*line)
    Console(highlight=False, markup=False).print(table)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
        case list() | tuple():
            return ", ".join(map(_cell, cast("Sequence[object]", value))) or "-"
        case dict():
            return json.dumps(value, ensure_ascii=False, default=str)
        case _:
            return " ".join(str(value).split())
