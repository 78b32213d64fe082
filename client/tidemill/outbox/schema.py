"""The tables of an outbox, how they come to be, and the database's own clock.

    tidemill_outbox         a row a message; in the order in which they were written by ``id``
    tidemill_outbox_lease   ``watchdog``: who leads, until when; ``schema``: the version of these tables

All times in them are milliseconds by the database's clock: those of machines do not matter. An *ordered* row that is
due has 0 there, so that one index gives rows of either kind in their order, and a bounded reading never sorts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import sqlalchemy as sql
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DatabaseError
from sqlalchemy.ext.asyncio import AsyncEngine

from tidemill.outbox.row import REASON_CHARS_MAX
from tidemill.worker.stores import SqlStore
from tidemill_wire.errors import TidemillError
from tidemill_wire.limits import SUBJECT_NAME_MAX

TABLE = "tidemill_outbox"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
VERSION, LEADER = "schema", "watchdog"

MAKES_MAX = 8
"""How often tables are made: another process may make one of them between our look and our statement."""

CLOCKS = {
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)",
    "mariadb": "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
}
"""Milliseconds since 1970, whatever time zone a session has."""

Migration: TypeAlias = Callable[[sql.Connection, "Tables"], None]


class OutboxUnusable(TidemillError):
    """The tables are not there, or not of this version; or the database is none that an outbox can lie in."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Those of one outbox."""

    messages: sql.Table
    lease: sql.Table
    claims: sql.Table
    """Of what was handled once: the same as the worker's ``SqlStore`` has."""

    @property
    def name(self) -> str:
        """What the user calls it."""
        return str(self.messages.name)


def tables(metadata: sql.MetaData | None = None, name: str = TABLE) -> Tables:
    """The tables under a name; in a ``MetaData`` of the user's, for those who let Alembic make them."""
    if NAME.fullmatch(name) is None:
        raise ValueError(
            f"{name[:60]!r} is no name of a table: use a letter and then up to 39 of A-Z a-z 0-9 _"
        )
    inside = sql.MetaData() if metadata is None else metadata
    long = sql.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
    number = sql.BigInteger().with_variant(sql.Integer(), "sqlite")
    messages = sql.Table(
        name,
        inside,
        sql.Column("id", number, primary_key=True, autoincrement=True),
        sql.Column("identity", sql.String(36), nullable=False),
        sql.Column("subject", sql.String(SUBJECT_NAME_MAX), nullable=False),
        sql.Column("body", long, nullable=False),
        sql.Column("options", long, nullable=False),
        sql.Column("order_hash", sql.BigInteger, nullable=True),
        sql.Column("state", sql.SmallInteger, nullable=False),
        sql.Column("due_ms", sql.BigInteger, nullable=False),
        sql.Column("created_ms", sql.BigInteger, nullable=False),
        sql.Column("attempts", sql.Integer, nullable=False),
        sql.Column("reason", sql.String(REASON_CHARS_MAX), nullable=False),
        sql.Index(f"{name}_due", "state", "due_ms", "id"),
        sql.Index(f"{name}_order", "order_hash", "id"),
        sqlite_autoincrement=True,  # a number that was given back would name another row
    )
    lease = sql.Table(
        f"{name}_lease",
        inside,
        sql.Column("name", sql.String(32), primary_key=True),
        sql.Column("owner", sql.String(64), nullable=False),
        sql.Column("until_ms", sql.BigInteger, nullable=False),
        sql.Column("number", sql.BigInteger, nullable=False),
    )
    return Tables(messages, lease, claims(inside))


def claims(metadata: sql.MetaData) -> sql.Table:
    """The table of the worker's store, which is asked for nothing but its columns."""
    store = SqlStore(cast("sql.Engine", None))
    table = store._table  # pyright: ignore[reportPrivateUsage]
    found = metadata.tables.get(str(table.name))  # of another outbox in the same database
    return table.to_metadata(metadata) if found is None else found


