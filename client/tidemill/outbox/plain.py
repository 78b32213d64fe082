"""Writing a row through a plain DB-API cursor: the statement in its words, and what is put into them. Pure.

DB-API has five ways to write a parameter; a module says which by ``paramstyle``. Django's cursors take ``%s`` over
every database.
"""

from __future__ import annotations

import sys
from typing import Any, Literal, Protocol, TypeAlias

from tidemill.outbox.row import Entry, State
from tidemill.outbox.schema import clock

Paramstyle: TypeAlias = Literal["qmark", "numeric", "named", "format", "pyformat"]
COLUMNS = ("identity", "subject", "body", "options", "order_hash", "state", "attempts", "reason")
FRAMEWORKS: dict[str, Paramstyle] = {"django": "format"}


class Cursor(Protocol):
    """What is asked of a cursor."""

    def execute(self, operation: str, parameters: Any = ..., /) -> Any: ...
    def fetchone(self) -> Any: ...


def statement(
    table: str, dialect: str, style: Paramstyle, entry: Entry, grace_ms: int
) -> tuple[str, list[Any] | dict[str, Any]]:
    """The text and its parameters."""
    values = [
        entry.identity,
        entry.subject,
        entry.body,
        entry.options,
        entry.order_hash,
        int(entry.state),
        0,
        "",
    ]
    places = [_place(style, number, name) for number, name in enumerate(COLUMNS, 1)]
    now = clock(dialect)
    due = "0" if entry.state is State.ORDERED else f"{now} + {grace_ms}"
    text = (
        f"INSERT INTO {table} ({', '.join(COLUMNS)}, due_ms, created_ms) "  # noqa: S608 - a proven name
        f"VALUES ({', '.join(places)}, {due}, {now})"
    )
    if dialect == "postgresql":
        text += " RETURNING id"
    return text, dict(zip(COLUMNS, values, strict=True)) if style in {"named", "pyformat"} else values


def insert(cursor: Cursor, dialect: str, said: tuple[str, list[Any] | dict[str, Any]]) -> int:
    """Execute it; the number of the row."""
    cursor.execute(*said)
    if dialect == "postgresql":
        return int(cursor.fetchone()[0])
    number: Any = getattr(cursor, "lastrowid", None)
    if not isinstance(number, int) or number <= 0:
        raise TypeError(
            f"a cursor of {type(cursor).__module__} does not tell the number of a row: give a DB-API cursor"
        )
    return number


def style_of(cursor: object) -> Paramstyle:
    """How parameters are written for a cursor, by where it comes from."""
    origin = type(cursor).__module__.partition(".")[0]
    found: Any = FRAMEWORKS.get(origin) or getattr(sys.modules.get(origin), "paramstyle", None)
    if found not in {"qmark", "numeric", "named", "format", "pyformat"}:
        raise TypeError(
            f"{type(cursor).__module__}.{type(cursor).__qualname__} is no session, connection or cursor that is "
            "known: give paramstyle=, as the driver's module says it"
        )
    return found  # type: ignore[no-any-return]


def _place(style: Paramstyle, number: int, name: str) -> str:
    match style:
        case "qmark":
            return "?"
        case "numeric":
            return f":{number}"
        case "named":
            return f":{name}"
        case "format":
            return "%s"
        case "pyformat":
            return f"%({name})s"
