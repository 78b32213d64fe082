"""The store on a database: SQLite in the data folder, or PostgreSQL that replicas share.

A commit is one transaction. It locks the row of the revision first, so of two replicas at once one waits, and is then
told what the other one wrote. A process killed in its middle leaves nothing; one that stands still in its middle is
thrown out by the database after a while, and the others go on.

Each life leaves a gap between its revisions and those before (``storing.py``): of SQLite whenever it is opened, of
PostgreSQL when it is another server, or another file (``turns.py``). A database that was never written has none.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Row, Select, delete, event, func, select, text, true, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.engine import CursorResult, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from tidemill_meta.doors import turns
from tidemill_meta.doors.tables import BULLETINS, ENTRIES, FORGOTTEN, HEAD, LIVES, migrate
from tidemill_meta.storing import (
    GAPS_MAX,
    STEP,
    Anew,
    Board,
    Bulletin,
    Changes,
    Decide,
    Entry,
    Gaps,
    StoreAway,
    StoreDamaged,
    is_lost,
)
from tidemill_wire.errors import TidemillError

if TYPE_CHECKING:
    import aiosqlite

DRIVERS = {"postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg", "sqlite": "sqlite+aiosqlite"}
TIMEOUT_SECONDS = 5.0
LOCKED_SECONDS = 0.02
"""So often is looked whether the other one has let go of a new SQLite file."""
TURN_MS_MAX = 2_000
"""Who holds its turn for longer, as a process that was stopped does, loses it."""
ANEW_MS_MAX = 30_000
"""The same of who has to read all that there is in its turn, as what it knew is lost."""
CONNECTIONS = 3
"""One that commits, one that exchanges, and one in reserve."""

Result = TypeVar("Result")
_HEAD = HEAD.c.revision.label("head")
_READ = select(_HEAD, LIVES, FORGOTTEN, ENTRIES).select_from(HEAD).join(LIVES, true()).join(FORGOTTEN, true())
_READ_BOARD = select(HEAD.c.revision, BULLETINS).join(BULLETINS, true())
"""The revision and all bulletins, as they are at one moment. One's own is always there."""


class DatabaseUrlError(TidemillError):
    """A database that meta cannot use."""


class SqlStore:
    """Answers ``Store``."""

    def __init__(self, url: str) -> None:
        self._engine = _engine(url)
        self.alone = self._engine.dialect.name == "sqlite"
        # On PostgreSQL each statement outside a turn is a transaction by itself: an exchange that has news to read is
        # five round trips in place of fourteen, each of which waits for a processor on a busy machine.
        self._plain = (
            self._engine if self.alone else self._engine.execution_options(isolation_level="AUTOCOMMIT")
        )

    async def open(self) -> None:
        async with self._transaction() as connection:
            await connection.run_sync(migrate)
            if self.alone:
                await _begin_life(connection, await connection.scalar(select(HEAD.c.revision)) or 0)

    async def close(self) -> None:
        await self._engine.dispose()

    async def changes(self, after: int) -> Changes:
        async with self._transaction(self._plain) as connection:
            return await _changes(connection, after)

    async def commit(self, after: int, decide: Decide) -> Changes:
        async with self._transaction() as connection:
            # Here replicas wait for each other: on PostgreSQL for the row, on SQLite for the file.
            changes = await (_changes if self.alone else _begin)(connection, after)
            decided = decide(changes)
            anew = decided if isinstance(decided, Anew) else None
            entries = tuple(decided.entries if isinstance(decided, Anew) else decided)
            if not entries and anew is None:
                return replace(changes, entries=(), whole=False, floor=0)
            revision = anew.revision if anew is not None else changes.revision + 1
            if anew is not None:
                await _begin_anew(connection, revision)
            await (_write_alone if self.alone else _write)(connection, entries, changes.revision, revision)
        if anew is not None:
            return Changes(0, ())
        return replace(changes, revision=revision, entries=entries, whole=False, floor=0)

    async def exchange(self, mine: Bulletin) -> Board:
        async with self._transaction(self._plain) as connection:
            row = {"replica": mine.replica, "number": mine.number, "body": mine.body}
            await connection.execute(self._post, row)
            # A statement of its own, with a view of its own: what is read is then later than what is written.
            rows = (await connection.execute(_READ_BOARD)).all()
        return Board(rows[0].revision, tuple(Bulletin(row.replica, row.number, row.body) for row in rows))

    async def forget(self, until: int, silent: Mapping[str, int]) -> int:
        gone = (ENTRIES.c.body.is_(None), ENTRIES.c.revision <= until)
        async with self._transaction() as connection:
            # As in a turn: who has one is not to find that what it was told of is forgotten.
            await connection.execute(select(HEAD.c.revision).with_for_update())
            floor: int | None = await connection.scalar(select(func.max(ENTRIES.c.version)).where(*gone))
            if floor is not None:
                await connection.execute(delete(ENTRIES).where(*gone))
                known = (await connection.execute(select(FORGOTTEN))).one()
                step = {"horizon": max(known.horizon, until), "floor": max(known.floor, floor)}
                await connection.execute(update(FORGOTTEN).values(step))
            for replica, number in silent.items():
                is_that = (BULLETINS.c.replica == replica, BULLETINS.c.number == number)
                await connection.execute(delete(BULLETINS).where(*is_that))
            return int((await connection.execute(select(FORGOTTEN.c.floor))).scalar_one())

    @property
    def _post(self) -> Any:
        insert = (sqlite_insert if self.alone else postgresql_insert)(BULLETINS)
        columns = {name: insert.excluded[name] for name in ("number", "body")}
        return insert.on_conflict_do_update(index_elements=["replica"], set_=columns)

    @asynccontextmanager
    async def _transaction(self, engine: AsyncEngine | None = None) -> AsyncGenerator[AsyncConnection]:
        try:
            async with (engine or self._engine).begin() as connection:
                yield connection
        except (OperationalError, InterfaceError, OSError, TimeoutError) as error:
            raise StoreAway(_sentence(error)) from error
        except DBAPIError as error:
            if _is_damage(error):
                raise StoreDamaged(_sentence(error)) from error
            if error.connection_invalidated or _is_shutdown(error):
                raise StoreAway(_sentence(error)) from error
            raise
        except json.JSONDecodeError as error:
            raise StoreDamaged(f"an entry is no JSON: {error}") from error


