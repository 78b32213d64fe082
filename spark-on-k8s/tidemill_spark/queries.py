"""Which archived messages are meant: by id, key, tag, time, or a predicate of SQL. Values in, values out.

A query first says which files may hold such messages, by what the commits know of them; then which rows of a file they
are, by a few columns; the rest of these rows is read last.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidemill_spark.arrow import pa, pc
from tidemill_spark.commits import File
from tidemill_spark.errors import WrongRequest
from tidemill_spark.ids import HEX_DIGITS
from tidemill_wire.batch import parse_message_id
from tidemill_wire.filters import is_pattern, matches_pattern

CLOSED = "SET enable_external_access = false"
"""From here on no file and no network."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is absent allows all."""

    subjects: tuple[str, ...] = ()
    start_ms: int | None = None
    """When they were stored, from this time on, to before ``end_ms``."""
    end_ms: int | None = None
    ids: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """Of which a message has one."""
    where: str = ""
    """A predicate of SQL over the columns, as DuckDB reads it."""

    def batch_ids(self) -> list[bytes]:
        """Of the batches that hold the messages with these ids; ``WrongRequest`` for what is none."""
        try:
            return [parse_message_id(one)[0] for one in self.ids]
        except ValueError as error:
            raise WrongRequest(str(error)) from None

    def may_be_in(self, file: File) -> bool:
        """Whether its ids and times leave that open."""
        if self.start_ms is not None and file.stored_ms[1] < self.start_ms:
            return False
        if self.end_ms is not None and file.stored_ms[0] >= self.end_ms:
            return False
        first, last = file.ids
        return not self.ids or any(first <= one[:HEX_DIGITS].lower() <= last for one in self.ids)

    @property
    def columns(self) -> tuple[str, ...]:
        """What ``rows`` looks at."""
        wanted = {
            "id": bool(self.ids),
            "key": bool(self.keys),
            "tags": bool(self.tags),
            "stored_at": self.start_ms is not None or self.end_ms is not None,
        }
        return tuple(name for name, is_wanted in wanted.items() if is_wanted)

    def rows(self, table: Any) -> Any:
        """The places of the rows that are meant, but for ``where``."""
        masks: list[Any] = []
        if self.ids:
            masks.append(pc.is_in(table["id"], pa.array([one.lower() for one in self.ids], pa.string())))
        if self.keys:
            masks.append(pc.is_in(table["key"], pa.array(self.keys, pa.string())))
        if self.tags:
            masks.append(_with_one_of(table["tags"].combine_chunks(), self.tags))
        if self.start_ms is not None:
            masks.append(pc.greater_equal(table["stored_at"].cast(pa.int64()), self.start_ms * 1000))
        if self.end_ms is not None:
            masks.append(pc.less(table["stored_at"].cast(pa.int64()), self.end_ms * 1000))
        if not masks:
            return np.arange(int(table.num_rows))
        whole = masks[0]
        for mask in masks[1:]:
            whole = pc.and_(whole, mask)
        return np.flatnonzero(np.asarray(pc.fill_null(whole, fill_value=False)))

    def filtered(self, table: Any) -> Any:
        """What of these rows the predicate is true of: it is one expression over a message, and sees no other one."""
        if not self.where or table.num_rows == 0:
            return table
        with _connected(self.where) as connection:
            # DuckDB knows zones and lists of its own, which are the same
            rows = connection.from_arrow(table).set_alias("messages")
            connection.execute(CLOSED)
            return rows.filter(self.where).to_arrow_table().cast(table.schema)


def _with_one_of(tags: Any, wanted: Sequence[str]) -> Any:
    hits = np.asarray(pc.is_in(tags.flatten(), pa.array(wanted, pa.string())), dtype=bool)
    rows = np.asarray(pc.list_parent_indices(tags))[hits]
    mask = np.zeros(len(tags), dtype=bool)
    mask[rows] = True
    return pa.chunked_array([pa.array(mask)])


def means(name: str, subject: str) -> bool:
    """Whether a subject, or a pattern of them, is about this one."""
    return matches_pattern(name, subject) if is_pattern(name) else name == subject


def select(sql: str, tables: dict[str, Any]) -> Any:
    """What SQL says of tables or datasets of Arrow, as a table; ``WrongRequest`` with DuckDB's reason when it cannot.

    It sees these tables and nothing else: no file and no network.
    """
    with _connected(sql) as connection:
        for name, table in tables.items():
            connection.register(name, table)
        connection.execute(CLOSED)
        found = connection.sql(sql)
        if found is None:
            raise WrongRequest(f"{sql[:200]!r} asks for nothing: write a SELECT")
        return found.to_arrow_table()


@contextmanager
def _connected(sql: str) -> Generator[Any]:
    """DuckDB, and what it says of that SQL as ours."""
    duckdb: Any = importlib.import_module("duckdb")
    connection = duckdb.connect(":memory:")
    try:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection
    except duckdb.Error as error:
        said = str(error).strip().partition("\n")[0]
        raise WrongRequest(f"{sql[:200]!r} cannot be answered: {said}") from error
    finally:
        connection.close()