def clock(dialect: str) -> str:
    """The expression for the database's time of day in milliseconds."""
    found = CLOCKS.get(dialect)
    if found is None:
        raise OutboxUnusable(
            f"an outbox cannot lie in {dialect}: use PostgreSQL, MySQL, MariaDB or SQLite, as the user's own "
            "database or beside it"
        )
    return found


def now_of(dialect: str) -> sql.ColumnElement[int]:
    """The same for statements of SQLAlchemy."""
    return sql.literal_column(clock(dialect), sql.BigInteger())


def first(connection: sql.Connection, found: Tables) -> None:
    """Version 1."""
    for table in (found.messages, found.lease, found.claims):
        table.create(connection, checkfirst=True)
        for index in table.indexes:
            index.create(connection, checkfirst=True)  # a process may have died in between


MIGRATIONS: Sequence[Migration] = (first,)
"""The step to version n is at n - 1. A step that was released does not change any more."""


def make(connection: sql.Connection, found: Tables) -> None:
    """The tables as they were at first, where there are none."""
    clock(connection.dialect.name)
    first(connection, found)
    if version(connection, found) is None:
        rows = [{"name": VERSION, "number": 1}, {"name": LEADER, "number": 0}]
        for row in rows:
            connection.execute(found.lease.insert().values(owner="", until_ms=0, **row))


def migrate(connection: sql.Connection, found: Tables, steps: Sequence[Migration] = MIGRATIONS) -> int:
    """From whichever version they have to the newest, which is returned."""
    lease = found.lease
    # Its row is locked first, so that one process migrates and the others find it done.
    connection.execute(lease.update().where(lease.c.name == VERSION).values(until_ms=lease.c.until_ms + 1))
    at = version(connection, found)
    assert at is not None
    for step in steps[at:]:
        step(connection, found)
    reached = max(at, len(steps))
    connection.execute(lease.update().where(lease.c.name == VERSION).values(number=reached))
    return reached


def create_tables(engine: sql.Engine, name: str = TABLE) -> int:
    """Make the tables, or bring them to this version; which one that is. Any number of processes may do so at once."""
    found = tables(name=name)
    for attempt in range(MAKES_MAX):
        try:
            with engine.begin() as connection:
                make(connection, found)
                break
        except DatabaseError:
            if attempt + 1 == MAKES_MAX:
                raise
    with engine.begin() as connection:
        return migrate(connection, found)


async def create_tables_async(engine: AsyncEngine, name: str = TABLE) -> int:
    """As ``create_tables``."""
    found = tables(name=name)
    for attempt in range(MAKES_MAX):
        try:
            async with engine.begin() as connection:
                await connection.run_sync(make, found)
                break
        except DatabaseError:
            if attempt + 1 == MAKES_MAX:
                raise
    async with engine.begin() as connection:
        return await connection.run_sync(migrate, found)


def version(connection: sql.Connection, found: Tables) -> int | None:
    """The version of the tables; ``None`` when there are none."""
    if not sql.inspect(connection).has_table(found.lease.name):
        return None
    asked = sql.select(found.lease.c.number).where(found.lease.c.name == VERSION)
    number: int | None = connection.execute(asked).scalar_one_or_none()
    return number


def check(connection: sql.Connection, found: Tables) -> None:
    """That this version can work with them."""
    at = version(connection, found)
    if at is None:
        raise OutboxUnusable(
            f"there is no table {found.name} in this database: make it with create_tables(engine), or with "
            "`tidemill outbox create --url ...`"
        )
    if at < len(MIGRATIONS):
        raise OutboxUnusable(
            f"the table {found.name} is of version {at} and this tidemill needs {len(MIGRATIONS)}: run "
            "create_tables(engine), or `tidemill outbox create --url ...`"
        )
    if at > len(MIGRATIONS):
        raise OutboxUnusable(
            f"the table {found.name} is of version {at} and this tidemill knows {len(MIGRATIONS)}: upgrade tidemill"
        )
