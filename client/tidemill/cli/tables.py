"""Rows of named values for people and for programs."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from textwrap import indent
from typing import TYPE_CHECKING, Any, cast

from tidemill.cli.session import Form, Output, interactive
from tidemill.cli.yaml_text import yaml_of
from tidemill_wire.properties import shown_properties

if TYPE_CHECKING:
    from tidemill.message import Message
    from tidemill.search import StoredMessage


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], output: Output, empty: str) -> None:
    """A table with ``columns`` first and what else there is after them; for programs each row by itself."""
    if output is not Output.TABLE:
        for row in rows:
            print_value(row, output)
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


def written(value: object, output: Output | Form) -> str:
    """A value for programs: an object on one line, or a document that says where it begins."""
    if output.value == Output.YAML.value:
        return f"---\n{yaml_of(value)}".rstrip("\n")
    return json.dumps(value, ensure_ascii=False, default=str)


def print_value(value: object, output: Output | Form) -> None:
    """At once: whoever reads a stream waits for each."""
    print(written(value, output), flush=True)


def print_fields(row: Mapping[str, Any], output: Output) -> None:
    """One thing with all that is known of it: a line a field for a person."""
    if output is not Output.TABLE:
        print_value(row, output)
        return
    width = max(map(len, row))
    for name, value in row.items():
        said = name.replace("_", " ")
        if _is_nested(value):
            print(f"{said}\n{indent(yaml_of(value), '  ')}", end="")
        else:
            print(f"{said:<{width}}  {_cell(value)}")


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
        "properties": _properties(message),
        "priority": message.priority,
        "attempts": message.attempts,
        "stored_at": timestamp(message.stored_at),
    }


def _properties(message: Message | StoredMessage) -> dict[str, Any] | None:
    """What is stored came as JSON; what is consumed, as whatever its producer packed."""
    from tidemill.message import Seen

    return shown_properties(message.packed_properties) if isinstance(message, Seen) else message.properties


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


def _is_nested(value: Any) -> bool:
    """More than a line can hold."""
    if isinstance(value, Mapping):
        return bool(cast("Mapping[object, object]", value))
    if not isinstance(value, list | tuple):
        return False
    return any(isinstance(one, Mapping | list | tuple) for one in cast("Sequence[object]", value))


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
