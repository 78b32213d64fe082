"""Idempotency stores: all of them agree with a model of a few lines, and at least once plus a store is once."""

from __future__ import annotations

import asyncio
import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, create_engine, func, select

from samples.postgres import postgres
from tidemill import Idempotent, Reject, Worker
from tidemill.testing import Client, running
from tidemill.worker import Claim, MemoryStore, RedisStore, SqlStore, State
from tidemill.worker.idempotence import claim_id

TTL, KEEP = 10.0, 100.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeRedis:
    """``SET NX EX``, ``GET`` and ``DELETE`` of a Redis, on a clock of the test's. Nothing else is modelled."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.values: dict[str, tuple[bytes, float]] = {}

    async def set(self, name, value, *, nx=False, ex=None):
        if nx and await self.get(name) is not None:
            return None
        self.values[name] = value.encode(), self.clock.now + ex if ex else float("inf")
        return True

    async def get(self, name):
        value, until = self.values.get(name, (None, 0.0))
        return value if self.clock.now < until else None

    async def delete(self, name):
        return 1 if self.values.pop(name, None) else 0


class Model:
    """What every store must answer."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.entries: dict[str, tuple[str, float]] = {}

    def claim(self, key, owner):
        held, until = self.entries.get(key, ("", 0.0))
        if self.clock.now < until:
            return Claim(State.DONE) if held == "done" else Claim(State.IN_PROGRESS, until - self.clock.now)
        self.entries[key] = owner, self.clock.now + TTL
        return Claim(State.NEW)

    def finish(self, key):
        self.entries[key] = "done", self.clock.now + KEEP

    def release(self, key, owner):
        held, until = self.entries.get(key, ("", 0.0))
        if held == owner and self.clock.now < until:
            del self.entries[key]


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["claim", "finish", "release"]), st.sampled_from("ab"), st.sampled_from("xyz")
        ),
        st.tuples(st.just("pass"), st.integers(1, 60), st.none()),
    ),
    max_size=30,
)


async def agrees(store, clock, steps) -> None:
    model = Model(clock)
    for step, one, owner in steps:
        match step:
            case "pass":
                clock.now += one
            case "claim":
                found, wanted = await store.claim(one, owner, TTL), model.claim(one, owner)
                assert found.state is wanted.state
                assert found.seconds == pytest.approx(wanted.seconds)
            case "finish":
                await store.finish(one, owner, KEEP)
                model.finish(one)
            case _:
                await store.release(one, owner)
                model.release(one, owner)


@given(STEPS)
def test_the_store_in_memory_agrees_with_the_model(steps) -> None:
    clock = Clock()
    asyncio.run(agrees(MemoryStore(now=clock), clock, steps))


@given(STEPS)
def test_the_store_of_redis_agrees_with_the_model(steps) -> None:
    clock = Clock()
    asyncio.run(agrees(RedisStore(FakeRedis(clock), now=clock), clock, steps))


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory):
    engine = create_engine(f"sqlite:///{tmp_path_factory.mktemp('sqlite') / 'claims.db'}")
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def postgresql():
    with postgres() as server:
        engine = create_engine(server.url("claims").replace("postgresql://", "postgresql+psycopg://"))
        yield engine
        engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.getfixturevalue(request.param)
    return found


def fresh() -> str:
    return f"claims_{uuid.uuid4().hex}"


@pytest.mark.parametrize("seed", range(3))
async def test_a_table_agrees_with_the_model(engine: Engine, seed: int) -> None:
    chance = random.Random(seed)
    steps = [
        chance.choice(
            [
                (chance.choice(["claim", "finish", "release"]), chance.choice("ab"), chance.choice("xyz")),
                ("pass", chance.randint(1, 60), None),
            ]
        )
        for _ in range(150)
    ]
    clock = Clock()
    await agrees(SqlStore(engine, table=fresh(), now=clock), clock, steps)


