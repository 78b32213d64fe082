"""Programs that write orders and messages in one transaction, on three databases, and die where they are told to.

Each is a process of its own, forked from one that has imported everything: starting Python anew for each of so many
deaths would take most of the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import sqlalchemy as sql
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session

from samples.mariadb import MariaDb, mariadb
from samples.postgres import Postgres, postgres
from tidemill import Client, ClientSettings
from tidemill.outbox import Outbox, Pace, tables
from tidemill.outbox.blocking import Outbox as BlockingOutbox

SEND_SECONDS = 1.0
GRACE_SECONDS = 3.0
LEASE_SECONDS = 1.6
LIFE_SECONDS = 30.0
TRANSACTIONS = 6
ROLLED_BACK = 2
"""Of so many transactions, those with number 2 of three roll back."""

ORDERS = sql.Table(
    "orders",
    sql.MetaData(),
    sql.Column("number", sql.BigInteger().with_variant(sql.Integer(), "sqlite"), primary_key=True),
    sql.Column("name", sql.String(64), nullable=False),
)
"""What a shop would have. In the transaction of each order are two messages: it tells which of them committed."""


class Place(NamedTuple):
    """A database: its name, and its address for drivers with and without an event loop."""

    name: str
    calm: str
    plain: str


class Life(NamedTuple):
    """What a program is to do: where, and how it writes or that it only watches; the step at which it dies, and the how
    manieth time.
    """

    place: Place
    server: str
    way: str
    number: int
    step: str = ""
    times: int = 1


@contextlib.contextmanager
def places(folder: str) -> Iterator[dict[str, Place]]:
    """A SQLite, a real PostgreSQL and a real MariaDB."""
    lite = Place("sqlite", f"sqlite+aiosqlite:///{folder}/shop.db", f"sqlite:///{folder}/shop.db")
    with postgres() as server, mariadb() as other:
        found = [lite]
        for name, calm in (("postgresql", empty_database(server)), ("mariadb", empty_database(other))):
            plain = calm.replace("+asyncpg:", "+psycopg:").replace("+asyncmy:", "+pymysql:")
            found.append(Place(name, calm, plain))
        yield {place.name: place for place in found}


def empty_database(server: Postgres | MariaDb) -> str:
    """The address of a new one, for a driver with an event loop."""
    if isinstance(server, Postgres):
        return f"postgresql+asyncpg://{server.url('shop').partition('://')[2]}"
    engine = sql.create_engine(f"mysql+pymysql://root@/?unix_socket={server.socket}")
    with engine.begin() as connection:
        connection.execute(sql.text("CREATE DATABASE shop"))
    engine.dispose()
    return f"mysql+asyncmy://root@/shop?unix_socket={server.socket}"


def pace(life: Life) -> Pace:
    """A hurried one, that kills."""
    seen: Counter[str] = Counter()

    def reached(step: str) -> None:
        seen[step] += 1
        if step == life.step and seen[step] == life.times:
            os.kill(os.getpid(), signal.SIGKILL)

    return Pace(poll_s=0.05, grace_s=GRACE_SECONDS, lease_s=LEASE_SECONDS, retry_s=0.1, reached=reached)


def live(life: Life) -> None:
    """A program's whole life. One that was to die and did not has failed."""
    if life.way in {"async", "watch"}:
        asyncio.run(_live_async(life))
    else:
        _live_plain(life)


def name_of(life: Life, turn: int) -> str:
    return f"{life.number:03}-{turn}"


async def _live_async(life: Life) -> None:
    engine = create_async_engine(life.place.calm)
    reached = pace(life)
    settings = ClientSettings(send_timeout_s=SEND_SECONDS)
    sessions = async_sessionmaker(engine)
    async with Client(life.server, settings=settings) as mq, Outbox(engine, mq, pace=reached) as outbox:
        for turn in range(TRANSACTIONS if life.way == "async" else 0):
            name = name_of(life, turn)
            async with sessions() as session:
                await session.execute(ORDERS.insert().values(name=name))
                reached.reached("before")
                await outbox.send(session, life.place.name, name, key=name, tags={"loose"})
                await outbox.send(session, life.place.name, name, order_key="one", tags={"in order"})
                reached.reached("written")
                await (session.rollback() if turn % 3 == ROLLED_BACK else session.commit())
                reached.reached("committed")
        await asyncio.to_thread(wait_death, life)
    await engine.dispose()


