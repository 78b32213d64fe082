"""What the tests of the outbox share: an engine, rows in its table, a client whose sends fail as a test wants it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tidemill import ClientSettings
from tidemill.outbox import Pace, desk, tables
from tidemill.outbox.ledger import Ledger
from tidemill.outbox.row import parse_entry
from tidemill.testing import Client

QUICK = Pace(poll_s=0.005, retry_s=0.005, retry_max_s=0.01)


class Fickle(Client):
    """A client whose sends fail as the test wants it, and that notes those that do not."""

    def __init__(self) -> None:
        super().__init__(settings=ClientSettings(send_timeout_s=1.0))
        self.fails: Callable[[str, bytes], Exception | None] = lambda _subject, _body: None
        self.tried: list[bytes] = []
        self.stored: list[bytes] = []

    async def send(self, subject: str, body: Any, **options: Any) -> Any:
        self.tried.append(body)
        if (error := self.fails(subject, body)) is not None:
            raise error
        receipt = await super().send(subject, body, **options)
        self.stored.append(body)
        return receipt


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(url)
    try:
        yield engine
    finally:
        await engine.dispose()


async def rows(engine: AsyncEngine) -> list[Any]:
    async with engine.connect() as connection:
        found = await connection.execute(tables().messages.select().order_by(tables().messages.c.id))
        return list(found.all())


async def status(engine: AsyncEngine) -> dict[str, Any]:
    async with engine.connect() as connection:
        return await connection.run_sync(desk.status, tables())


async def write(engine: AsyncEngine, *bodies: bytes, subject: str = "a", **options: Any) -> None:
    """Rows that a process left: they are due, and nobody is told of them."""
    ledger = Ledger(tables(), QUICK, 0.0)
    async with engine.begin() as connection:
        for body in bodies:
            await connection.run_sync(ledger.write, parse_entry(subject, body, options))
