"""Idempotency stores that processes share: a table of a database, and whatever speaks like Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tidemill.worker.idempotence import Claim, State

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

TABLE = "tidemill_claims"
DONE = "done"
T = TypeVar("T")

MAKES_MAX = 3
CLAIMS_MAX = 3
"""How often a claim is tried that others take or end at the same moment."""


class SqlStore:
    """A table of its own in a database, by SQLAlchemy: SQLite, PostgreSQL and others. Extra: ``tidemill[sqlalchemy]``.

    Takes a plain ``Engine`` and works in threads; the table is made with the first call. ``now`` is the wall clock,
    because processes share it.
    """

    def __init__(self, engine: Engine, *, table: str = TABLE, now: Callable[[], float] = time.time) -> None:
        import sqlalchemy as sql
        from sqlalchemy.exc import DatabaseError, IntegrityError

        if hasattr(engine, "sync_engine"):
            raise TypeError(
                "SqlStore works in threads and takes a plain engine: give it create_engine(...) of the same database, "
                "or take @idempotent of tidemill.outbox with your async_sessionmaker"
            )
        self._taken, self._refused = IntegrityError, DatabaseError
        self._engine = engine
        self._now = now
        self._made = False
        self._lock = asyncio.Lock()
        self._table = sql.Table(
            table,
            sql.MetaData(),
            sql.Column("id", sql.String(255), primary_key=True),
            sql.Column("owner", sql.String(64), nullable=False),
            sql.Column("until", sql.Float(53), nullable=False, index=True),
        )

    async def claim(self, id: str, owner: str, ttl_seconds: float) -> Claim:  # noqa: A002
        return await self._do(self._claim, id, owner, ttl_seconds)

    async def finish(self, id: str, owner: str, keep_seconds: float) -> None:  # noqa: A002
        await self._do(self._finish, id, keep_seconds)

    async def release(self, id: str, owner: str) -> None:  # noqa: A002
        await self._do(self._release, id, owner)

    async def forget(self) -> int:
        """Delete what is over; how many rows that were. Call it now and then."""
        return await self._do(self._forget)

    def finish_in(self, connection: Connection, id: str, keep_seconds: float) -> None:  # noqa: A002
        """Finish within the caller's transaction: the handler's work and this are both there, or neither is.

        The id is ``context.values["claim"]``. The middleware's own ``finish`` afterwards changes nothing.
        """
        table = self._table
        values = {"owner": DONE, "until": self._now() + keep_seconds}
        updated = connection.execute(table.update().where(table.c.id == id).values(**values))
        if not updated.rowcount:
            connection.execute(table.insert().values(id=id, **values))

    async def _do(self, work: Callable[..., T], *arguments: Any) -> T:
        if not self._made:
            async with self._lock:
                if not self._made:
                    await asyncio.to_thread(self._make)
                    self._made = True
        return await asyncio.to_thread(work, *arguments)

    def _make(self) -> None:
        for attempt in range(MAKES_MAX):
            try:
                self._table.metadata.create_all(self._engine)
            except self._refused:  # another process makes it at this moment: it is seen the next time
                if attempt + 1 == MAKES_MAX:
                    raise
            else:
                return

    def _claim(self, id: str, owner: str, ttl_seconds: float) -> Claim:  # noqa: A002
        table = self._table
        for _ in range(CLAIMS_MAX):
            now = self._now()
            with self._engine.connect() as connection:
                row = connection.execute(table.select().where(table.c.id == id)).first()
            if row is not None and now < row.until:
                return Claim(State.DONE) if row.owner == DONE else Claim(State.IN_PROGRESS, row.until - now)
            values = {"owner": owner, "until": now + ttl_seconds}
            if row is None:
                try:
                    with self._engine.begin() as connection:
                        connection.execute(table.insert().values(id=id, **values))
                except self._taken:
                    continue  # somebody was quicker: look again
                return Claim(State.NEW)
            mine = (table.c.id == id) & (table.c.owner == row.owner) & (table.c.until == row.until)
            with self._engine.begin() as connection:
                taken = connection.execute(table.update().where(mine).values(**values)).rowcount
            if taken:
                return Claim(State.NEW)
        return Claim(State.IN_PROGRESS, ttl_seconds)

    def _finish(self, id: str, keep_seconds: float) -> None:  # noqa: A002
        with self._engine.begin() as connection:
            self.finish_in(connection, id, keep_seconds)

    def _release(self, id: str, owner: str) -> None:  # noqa: A002
        table = self._table
        with self._engine.begin() as connection:
            connection.execute(table.delete().where((table.c.id == id) & (table.c.owner == owner)))

    def _forget(self) -> int:
        table = self._table
        with self._engine.begin() as connection:
            return connection.execute(table.delete().where(table.c.until <= self._now())).rowcount


class RedisLike(Protocol):
    """What is asked of a client: ``redis.asyncio.Redis`` has it, and others do."""

    async def set(self, name: str, value: str, *, nx: bool = False, ex: int | None = None) -> Any:
        """Truthy when it was set; ``nx``: only when there is none; ``ex``: for so many seconds."""
        ...

    async def get(self, name: str) -> Any:
        """Text or bytes; ``None`` when there is none."""
        ...

    async def delete(self, name: str) -> Any:
        """Take it away."""
        ...


class RedisStore:
    """Claims in a store with ``SET NX EX``.

    A release reads before it deletes, and the two are not atomic: a claim that ends by its ttl at that very moment
    may be taken from its next owner. Give claims a ttl that handlers do not reach.
    """

    def __init__(
        self, redis: RedisLike, *, prefix: str = "tidemill:", now: Callable[[], float] = time.time
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._now = now

    async def claim(self, id: str, owner: str, ttl_seconds: float) -> Claim:  # noqa: A002
        name = self._prefix + id
        for _ in range(CLAIMS_MAX):
            value = f"{owner} {self._now() + ttl_seconds}"
            if await self._redis.set(name, value, nx=True, ex=_whole(ttl_seconds)):
                return Claim(State.NEW)
            held = _text(await self._redis.get(name))
            if held == DONE:
                return Claim(State.DONE)
            if held is not None:
                return Claim(State.IN_PROGRESS, max(0.0, float(held.rpartition(" ")[2]) - self._now()))
        return Claim(State.IN_PROGRESS, ttl_seconds)

    async def finish(self, id: str, owner: str, keep_seconds: float) -> None:  # noqa: A002
        await self._redis.set(self._prefix + id, DONE, ex=_whole(keep_seconds))

    async def release(self, id: str, owner: str) -> None:  # noqa: A002
        held = _text(await self._redis.get(self._prefix + id))
        if held is not None and held.partition(" ")[0] == owner:
            await self._redis.delete(self._prefix + id)


def _whole(seconds: float) -> int:
    """Seconds of ``EX`` are whole ones."""
    return max(1, -int(-seconds // 1))


def _text(value: Any) -> str | None:
    match value:
        case bytes():
            return value.decode()
        case None:
            return None
        case _:
            return str(value)