async def test_of_many_claims_at_once_one_is_new(engine: Engine) -> None:
    stores = [SqlStore(engine, table=name) for name in [fresh()] * 2]
    await stores[0].forget()

    claims = await asyncio.gather(*(stores[n % 2].claim("a", f"o{n}", TTL) for n in range(16)))

    assert [claim.state for claim in claims].count(State.NEW) == 1
    assert {claim.state for claim in claims} == {State.NEW, State.IN_PROGRESS}


async def test_processes_that_begin_together_make_one_table(engine: Engine) -> None:
    """Each looks whether there is one before it makes it; the first message of each would fail else."""
    table = f"claims_{uuid.uuid4().hex}"
    stores = [SqlStore(engine, table=table) for _ in range(8)]
    claims = await asyncio.gather(*(store.claim("k", "me", TTL) for store in stores))
    assert [claim.state for claim in claims].count(State.NEW) == 1


async def test_what_is_over_is_forgotten(engine: Engine) -> None:
    clock = Clock()
    store = SqlStore(engine, table=fresh(), now=clock)
    await store.claim("a", "x", TTL)
    await store.finish("b", "x", KEEP)
    clock.now += 2 * TTL

    assert await store.forget() == 1
    assert (await store.claim("b", "x", TTL)).state is State.DONE


async def test_work_and_finish_in_one_transaction_are_both_there_or_neither(engine: Engine) -> None:
    """A handler that dies within its transaction leaves nothing; one that ends has done it once."""
    store = SqlStore(engine, table=fresh())
    rows = Table(fresh(), MetaData(), Column("id", Integer, primary_key=True), Column("body", String(10)))
    rows.metadata.create_all(engine)
    worker = Worker()
    worker.use(Idempotent(store))
    attempts = []

    @worker.on("a", group="g", retry_after=0)
    def handler(message, context):
        attempts.append(message.attempts)
        with engine.begin() as connection:
            connection.execute(rows.insert().values(body=message.body.decode()))
            store.finish_in(connection, context.values["claim"], KEEP)
            if message.attempts == 0:
                raise OSError("in the middle")

    async with Client() as mq, running(worker, mq) as run:
        await mq.send("a", b"1")
        await run.idle()

    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(rows)).scalar_one() == 1
    assert attempts == [0, 1]


# -- the middleware ------------------------------------------------------------------------------------------------


async def test_what_was_handled_before_is_acknowledged_and_not_handled_again() -> None:
    """As after an ack that got lost: the broker gives it out again."""
    worker = Worker()
    handled = []
    worker.use(Idempotent(MemoryStore(), key=lambda message: message.key or ""))

    @worker.on("a", group="g")
    async def handler(message):
        handled.append(message.body)

    async with Client() as mq, running(worker, mq) as run:
        await mq.send("a", b"1", key="order-1")
        await run.idle()
        await mq.send("a", b"again", key="order-1")
        await run.idle()

    total = worker.statistics().total
    assert (handled, total.handled, total.skipped) == ([b"1"], 1, 1)


async def test_a_failure_releases_its_claim_for_the_next_attempt() -> None:
    worker = Worker()
    worker.use(Idempotent(MemoryStore()))
    attempts = []

    @worker.on("a", group="g", retry_after=0)
    async def handler(message):
        attempts.append(message.attempts)
        if message.attempts == 0:
            raise OSError

    async with Client() as mq, running(worker, mq) as run:
        await mq.send("a", b"1")
        await run.idle()

    assert attempts == [0, 1]


