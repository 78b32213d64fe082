"""The tables of the outbox, on SQLite: made, migrated, read within bounds and by their indexes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql

from samples.outboxes import QUICK, Fickle, opened, rows, write
from tidemill.errors import ClientClosed
from tidemill.outbox import Outbox, OutboxUnusable, Pace, create_tables, create_tables_async, desk, tables
from tidemill.outbox.ledger import Ledger
from tidemill.outbox.row import Written, parse_entry
from tidemill.outbox.schema import MIGRATIONS, Tables, check, make, migrate
from tidemill.testing import Client


@pytest.fixture
def url(tmp_path: Path) -> str:
    engine = sql.create_engine(f"sqlite:///{tmp_path}/outbox.db")
    create_tables(engine)
    engine.dispose()
    return f"sqlite+aiosqlite:///{tmp_path}/outbox.db"


async def test_an_identity_that_is_not_the_row_s_is_not_sent(url: str) -> None:
    """The number of a row that was rolled back may be another one's by now."""
    async with opened(url) as engine:
        await write(engine, b"somebody else's")
        ledger = Ledger(tables(), QUICK, 1.0)
        async with engine.begin() as connection:
            assert await connection.run_sync(ledger.committed, [Written(1, "mine")]) == []


async def test_purge_never_takes_what_waits(url: str) -> None:
    async with opened(url) as engine:
        await write(engine, b"1")
        await write(engine, b"2", order_key="k")
        async with engine.begin() as connection:
            assert await connection.run_sync(desk.purge, tables(), [1, 2]) == 0
            assert await connection.run_sync(desk.retry, tables()) == 0
        assert len(await rows(engine)) == 2


async def test_a_lease_ends_by_the_clock_of_the_database(url: str) -> None:
    async with opened(url) as engine:
        ledger = Ledger(tables(), QUICK, 1.0)
        async with engine.begin() as connection:
            assert await connection.run_sync(ledger.lead, "a", 3_600_000)
            assert not await connection.run_sync(ledger.lead, "b", 1000)
            assert await connection.run_sync(ledger.lead, "a", 0)
            assert await connection.run_sync(ledger.lead, "b", 1000)


async def test_what_is_young_is_left_to_its_own_process(url: str) -> None:
    async with opened(url) as engine:
        await write(engine, b"old")
        ledger = Ledger(tables(), QUICK, 3600.0)
        async with engine.begin() as connection:
            await connection.run_sync(ledger.write, parse_entry("a", b"young", {}))
        async with engine.begin() as connection:
            assert [row.body for row in await connection.run_sync(ledger.due)] == [b"old"]


async def test_a_reading_is_bounded_by_rows_and_by_bytes(url: str) -> None:
    async with opened(url) as engine:
        await write(engine, *(b"x" * 100 for _ in range(10)))
        for pace, expected in ((Pace(batch_rows=4), 4), (Pace(batch_bytes=250), 2), (Pace(batch_bytes=1), 1)):
            async with engine.begin() as connection:
                found = await connection.run_sync(Ledger(tables(), pace, 1.0).due)
            assert len(found) == expected


async def test_the_statements_that_run_again_and_again_use_the_indexes(url: str) -> None:
    async with opened(url) as engine:
        plans: list[str] = []

        def explain(connection: sql.Connection) -> None:
            for reading in (Ledger(tables(), QUICK, 1.0).due, Ledger(tables(), QUICK, 1.0).in_order):
                seen: list[tuple[str, Any]] = []
                sql.event.listen(
                    connection,
                    "before_cursor_execute",
                    lambda *told, seen=seen: seen.append((told[2], told[3])),
                )
                reading(connection)
                for text, values in seen.copy():
                    plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values).all()
                    plans.extend(str(line[3]) for line in plan)

        async with engine.connect() as connection:
            await connection.run_sync(explain)

        assert len(plans) >= 4
        assert [plan for plan in plans if plan.startswith("SCAN") or "TEMP B-TREE" in plan] == []


async def test_tables_are_made_by_many_at_once_and_migrated_by_one(tmp_path: Path) -> None:
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/new.db") as engine:
        assert await asyncio.gather(*(create_tables_async(engine) for _ in range(4))) == [1] * 4
        steps: list[int] = []

        def second(connection: sql.Connection, found: Tables) -> None:
            connection.execute(sql.text(f"ALTER TABLE {found.name} ADD COLUMN later INTEGER"))
            steps.append(2)

        for _ in range(2):
            async with engine.begin() as connection:
                assert await connection.run_sync(migrate, tables(), (*MIGRATIONS, second)) == 2
        assert steps == [2]
        async with engine.connect() as connection:
            with pytest.raises(OutboxUnusable, match="upgrade tidemill"):
                await connection.run_sync(check, tables())


async def test_tables_that_are_missing_are_told_with_what_to_do(tmp_path: Path) -> None:
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/new.db") as engine, Client() as mq:
        with pytest.raises(OutboxUnusable, match="tidemill outbox create"):
            await Outbox(engine, mq).__aenter__()
        async with engine.begin() as connection:
            await connection.run_sync(make, tables())
            await connection.run_sync(migrate, tables(), ())
            await connection.execute(tables().lease.update().values(number=0))
        with pytest.raises(OutboxUnusable, match="is of version 0"):
            await Outbox(engine, mq).__aenter__()


def test_tables_that_somebody_else_has_made_get_their_version(tmp_path: Path) -> None:
    """Alembic makes them out of the user's metadata, in which there may be those of two outboxes."""
    engine, metadata = sql.create_engine(f"sqlite:///{tmp_path}/new.db"), sql.MetaData()
    found = [tables(metadata, name) for name in ("first_box", "second_box")]
    metadata.create_all(engine)
    with engine.connect() as connection:
        with pytest.raises(OutboxUnusable, match="no table first_box"):
            check(connection, found[0])
    assert [create_tables(engine, one.name) for one in found] == [1, 1]
    with engine.connect() as connection:
        check(connection, found[0])
    engine.dispose()


async def test_an_outbox_that_was_not_begun_writes_nothing_that_nobody_would_send(url: str) -> None:
    async with opened(url) as engine, Fickle() as mq:
        outbox = Outbox(engine, mq)
        with pytest.raises(ClientClosed, match="has not begun"):
            async with engine.begin() as connection:
                await outbox.send(connection, "a", b"1")
        assert await rows(engine) == []
        async with outbox:
            pass
        async with engine.begin() as connection:  # of a request that ends after it: others send that
            await outbox.send(connection, "a", b"1")
        assert len(await rows(engine)) == 1