async def _begin(connection: AsyncConnection, after: int) -> Changes:
    """On PostgreSQL."""
    rows = (await connection.execute(turns.BEGIN, {"after": after})).all()
    gaps = _gaps(rows[0].gaps)
    if lost := is_lost(after, rows[0].head, gaps):
        # Whoever has to know all anew may take its time for once.
        await connection.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = {ANEW_MS_MAX}"))
        rows = (await connection.execute(turns.BEGIN, {"after": 0})).all()
    head, revision = rows[0], rows[0].head
    if not head.noted:
        revision, gaps = await _begin_life(connection, revision)
    changes = Changes(revision, _entries(rows), gaps=gaps, began=head.began)
    return replace(changes, whole=True, floor=head.floor) if lost or after < head.horizon else changes


async def _write(connection: AsyncConnection, entries: Sequence[Entry], former: int, revision: int) -> None:
    """On PostgreSQL."""
    told = turns.written(entries, former, revision)
    result: CursorResult[Any] = await connection.execute(turns.WRITE, told)
    assert result.rowcount == len(entries), "somebody wrote during this turn"


async def _write_alone(
    connection: AsyncConnection, entries: Sequence[Entry], former: int, revision: int
) -> None:
    """On SQLite."""
    step = update(HEAD).where(HEAD.c.revision == former).values(revision=revision)
    result: CursorResult[Any] = await connection.execute(step)
    assert result.rowcount == 1, "somebody wrote during this turn"
    if entries:
        await connection.execute(_UPSERT, [_row(entry, revision) for entry in entries])


