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

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("tidemill.outbox")

AWAY = (SQLAlchemyError, OSError)
"""What a database raises that is away, restarts, has no connection left, or lets somebody else go first."""


class Database:
    """Runs functions of a connection, each in a transaction."""

    def __init__(self, engine: sql.Engine | AsyncEngine) -> None:
        lite = engine.dialect.name == "sqlite"
        self._engine = engine if lite else engine.execution_options(isolation_level="READ COMMITTED")

    @property
    def dialect(self) -> str:
        """Its name."""
        return self._engine.dialect.name

    async def run(
        self, work: Callable[Concatenate[sql.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What the function returns, once it is committed."""
        engine = self._engine
        if isinstance(engine, AsyncEngine):
            async with engine.begin() as connection:
                return await connection.run_sync(work, *args, **kwargs)

        def at_once() -> T:
            with engine.begin() as connection:
                return work(connection, *args, **kwargs)

        return await asyncio.to_thread(at_once)

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
            except AWAY as error:
                text = str(error).partition("\n")[0][:300]
                if text != told:
                    logger.warning("the outbox cannot reach its table, and tries on: %s", text)
                    told = text
                await asyncio.sleep(backoff.next())
            else:
                if told:
                    logger.warning("the outbox reaches its table again")
                backoff.reset()
                return done
