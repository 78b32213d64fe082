"""The outbox on SQLite, with a queue in memory: what is sent when, by whom, and what stays."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import Session

from samples.outboxes import QUICK, Fickle, opened, rows, status, write
from tidemill.errors import BrokerUnreachable, ClientClosed, Refused
from tidemill.outbox import Outbox, Pace, create_tables, create_tables_async, desk, tables
from tidemill.outbox.blocking import Outbox as BlockingOutbox
from tidemill.outbox.delivering import deliver
from tidemill.outbox.ledger import Ledger
from tidemill.outbox.row import State
from tidemill.routes import Address
from tidemill.testing import Client

Until = Callable[[Callable[[], object]], Awaitable[None]]


@pytest.fixture
def url(tmp_path: Path) -> str:
    engine = sql.create_engine(f"sqlite:///{tmp_path}/outbox.db")
    create_tables(engine)
    engine.dispose()
    return f"sqlite+aiosqlite:///{tmp_path}/outbox.db"


async def test_what_commits_is_sent_with_all_that_belongs_to_it_and_deleted(url: str, until: Until) -> None:
    async with opened(url) as engine, Client() as mq:
        async with Outbox(engine, mq) as outbox, mq.consume("a", group="g") as messages:
            async with async_sessionmaker(engine)() as session, session.begin():
                written = await outbox.send(
                    session, "a", "1", key="k", tags={"x", "y"}, properties={"p": b"\xff"}, priority=3
                )
                assert outbox.statistics()["sent"] == 0
            message = await anext(messages)
            await until(lambda: outbox.statistics()["sent"] == 1)

        assert (message.body, message.key, message.tags, message.priority) == (b"1", "k", {"x", "y"}, 3)
        assert message.properties == {"p": b"\xff", "outbox_id": written.identity}
        assert await rows(engine) == []


async def test_what_is_for_later_is_due_by_the_time_at_which_it_was_written(url: str, until: Until) -> None:
    """However long the row waits for its sending."""
    async with opened(url) as engine, Fickle() as mq:
        mq.fails = lambda _subject, _body: BrokerUnreachable("away")
        async with Outbox(engine, mq, pace=QUICK) as outbox, mq.consume("a", group="g") as messages:
            async with async_sessionmaker(engine)() as session, session.begin():
                written = mq.broker.clock.now_ms()
                await outbox.send(session, "a", b"r", key="k", order_key="o", delay=timedelta(hours=2))
            await mq.advance(hours=1)
            mq.fails = lambda _subject, _body: None
            await until(lambda: mq.stored == [b"r"])
            await mq.advance(minutes=59)
            assert "a" not in mq.broker.subjects or mq.broker.subjects["a"].next_sequence == 0
            await mq.advance(minutes=1)
            message = await anext(messages)

        assert (message.body, message.key, message.order_key) == (b"r", "k", "o")
        assert 0 <= round(message.stored_at.timestamp() * 1000) - written - 7_200_000 < 60_000
        assert await rows(engine) == []


async def test_what_waits_under_a_timer_key_is_cancelled_and_moved_in_the_order_of_the_rows(
    url: str, until: Until
) -> None:
    """Whoever wrote them, and whatever is sent twice: a cancel is behind the send before it, and before the next."""
    async with opened(url) as engine, Fickle() as mq:
        writer = Outbox(engine, mq, pace=Pace(sender=False, watchdog=False))
        async with engine.begin() as connection:
            for body in ("first", "second"):
                await writer.send(connection, "a", body, delay=60, timer_key="k")
                await writer.cancel(connection, subject="a", timer_key="k")
            await writer.send(connection, "a", "third", delay=60, timer_key="k", order_key="o")
            await writer.reschedule(connection, subject="a", timer_key="k", delay=3600)
            await writer.send(connection, "b", "of another subject", delay=60, timer_key="k")
        async with engine.connect() as connection:
            await writer.cancel(connection, subject="b", timer_key="k")
            await connection.rollback()
        async with Outbox(engine, mq, pace=QUICK) as outbox:
            await until(lambda: outbox.statistics()["sent"] == 7)
        assert await rows(engine) == []
        assert [timer.timer_key async for timer in mq.timers("a")] == ["k"]
        await mq.advance(minutes=59)
        assert "a" not in mq.broker.subjects
        assert mq.broker.subjects["b"].next_sequence == 1
        await mq.advance(minutes=2)
        assert [message.body async for message in mq.browse("a")] == [b"third"]


async def test_a_series_that_is_begun_twice_is_one(url: str, until: Until) -> None:
    """A process dies after it has sent the row and before it has deleted it."""
    async with opened(url) as engine, Fickle() as mq:
        rule = {"cron": "0 9 * * mon-fri", "time_zone": "Europe/Berlin", "missed": "all"}
        await write(engine, b"report", timer_key="report", key="k", tags={"t"}, priority=2, **rule)
        async with engine.begin() as connection:
            found = await connection.run_sync(Ledger(tables(), QUICK, 0.0).in_order)
        for _ in range(2):
            assert (await deliver(mq, found, until=float("inf"))).stored == [1]
        [timer] = [timer async for timer in mq.timers("a")]
        assert timer.cron == "0 9 * * mon-fri Europe/Berlin"
        async with mq.consume("a", group="g") as messages:
            await mq.advance(days=7)
            came = [await anext(messages) for _ in range(5)]
        said = {(one.body, one.key, one.timer_key, one.priority, tuple(one.tags)) for one in came}
        assert said == {(b"report", "k", "report", 2, ("t",))}
        assert mq.broker.subjects["a"].next_sequence == 0, "all of them have a priority"
        assert {one.properties["outbox_id"] for one in came} == {found[0].identity}


async def test_while_no_delay_service_is_there_rows_with_a_timer_key_wait_and_no_other_row(
    url: str, until: Until
) -> None:
    async with opened(url) as engine, Fickle() as mq:
        mq._router.atlas.delays = ()
        async with Outbox(engine, mq, pace=QUICK) as outbox:
            async with engine.begin() as connection:
                await outbox.cancel(connection, subject="a", timer_key="k")
                await outbox.send(connection, "a", b"now", order_key="o")
            await until(lambda: outbox.statistics()["postponed"] >= 2 and mq.stored == [b"now"])
            assert len(await rows(engine)) == 1
            mq._router.atlas.delays = (Address("d0", "memory", 2),)
            await until(lambda: outbox.statistics()["sent"] == 2)


async def test_a_delay_service_that_is_away_holds_up_no_other_row(url: str, until: Until) -> None:
    async with opened(url) as engine, Fickle() as mq:
        mq._router.atlas.delays = ()
        with pytest.raises(BrokerUnreachable, match="no delay service"):
            await mq.send("a", b"first", delay=1)
        assert mq.later_is_away
        async with Outbox(engine, mq, pace=QUICK) as outbox:
            await write(engine, b"later", delay=3600)
            await write(engine, b"now", order_key="k")
            await until(lambda: outbox.statistics()["postponed"] >= 2 and mq.stored == [b"now"])
            assert (await status(engine))["trouble"] == "BrokerUnreachable: no delay service can be reached"
            assert mq.tried == [b"first", b"now"]
            mq._router.atlas.delays = (Address("d0", "memory", 2),)
            await until(lambda: b"later" in mq.stored)
        assert await rows(engine) == []


async def test_what_rolls_back_is_not_sent_not_even_out_of_a_savepoint(url: str) -> None:
    async with opened(url) as engine, Fickle() as mq:
        quick = Pace(looks_max=4)
        async with Outbox(engine, mq, pace=quick) as outbox, async_sessionmaker(engine)() as session:
            await outbox.send(session, "a", b"rolled back")
            await session.rollback()
            async with session.begin():
                nested = await session.begin_nested()
                await outbox.send(session, "a", b"in a savepoint")
                await nested.rollback()
                await outbox.send(session, "a", b"committed")

        assert mq.stored == [b"committed"]
        assert await rows(engine) == []


async def test_a_connection_commits_again_and_again(url: str, until: Until) -> None:
    async with opened(url) as engine, Fickle() as mq, Outbox(engine, mq) as outbox:
        async with engine.connect() as connection:
            for number in range(3):
                await outbox.send(connection, "a", str(number).encode())
                await connection.commit()
                await until(lambda number=number: len(mq.stored) > number)

    assert mq.stored == [b"0", b"1", b"2"]


def test_a_program_without_a_loop_has_sessions_connections_and_cursors(url: str) -> None:
    mq = Fickle()
    engine = sql.create_engine(url.replace("+aiosqlite", ""))
    made = BlockingOutbox(engine)
    made._plan._make = lambda: mq
    with made as outbox:
        with Session(engine) as session, session.begin():
            outbox.send(session, "a", b"session")
        with engine.begin() as connection:
            outbox.send(connection, "a", b"connection")
        raw = engine.raw_connection()
        written = outbox.send(raw.cursor(), "a", b"cursor", key="k")
        raw.commit()
        outbox.committed(written)
        rolled = outbox.send(raw.cursor(), "a", b"rolled back")
        raw.rollback()
        outbox.committed(rolled)
        raw.close()
    with engine.connect() as connection:
        assert connection.execute(tables().messages.select()).all() == []
    engine.dispose()

    assert sorted(mq.stored) == [b"connection", b"cursor", b"session"]


async def test_a_row_that_no_broker_takes_is_sent_later(url: str, until: Until) -> None:
    async with opened(url) as engine, Fickle() as mq:
        mq.fails = lambda _subject, _body: BrokerUnreachable("away")
        async with Outbox(engine, mq, pace=QUICK) as outbox:
            await write(engine, b"1", b"2")
            await until(lambda: outbox.statistics()["postponed"] >= 4)
            assert (await status(engine))["trouble"] == "BrokerUnreachable: away"
            mq.fails = lambda _subject, _body: None
            await until(lambda: len(mq.stored) == 2)
        assert sorted(mq.stored) == [b"1", b"2"]
        assert await rows(engine) == []


async def test_poison_is_set_aside_with_its_reason_and_blocks_nobody(url: str, until: Until) -> None:
    """A broker refuses a whole batch for one of its messages: the others are stored when they come alone."""
    innocent = {b"2", b"3"}

    async with opened(url) as engine, Fickle() as mq:

        def fails(_subject: str, body: bytes) -> Exception | None:
            together = mq.tried.count(body) == 1
            return Refused("message_too_large", "too much") if body == b"poison" or together else None

        mq.fails = fails
        async with Outbox(engine, mq, pace=QUICK) as outbox:
            await write(engine, b"poison", *innocent)
            await until(lambda: outbox.statistics()["aside"] == 1)
            await until(lambda: outbox.statistics()["sent"] == 2)
        told = await status(engine)
        assert set(mq.stored) == innocent
        assert told["aside"] == 1
        assert "too much" in told["set_aside"][0]["reason"]
        assert [row.body for row in await rows(engine)] == [b"poison"]

        async with engine.begin() as connection:
            assert await connection.run_sync(desk.retry, tables()) == 1
        assert [row.state for row in await rows(engine)] == [State.WAITING]
        async with Outbox(engine, mq, pace=QUICK) as outbox:
            await until(lambda: outbox.statistics()["aside"] == 1)
        async with engine.begin() as connection:
            assert await connection.run_sync(desk.purge, tables(), [4711]) == 0
            assert await connection.run_sync(desk.purge, tables()) == 1
        assert await rows(engine) == []


async def test_damaged_options_are_poison_too(url: str, until: Until) -> None:
    async with opened(url) as engine, Fickle() as mq:
        await write(engine, b"1")
        async with engine.begin() as connection:
            await connection.execute(tables().messages.update().values(options=b"\xc1"))
        async with Outbox(engine, mq, pace=QUICK) as outbox:
            await until(lambda: outbox.statistics()["aside"] == 1)
        assert mq.tried == []


async def test_rows_of_a_key_keep_their_order_whatever_fails(url: str, until: Until) -> None:
    """The first two attempts of every third row fail: nothing behind one of them is tried before it is stored."""
    async with opened(url) as engine, Fickle() as mq:

        def fails(_subject: str, body: bytes) -> Exception | None:
            return BrokerUnreachable("away") if body[-1] % 3 == 0 and mq.tried.count(body) < 3 else None

        mq.fails = fails
        async with Outbox(engine, mq, pace=Pace(poll_s=0.005, retry_s=0.005, batch_rows=3)) as outbox:
            for number in range(8):
                for key in ("j", "k"):
                    await write(engine, f"{key}{number}".encode(), order_key=key)
            await until(lambda: outbox.statistics()["sent"] == 16)

        for key in (b"j", b"k"):
            assert [body[1:] for body in mq.stored if body[:1] == key] == [b"%d" % n for n in range(8)]
        assert await rows(engine) == []


async def test_a_key_that_waits_does_not_hide_the_others(url: str, until: Until) -> None:
    """Its rows are more than the window in which it is looked for those that may be sent."""
    async with opened(url) as engine, Fickle() as mq:
        mq.fails = lambda _subject, body: BrokerUnreachable("away") if body == b"stuck" else None
        pace = Pace(poll_s=0.005, retry_s=60.0, batch_rows=2)
        await write(engine, b"stuck", *(b"behind" for _ in range(45)), order_key="j")
        await write(engine, b"free", order_key="k")
        async with Outbox(engine, mq, pace=pace):
            await until(lambda: mq.stored == [b"free"])
        assert len(await rows(engine)) == 46


async def test_an_ordered_row_is_sent_by_the_leader_at_once(url: str, until: Until) -> None:
    async with opened(url) as engine, Fickle() as mq:
        async with Outbox(engine, mq, pace=Pace(poll_s=3600)) as outbox:
            await until(lambda: outbox.statistics()["leading"])
            async with async_sessionmaker(engine)() as session, session.begin():
                await outbox.send(session, "a", b"1", order_key="k")
            await until(lambda: mq.stored == [b"1"])


async def test_one_leads_and_the_next_one_follows_at_once(url: str, until: Until) -> None:
    async with opened(url) as engine, Fickle() as mq:
        pace = Pace(poll_s=0.005, lease_s=3600)
        async with Outbox(engine, mq, pace=pace) as second:
            async with Outbox(engine, mq, pace=pace) as first:
                await until(lambda: first.statistics()["leading"] or second.statistics()["leading"])
                leaders = [first.statistics()["leading"], second.statistics()["leading"]]
                assert sorted(leaders) == [0, 1]
                assert (await status(engine))["leader"]
            await until(lambda: second.statistics()["leading"])
        assert (await status(engine))["leader"] is None


async def test_two_outboxes_lie_in_one_database(tmp_path: Path, until: Until) -> None:
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/new.db") as engine, Fickle() as mq:
        await create_tables_async(engine, "first_box")
        await create_tables_async(engine, "second_box")
        async with Outbox(engine, mq, table="first_box") as outbox, engine.begin() as connection:
            await outbox.send(connection, "a", b"1")
    assert mq.stored == [b"1"]
    with pytest.raises(ValueError, match="no name of a table"):
        tables(name="outbox; DROP TABLE orders")


async def test_who_only_writes_needs_no_queue(url: str, until: Until) -> None:
    async with opened(url) as engine, Fickle() as mq:
        writer = Outbox(engine, "localhost:1", pace=Pace(sender=False, watchdog=False))
        async with writer, engine.begin() as connection:
            await writer.send(connection, "a", b"1")
        async with Outbox(engine, mq, pace=QUICK):
            await until(lambda: mq.stored == [b"1"])


async def test_a_client_with_a_spool_is_refused(url: str, tmp_path: Path) -> None:
    from tidemill import Client as RealClient

    async with opened(url) as engine:
        with pytest.raises(ValueError, match="without spool"):
            Outbox(engine, RealClient("localhost:1", spool=tmp_path / "spool"))


async def test_a_database_that_goes_away_is_waited_for(url: str, until: Until, caplog: Any) -> None:
    async with opened(url) as engine, Fickle() as mq:
        away = [3]

        def refuse(*_told: Any) -> None:
            if away[0]:
                away[0] -= 1
                raise OSError("the cable is out")

        sql.event.listen(engine.sync_engine, "before_cursor_execute", refuse)
        away[0] = 0
        async with Outbox(engine, mq, pace=QUICK):
            await write(engine, b"1")
            away[0] = 3
            await until(lambda: mq.stored == [b"1"] and not away[0])
    assert "tries on: the cable is out" in caplog.text


async def test_what_goes_one_by_one_is_not_begun_when_its_time_is_over(url: str) -> None:
    """Whoever leads next must not find us still at it; what was not begun is as if it had not been read."""
    async with opened(url) as engine, Fickle() as mq:
        await write(engine, b"1", b"2", order_key="k")
        async with engine.begin() as connection:
            found = await connection.run_sync(Ledger(tables(), QUICK, 0.0).in_order)
        assert not await deliver(mq, found, until=0.0)
        assert mq.tried == []
        fates = await deliver(mq, found, until=float("inf"))
        assert fates.stored == [1, 2]


async def test_a_message_of_a_newer_version_waits_for_a_process_that_knows_it(url: str, until: Until) -> None:
    async with opened(url) as engine, Fickle() as mq:
        await write(engine, b"1")
        async with engine.begin() as connection:
            await connection.execute(tables().messages.update().values(options=b"\x81\xa5later\x01"))
        async with Outbox(engine, mq, pace=QUICK) as outbox:
            await until(lambda: outbox.statistics()["postponed"])
        assert mq.tried == []
        assert [row.state for row in await rows(engine)] == [State.WAITING]


async def test_a_crash_of_the_sender_is_told_at_the_end(url: str, until: Until, caplog: Any) -> None:
    async with opened(url) as engine, Fickle() as mq:
        mq.fails = lambda _subject, _body: ClientClosed("closed before the outbox")
        outbox = Outbox(engine, mq, pace=Pace(watchdog=False))
        await outbox.__aenter__()
        async with engine.begin() as connection:
            await outbox.send(connection, "a", b"1")
        await until(lambda: "sends nothing any more" in caplog.text)
        with pytest.raises(BaseExceptionGroup):
            await outbox.close()
        assert len(await rows(engine)) == 1