async def test_after_a_crash_between_claim_and_finish_it_is_handled_when_the_ttl_is_over(until) -> None:
    """The first worker claims and is gone; the second one asks again when that claim ends, and not before."""
    clock = Clock()
    store = MemoryStore(now=clock)
    handled = []
    worker = Worker()
    worker.use(Idempotent(store, ttl_seconds=0.2))

    @worker.on("a", group="g")
    async def handler(message):
        handled.append(message.body)

    async with Client() as mq:
        receipt = await mq.send("a", b"1")
        await store.claim(claim_id("g", receipt.id), "who crashed", 0.2)
        async with running(worker, mq) as run:
            await until(lambda: worker.statistics().total.retried == 1)
            assert handled == []
            clock.now += 1
            await until(lambda: handled)
            await run.idle()
    assert handled == [b"1"]


def test_a_claim_shorter_than_its_handler_is_refused() -> None:
    worker = Worker()
    worker.use(Idempotent(MemoryStore(), ttl_seconds=10))

    @worker.on("a", group="g", timeout=10)
    async def handler(message):
        pass

    with pytest.raises(ValueError, match="ttl_seconds longer"):
        asyncio.run(worker.serve())


def test_long_keys_are_told_apart_by_their_hash() -> None:
    one, two = (claim_id("g", "k" * 1000 + end) for end in "12")

    assert one != two
    assert len(one) <= 255
    assert claim_id("g", "k") == "g/k"


async def test_a_store_in_memory_forgets_the_oldest() -> None:
    store = MemoryStore(entries_max=2)
    for key in "abc":
        await store.finish(key, "x", KEEP)

    states = [(await store.claim(key, "x", TTL)).state for key in "cba"]

    assert states == [State.DONE, State.DONE, State.NEW]


class Failing(MemoryStore):
    """Its first calls of a kind fail, as with a connection that was cut meanwhile."""

    def __init__(self, **times: int) -> None:
        super().__init__()
        self.times = times

    def fail(self, call: str) -> None:
        self.times[call] = self.times.get(call, 0) - 1
        if self.times[call] >= 0:
            raise ConnectionResetError(f"{call}: the server closed the connection")

    async def finish(self, id, owner, keep_seconds):  # noqa: A002
        self.fail("finish")
        await super().finish(id, owner, keep_seconds)

    async def release(self, id, owner):  # noqa: A002
        self.fail("release")
        await super().release(id, owner)


@pytest.mark.parametrize(
    "raised, count", [(ValueError("no amount"), "failed"), (Reject("never"), "rejected")]
)
async def test_a_store_that_is_away_does_not_hide_what_the_handler_said(raised, count, caplog) -> None:
    worker = Worker()
    worker.use(Idempotent(Failing(release=1)))

    @worker.on("a", group="g", retry_after=3600)
    async def handler(message):
        raise raised

    async with Client() as mq, running(worker, mq) as run:
        await mq.send("a", b"1")
        await run.idle()
        assert run.errors == [raised]
    assert getattr(worker.statistics().total, count) == 1
    assert "claim_not_released g/" in caplog.text


async def test_what_was_handled_is_written_down_at_the_second_try() -> None:
    """Else a pool's old connection would cost the work a second time, when the ttl is over."""
    worker, store = Worker(), Failing(finish=1)
    worker.use(Idempotent(store))

    @worker.on("a", group="g", retry_after=3600)
    async def handler(message):
        pass

    async with Client() as mq, running(worker, mq) as run:
        receipt = await mq.send("a", b"1")
        await run.idle()
    assert worker.statistics().total.handled == 1
    assert (await store.claim(claim_id("g", receipt.id), "me", TTL)).state is State.DONE


async def test_messages_without_a_key_are_not_one() -> None:
    """``key=lambda message: message.key`` would acknowledge all but the first of them, unhandled."""
    worker = Worker()
    worker.use(Idempotent(MemoryStore(), key=lambda message: message.key))

    @worker.on("a", group="g", retry_after=3600)
    async def handler(message):
        pass

    async with Client() as mq, running(worker, mq) as run:
        for key in ("one", None, None):
            await mq.send("a", b"1", key=key)
        await run.idle()
    total = worker.statistics().total
    assert (total.handled, total.failed, total.skipped) == (1, 2, 0)
