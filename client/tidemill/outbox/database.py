"""The door to the database: a transaction of our own, on whichever engine the user has.

The engine's pool is the user's; at most two of its connections are used at a time. Isolation is READ COMMITTED: what
was committed is seen at once, and InnoDB locks no gaps that a user's insert would run into.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import sqlalchemy as sql
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from tidemill.backoff import Backoff
from tidemill_wire.errors import TidemillError

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("tidemill.outbox")


class DatabaseAway(TidemillError):
    """It does not answer, restarts, has no connection left, or lets somebody else go first."""


class Database:
    """Runs functions of a connection, each in a transaction."""

    def __init__(self, engine: sql.Engine | AsyncEngine) -> None:
        self._engine = engine

    @property
    def dialect(self) -> str:
        """Its name."""
        return self._engine.dialect.name

    async def run(
        self, work: Callable[Concatenate[sql.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What the function returns, once it is committed."""
        try:
            return await self._run(work, *args, **kwargs)
        except Exception as error:
            # Of a connection that is cut while it is taken or given back, SQLAlchemy lets through what drivers raise.
            if isinstance(error, SQLAlchemyError | OSError) or self._is_driver_s(error):
                raise DatabaseAway(str(error).partition("\n")[0][:300]) from error
            raise

    async def insist(
        self,
        backoff: Backoff,
        work: Callable[Concatenate[sql.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """The same, until it works. A database that is away for an hour is told once, and again when it is back."""
        told = ""
        while True:
            try:
                done = await self.run(work, *args, **kwargs)
            except DatabaseAway as error:
                if str(error) != told:
                    told = str(error)
                    logger.warning("the outbox cannot reach its table, and tries on: %s", told)
                await asyncio.sleep(backoff.next())
            else:
                if told:
                    logger.warning("the outbox reaches its table again")
                backoff.reset()
                return done

    async def _run(
        self, work: Callable[Concatenate[sql.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        engine = self._engine

        def within(connection: sql.Connection) -> T:
            if connection.dialect.name != "sqlite":
                # As a statement and no option of the engine: when a connection turns out to be dead by an option,
                # nobody gives it back to the pool.
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            return work(connection, *args, **kwargs)

        if isinstance(engine, AsyncEngine):
            async with engine.begin() as calm:
                return await calm.run_sync(within)

        def at_once() -> T:
            with engine.begin() as connection:
                return within(connection)

        return await asyncio.to_thread(at_once)

    def _is_driver_s(self, error: Exception) -> bool:
        driver = self._engine.dialect.driver
        return any(kind.__module__.partition(".")[0] == driver for kind in type(error).__mro__)
