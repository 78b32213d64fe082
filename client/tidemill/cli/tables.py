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


TYPED_AGAIN = frozenset(("id", "pid", "sequence", "epoch", "port"))
"""Numbers that people copy into the next command, which takes no commas."""
SAYS_NOTHING = frozenset(("", "-", "0", "no"))
FOLDED_CHARS = 24
"""A text may be folded to so many."""
GAP_CHARS = 2


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
    cells = [[_cell(row.get(name), name) for name in names] for row in rows]
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
            print(f"{said:<{width}}  {_cell(value, name)}")


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

    console = Console(highlight=False, markup=False)
    kept = columns_that_fit(heads, cells, console.width)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for at in kept:
        table.add_column(heads[at], justify="right" if numeric[at] else "left", overflow="fold")
    for line in cells:
        table.add_row(*(line[at] for at in kept))
    console.print(table)
    left = [head for at, head in enumerate(heads) if at not in kept]
    if left:
        print(f"not shown, for the terminal is narrow: {', '.join(left)}", file=sys.stderr)


def columns_that_fit(heads: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """Which columns a terminal has room for: first those go that say nothing in any row, then the last ones. The first
    stays as it is, for it is copied, and so does the longest of the others, which is folded.
    """
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    longest = max(range(len(heads)), key=lambda at: widths[at] * bool(at))
    needed = [min(one, FOLDED_CHARS) if at == longest else one for at, one in enumerate(widths)]
    kept = list(range(len(heads)))
    silent = [at for at in kept if all(row[at] in SAYS_NOTHING for row in cells)]
    for at in (*reversed(silent), *reversed(kept)):
        if sum(needed[one] + GAP_CHARS for one in kept) <= width + GAP_CHARS:
            break
        if at in kept and at not in (0, longest):
            kept.remove(at)
    return kept


def _is_nested(value: Any) -> bool:
    """More than a line can hold."""
    if isinstance(value, Mapping):
        return bool(cast("Mapping[object, object]", value))
    if not isinstance(value, list | tuple):
        return False
    return any(isinstance(one, Mapping | list | tuple) for one in cast("Sequence[object]", value))


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any, name: str = "") -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return str(value) if name.rpartition("_")[2] in TYPED_AGAIN else f"{value:,}"
        case float():
            return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
        case list() | tuple():
            return ", ".join(map(_cell, cast("Sequence[object]", value))) or "-"
        case dict():
            return json.dumps(value, ensure_ascii=False, default=str)
        case _:
            return " ".join(str(value).split())
