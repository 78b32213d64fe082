"""The tables, and how a database of an earlier version becomes one of this. A step that was released never changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
    update,
)

from tidemill_meta.doors.turns import FUNCTION, FUNCTION_WITH_LIFE, LIFE
from tidemill_wire.errors import TidemillError

TABLES = MetaData()

SCHEMA = Table("meta_schema", TABLES, Column("version", Integer, nullable=False))
"""One row: which steps were taken."""

HEAD = Table("meta_head", TABLES, Column("revision", BigInteger, nullable=False))
"""One row: the revision. Whoever commits updates it first, so commits happen one after the other."""

ENTRIES = Table(
    "meta_entries",
    TABLES,
    Column("kind", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("body", Text, nullable=True),  # JSON; null: it is gone
    Index("meta_entries_by_revision", "revision"),
)

BULLETINS = Table(
    "meta_bulletins",
    TABLES,
    Column("replica", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
)


FORGOTTEN = Table(
    "meta_forgotten",
    TABLES,
    Column("horizon", BigInteger, nullable=False),
    Column("floor", BigInteger, nullable=False),
)
"""One row: up to which revision entries of what is gone are deleted, and the largest version of those."""


LIVES = Table(
    "meta_lives",
    TABLES,
    Column("gaps", Text, nullable=False),  # JSON: pairs of revisions
    Column("began", BigInteger, nullable=False),
    Column("life", Text, nullable=False),
)
"""One row: between which revisions there was none; at which one all began anew; of PostgreSQL, which life was noted."""


class NewerDatabase(TidemillError):
    """The database was made by a later version."""


def _entries(connection: Connection) -> None:
    TABLES.create_all(connection, [HEAD, ENTRIES])
    connection.execute(insert(HEAD).values(revision=0))


def _bulletins(connection: Connection) -> None:
    TABLES.create_all(connection, [BULLETINS])
    if connection.dialect.name == "postgresql":
        # Written four times a second by each replica, and of no use after a crash.
        connection.execute(text("ALTER TABLE meta_bulletins SET UNLOGGED"))


def _forgotten(connection: Connection) -> None:
    TABLES.create_all(connection, [FORGOTTEN])
    connection.execute(insert(FORGOTTEN).values(horizon=0, floor=0))


def _turns(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(FUNCTION)


def _lives(connection: Connection) -> None:
    TABLES.create_all(connection, [LIVES])
    connection.execute(insert(LIVES).values(gaps="[]", began=0, life=""))
    if connection.dialect.name == "postgresql":
        for statement in (LIFE, "DROP FUNCTION meta_turn(bigint)", FUNCTION_WITH_LIFE):
            connection.exec_driver_sql(statement)


STEPS: Sequence[Callable[[Connection], None]] = (_entries, _bulletins, _forgotten, _turns, _lives)


def migrate(connection: Connection) -> int:
    """Take the steps that are missing, in the transaction of the connection; how many there were.

    Several replicas may start at once: on PostgreSQL the first one holds a lock until it has committed, on SQLite it
    is the only one that writes.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(7401)"))
    if not inspect(connection).has_table(SCHEMA.name):
        TABLES.create_all(connection, [SCHEMA])
        connection.execute(insert(SCHEMA).values(version=0))
    taken = int(connection.execute(select(SCHEMA.c.version)).scalar_one())
    if taken > len(STEPS):
        raise NewerDatabase(
            f"the database is of version {taken}, this program knows {len(STEPS)}: use the newer program, "
            f"or a copy of the database from before"
        )
    for step in STEPS[taken:]:
        step(connection)
    connection.execute(update(SCHEMA).values(version=len(STEPS)))
    return len(STEPS) - taken