def _live_plain(life: Life) -> None:
    engine = sql.create_engine(life.place.plain)
    reached = pace(life)
    settings = ClientSettings(send_timeout_s=SEND_SECONDS)
    with BlockingOutbox(engine, life.server, pace=reached, settings=settings) as outbox:
        for turn in range(TRANSACTIONS):
            name = name_of(life, turn)
            if life.way == "cursor":
                _order_by_cursor(engine, outbox, life, reached, name)
            else:
                with Session(engine) as session:
                    session.execute(ORDERS.insert().values(name=name))
                    reached.reached("before")
                    outbox.send(session, life.place.name, name, key=name, tags={"loose"})
                    outbox.send(session, life.place.name, name, order_key="one", tags={"in order"})
                    reached.reached("written")
                    (session.rollback if turn % 3 == ROLLED_BACK else session.commit)()
                    reached.reached("committed")
        wait_death(life)
    engine.dispose()


def _order_by_cursor(
    engine: sql.Engine, outbox: BlockingOutbox, life: Life, reached: Pace, name: str
) -> None:
    raw = engine.raw_connection()
    cursor = raw.cursor()
    mark = "?" if life.place.name == "sqlite" else "%s"
    cursor.execute(f"INSERT INTO orders (name) VALUES ({mark})", (name,))
    reached.reached("before")
    written = [
        outbox.send(cursor, life.place.name, name, key=name, tags={"loose"}),
        outbox.send(cursor, life.place.name, name, order_key="one", tags={"in order"}),
    ]
    reached.reached("written")
    (raw.rollback if int(name[-1]) % 3 == ROLLED_BACK else raw.commit)()
    reached.reached("committed")
    outbox.committed(*written)
    raw.close()


def wait_death(life: Life) -> None:
    """Until it dies; or so long that it has failed to."""
    deadline = time.monotonic() + LIFE_SECONDS
    while time.monotonic() < deadline:
        time.sleep(0.02)


PRELOADED = (
    *("pytest", "sqlalchemy.ext.asyncio", "sqlalchemy.orm", "tidemill.outbox.blocking", "tidemill.client"),
    *("sqlalchemy.dialects.postgresql", "sqlalchemy.dialects.mysql", "sqlalchemy.dialects.sqlite"),
    *("asyncpg", "psycopg", "psycopg_binary", "asyncmy", "pymysql", "aiosqlite", "aiohttp", "uuid"),
)
"""What is installed, and nothing of ``tests``: the process that forks does not look there."""


class Nursery:
    """Where programs are forked."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(PRELOADED))

    def begin(self, life: Life) -> BaseProcess:
        process = self._context.Process(target=live, args=(life,))
        process.start()
        return process

    def run(self, life: Life) -> int:
        """To its end; its exit code, negative for a signal."""
        process = self.begin(life)
        process.join(LIFE_SECONDS + 15)
        if process.exitcode is None:
            process.kill()
            process.join()
        assert process.exitcode is not None
        return process.exitcode


async def committed(engine: AsyncEngine) -> list[str]:
    """The names of the orders that are there, in their order."""
    async with engine.connect() as connection:
        found = await connection.execute(sql.select(ORDERS.c.name).order_by(ORDERS.c.number))
        return [str(name) for name in found.scalars()]


async def wait_empty(engine: AsyncEngine, seconds: float = 30.0) -> None:
    """Until nothing is left to be sent."""
    deadline = time.monotonic() + seconds
    counted: Any = sql.select(sql.func.count()).select_from(tables().messages)
    while True:
        async with engine.connect() as connection:
            left = (await connection.execute(counted)).scalar_one()
        if not left:
            return
        assert time.monotonic() < deadline, f"{left} rows are still there"
        await asyncio.sleep(0.05)
