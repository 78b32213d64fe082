"""``@idempotent``: the handler's work and "handled" are committed together, on SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import pytest
import sqlalchemy as sql
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from samples.mariadb import mariadb
from samples.postgres import postgres
from tidemill import Idempotent, Worker
from tidemill.outbox import create_tables, idempotent, identity
from tidemill.outbox.once import forget
from tidemill.testing import Client, running
from tidemill.worker import SqlStore
from tidemill.worker.idempotence import claim_id

WORK = sql.Table(
    "work", sql.MetaData(), sql.Column("id", sql.Integer, primary_key=True), sql.Column("of", sql.String(9))
)


class Given:
    """A message, as far as it matters here."""

    def __init__(self, id: str) -> None:  # noqa: A002
        self.id = id
        self.properties: dict[str, Any] = {}


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "mariadb"])
def urls(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """With an event loop and without."""
    match request.param:
        case "sqlite":
            path = tmp_path_factory.mktemp("once") / "once.db"
            yield f"sqlite+aiosqlite:///{path}", f"sqlite:///{path}"
        case "postgresql":
            with postgres() as server:
                place = server.url("once").partition("://")[2]
                yield f"postgresql+asyncpg://{place}", f"postgresql+psycopg://{place}"
        case _:
            with mariadb() as server:
                place = f"root@/once?unix_socket={server.socket}"
                engine = sql.create_engine(f"mysql+pymysql://root@/?unix_socket={server.socket}")
                with engine.begin() as connection:
                    connection.execute(sql.text("CREATE DATABASE once"))
                engine.dispose()
                yield f"mysql+asyncmy://{place}", f"mysql+pymysql://{place}"


@pytest.fixture
def engine(urls: tuple[str, str]) -> Iterator[sql.Engine]:
    engine = sql.create_engine(urls[1])
    create_tables(engine)
    WORK.drop(engine, checkfirst=True)
    WORK.create(engine)
    yield engine
    with engine.begin() as connection:
        assert forget(connection, lambda: float("1e12")) >= 0
    engine.dispose()


def done(engine: sql.Engine) -> list[str]:
    with engine.connect() as connection:
        return sorted(connection.execute(sql.select(WORK.c.of)).scalars())


def test_a_plain_handler_works_once_and_a_failure_leaves_nothing(engine: sql.Engine) -> None:
    fails = [True]

    @idempotent(sessionmaker(engine), group="g")
    def handle(message: Given, session: Session) -> str:
        session.execute(WORK.insert().values(of=message.id))
        if fails.pop():
            raise RuntimeError("in the middle")
        fails.append(False)
        return "done"

    with pytest.raises(RuntimeError):
        handle(Given("a"))
    assert done(engine) == []
    fails.append(False)
    assert handle(Given("a")) == "done"
    assert handle(Given("a")) is None
    assert done(engine) == ["a"]


async def test_a_coroutine_works_once_in_a_worker_and_again_in_another_group(
    urls: tuple[str, str], engine: sql.Engine
) -> None:
    """The same row of an outbox, sent twice, is two messages with one identity."""
    calm = create_async_engine(urls[0])
    worker = Worker()

    async def work(message: Any, session: AsyncSession) -> None:
        await session.execute(WORK.insert().values(of=message.body.decode()))

    worker.on("a", group="one")(idempotent(async_sessionmaker(calm))(work))

    @worker.on("a", group="two", name="again")
    @idempotent(async_sessionmaker(calm), key=lambda message: message.body.decode())
    async def again(message: Any, session: AsyncSession) -> None:
        await work(message, session)

    async with Client() as mq, running(worker, mq) as run:
        for _ in range(2):
            await mq.send("a", b"x", properties={"outbox_id": "row"})
        await mq.send("a", b"y")
        await run.idle()
    await calm.dispose()

    assert run.errors == []
    assert done(engine) == ["x", "x", "y", "y"]


async def test_a_handler_that_commits_by_itself_is_refused_before_it_does(
    urls: tuple[str, str], engine: sql.Engine
) -> None:
    """Its message would be noted as handled, and what comes after would be lost with the process."""
    calm = create_async_engine(urls[0])

    @idempotent(sessionmaker(engine), group="g")
    def handle(message: Given, session: Session) -> None:
        session.execute(WORK.insert().values(of=message.id))
        session.commit()

    @idempotent(async_sessionmaker(calm), group="g")
    async def calmly(message: Given, session: AsyncSession) -> None:
        await session.execute(WORK.insert().values(of=message.id))
        await session.commit()

    with pytest.raises(RuntimeError, match="does not commit"):
        handle(Given("a"))
    with pytest.raises(RuntimeError, match="does not commit"):
        await calmly(Given("a"))
    await calm.dispose()
    assert done(engine) == []


async def test_a_handler_that_ended_its_transaction_has_failed(
    urls: tuple[str, str], engine: sql.Engine
) -> None:
    """What it does from then on would be committed without the note that it was done."""
    calm = create_async_engine(urls[0])

    @idempotent(sessionmaker(engine), group="g")
    def handle(message: Given, session: Session) -> None:
        session.rollback()
        session.execute(WORK.insert().values(of=message.id))

    @idempotent(async_sessionmaker(calm), group="g")
    async def calmly(message: Given, session: AsyncSession) -> None:
        await session.rollback()
        await session.execute(WORK.insert().values(of=message.id))

    with pytest.raises(RuntimeError, match="has ended its transaction"):
        handle(Given("a"))
    with pytest.raises(RuntimeError, match="has ended its transaction"):
        await calmly(Given("a"))
    await calm.dispose()
    assert done(engine) == []


def test_a_savepoint_of_a_handler_is_its_own(engine: sql.Engine) -> None:
    @idempotent(sessionmaker(engine), group="g")
    def handle(message: Given, session: Session) -> str:
        with session.begin_nested():
            session.execute(WORK.insert().values(of="kept"))
        with suppress(KeyError), session.begin_nested():
            session.execute(WORK.insert().values(of="not"))
            raise KeyError
        return "done"

    assert handle(Given("a")) == "done"
    assert handle(Given("a")) is None
    assert done(engine) == ["kept"]


def test_two_at_the_same_time_meet_at_the_row_and_one_works(engine: sql.Engine) -> None:
    inside, go = threading.Event(), threading.Event()
    results: list[Any] = []

    @idempotent(sessionmaker(engine), group="g")
    def handle(message: Given, session: Session) -> str:
        session.execute(WORK.insert().values(of=message.id))
        inside.set()
        assert go.wait(30)
        return "done"

    def call() -> None:
        results.append(handle(Given("both")))

    first = threading.Thread(target=call)
    first.start()
    assert inside.wait(30)
    second = threading.Thread(target=call)
    second.start()
    go.set()
    first.join()
    second.join()

    assert sorted(results, key=str) == [None, "done"]
    assert done(engine) == ["both"]


def test_what_is_over_may_be_handled_again_and_is_forgotten(engine: sql.Engine) -> None:
    @idempotent(sessionmaker(engine), group="g", keep_seconds=1e-9)
    def handle(message: Given, session: Session) -> None:
        session.execute(WORK.insert().values(of=message.id))

    handle(Given("a"))
    handle(Given("a"))
    assert done(engine) == ["a", "a"]
    with engine.begin() as connection:
        assert forget(connection) == 1


async def test_the_middleware_s_store_knows_what_was_handled(engine: sql.Engine) -> None:
    """One table for both: who changes from the one to the other handles nothing again."""

    @idempotent(sessionmaker(engine), group="g")
    def handle(message: Given, session: Session) -> str:
        return "done"

    store = SqlStore(engine)
    assert Idempotent(store, key=identity) is not None
    assert handle(Given("a")) == "done"
    assert (await store.claim(claim_id("g", "a"), "me", 10)).state.value == "done"
    assert (await store.claim(claim_id("g", "b"), "me", 10)).state.value == "new"
    assert handle(Given("b")) == "done"
    assert (await store.claim(claim_id("g", "b"), "me", 10)).state.value == "done"


def test_without_a_worker_the_group_must_be_said(engine: sql.Engine) -> None:
    @idempotent(sessionmaker(engine))
    def handle(message: Given, session: Session) -> None: ...

    with pytest.raises(TypeError, match="say it"):
        handle(Given("a"))
    with pytest.raises(ValueError, match="positive"):
        idempotent(sessionmaker(engine), keep_seconds=0)


def test_sessions_of_the_other_kind_are_refused_where_they_are_written(engine: sql.Engine) -> None:
    """Each message would fail of it."""

    async def calmly(message: Given, session: Any) -> None: ...

    def handle(message: Given, session: Any) -> None: ...

    refused: Any = idempotent
    with pytest.raises(TypeError, match="for an async handler"):
        refused(sessionmaker(engine))(calmly)
    with pytest.raises(TypeError, match="for an async handler"):
        refused(async_sessionmaker())(handle)
    with pytest.raises(TypeError, match="takes a plain engine"):
        SqlStore(cast("Any", create_async_engine("sqlite+aiosqlite://")))