async def _begin_life(connection: AsyncConnection, revision: int) -> tuple[int, Gaps]:
    """A life begins, at a revision of its own, for a clock that is late by chance; the revision, and all gaps."""
    gaps = _gaps((await connection.execute(select(LIVES.c.gaps))).scalar_one())
    if revision:
        now = max(revision + 2 + secrets.randbelow(STEP), time.time_ns() // 1_000_000)
        gaps, revision = (*gaps, (revision, now))[-GAPS_MAX:], now
        await connection.execute(update(HEAD).values(revision=revision))
    life = text("''" if connection.dialect.name == "sqlite" else "meta_life()")
    await connection.execute(update(LIVES).values(gaps=json.dumps(gaps), life=life))
    return revision, gaps


async def _begin_anew(connection: AsyncConnection, revision: int) -> None:
    """By statements that say nothing of the entries, of which there may be many while all others wait."""
    await connection.execute(update(ENTRIES).values(version=revision, revision=revision))
    await connection.execute(update(LIVES).values(gaps="[]", began=revision))
    await connection.execute(update(FORGOTTEN).values(horizon=revision, floor=revision))


async def _changes(connection: AsyncConnection, after: int) -> Changes:
    """Commits come one after the other, so a statement that sees one sees all before it. But rows that are gone are
    forgotten, and who may have missed one of them gets all, as does who knows what is lost.
    """
    found = (await connection.execute(_read(after))).all()
    whole = after < found[0].horizon or is_lost(after, found[0].head, _gaps(found[0].gaps))
    if whole and after:
        found = (await connection.execute(_read(0))).all()
    head = found[0]
    changes = Changes(head.head, _entries(found), gaps=_gaps(head.gaps), began=head.began)
    return replace(changes, whole=True, floor=head.floor) if whole else changes


def _read(after: int) -> Select[Any]:
    """One row at least; without a kind when there is nothing new."""
    return _READ.outerjoin(ENTRIES, ENTRIES.c.revision > after).order_by(ENTRIES.c.revision)


def _gaps(written: str) -> Gaps:
    return tuple((after, before) for after, before in json.loads(written))


def _entries(rows: Sequence[Row[Any]]) -> tuple[Entry, ...]:
    return tuple(
        Entry(row.kind, row.name, row.version, row.body and json.loads(row.body))
        for row in rows
        if row.kind is not None
    )


def _row(entry: Entry, revision: int) -> dict[str, Any]:
    return {
        "kind": entry.kind, "name": entry.name, "version": entry.version, "revision": revision,
        "body": turns.body_of(entry),
    }  # fmt: skip


def _put_over() -> Any:
    insert = sqlite_insert(ENTRIES)
    columns = {name: insert.excluded[name] for name in ("version", "revision", "body")}
    return insert.on_conflict_do_update(index_elements=["kind", "name"], set_=columns)


_UPSERT = _put_over()


def _is_shutdown(error: DBAPIError) -> bool:
    """PostgreSQL says class 57 when it stops, and 25 when it is only read."""
    state = getattr(error.orig, "sqlstate", None) or ""
    return str(state).startswith(("57", "08", "25", "40", "53"))


def _is_damage(error: DBAPIError) -> bool:
    """SQLite found other bytes than it wrote. It has this class for nothing else: its subclasses say what is meant."""
    return type(error.orig) is sqlite3.DatabaseError


def _sentence(error: BaseException) -> str:
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return " ".join(str(cause).split())[:300] or type(cause).__name__


def _engine(url: str) -> AsyncEngine:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise DatabaseUrlError(f"{url[:40]!r} is no database: write postgresql://USER@HOST/NAME") from None
    name = parsed.get_backend_name()
    if name not in DRIVERS:
        raise DatabaseUrlError(
            f"meta knows no {name}: write postgresql://USER@HOST/NAME, or leave it out for SQLite"
        )
    parsed = parsed.set(drivername=DRIVERS[name])
    if name == "sqlite":
        engine = create_async_engine(
            parsed, pool_size=1, max_overflow=0, connect_args={"timeout": TIMEOUT_SECONDS}
        )
        event.listen(engine.sync_engine, "connect", _prepare_sqlite)
        event.listen(engine.sync_engine, "begin", _begin_sqlite)
        return engine
    return create_async_engine(
        parsed,
        pool_size=CONNECTIONS,
        max_overflow=0,
        pool_timeout=TIMEOUT_SECONDS,
        pool_pre_ping=True,
        connect_args={
            "timeout": TIMEOUT_SECONDS,
            "command_timeout": TIMEOUT_SECONDS,
            "server_settings": {
                "application_name": "tidemill-meta",
                "synchronous_commit": "on",
                "idle_in_transaction_session_timeout": str(TURN_MS_MAX),
            },
        },
    )


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """The driver shall begin no transaction by itself; a commit is on the disk when it returns."""
    connection.isolation_level = None
    connection.run_async(_write_ahead)
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


async def _write_ahead(connection: aiosqlite.Connection) -> None:
    """A new file becomes one with a log. While another process makes its tables SQLite refuses that at once, whatever
    its timeout says; so it is tried again.
    """
    due = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            async with connection.execute("PRAGMA journal_mode=WAL"):
                pass
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > due:
                raise
            await _pause()
        else:
            return


async def _pause() -> None:
    await asyncio.sleep(LOCKED_SECONDS)


def _begin_sqlite(connection: Any) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
