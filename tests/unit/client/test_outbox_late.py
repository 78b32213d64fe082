"""Rows of transactions that commit late, on PostgreSQL: none is passed over, whatever was sent in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import pytest
import sqlalchemy as sql
from sqlalchemy.ext.asyncio import create_async_engine

from samples.outboxes import Fickle, opened, rows
from samples.postgres import postgres
from tidemill.errors import Refused
from tidemill.outbox import Outbox, Pace, create_tables, tables

Until = Callable[[Callable[[], object]], Awaitable[None]]
SHORT = Pace(poll_s=0.005, retry_s=0.005, retry_max_s=0.01, looks_max=2)
"""What is not there soon is left to the watchdog."""


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    with postgres() as server:
        yield server.url("late").partition("://")[2]


@pytest.fixture
def table(place: str) -> str:
    engine = sql.create_engine(f"postgresql+psycopg://{place}")
    create_tables(engine)
    with engine.begin() as connection:
        connection.execute(tables().messages.delete())
    engine.dispose()
    return f"postgresql+asyncpg://{place}"


@pytest.mark.parametrize("order_key", [None, "k"])
async def test_a_transaction_that_was_open_for_long_is_sent_when_it_commits(
    table: str, until: Until, order_key: str | None
) -> None:
    """Its row has a lower number than those that were sent and deleted meanwhile."""
    async with opened(table) as engine, Fickle() as mq:
        late = create_async_engine(table)
        async with Outbox(engine, mq, pace=Pace(poll_s=0.005, sender=False)) as outbox:
            async with late.connect() as connection:
                await outbox.send(connection, "a", b"late", order_key=order_key)
                for number in range(3):
                    async with engine.begin() as other:
                        await outbox.send(other, "a", b"%d" % number, order_key=order_key)
                await until(lambda: len(mq.stored) == 3)
                await connection.commit()
            await until(lambda: mq.stored[-1] == b"late")
        await late.dispose()
        assert await rows(engine) == []


async def test_a_subject_that_is_forbidden_holds_up_no_other(table: str, until: Until) -> None:
    async with opened(table) as engine, Fickle() as mq:
        mq.fails = lambda subject, _body: Refused("forbidden", "no grant") if subject == "b" else None
        async with Outbox(engine, mq, pace=SHORT) as outbox:
            for key in (None, "k"):
                async with engine.begin() as connection:
                    await outbox.send(connection, "b", b"not", order_key=key)
                    await outbox.send(connection, "a", b"sent", order_key=key)
            await until(lambda: mq.stored == [b"sent", b"sent"])
            await until(lambda: outbox.statistics()["aside"] == 2)
        assert [row.subject for row in await rows(engine)] == ["b", "b"]
