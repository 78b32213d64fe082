"""A transaction's messages are seen together when its block ends, and never when an exception leaves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tidemill import BrokerUnreachable, ClientSettings, OutcomeUnknown, PendingTransaction, Refused
from tidemill.blocking import Client as BlockingClient
from tidemill.memory import MemoryBroker
from tidemill.testing import Client
from tidemill_wire import limits
from tidemill_wire.columns import Batch
from tidemill_wire.commands import Command
from tidemill_wire.transacting import Decide, Half, Verdict, parse_transaction_id

GROUP = "shop"


def stored(broker: MemoryBroker, subject: str = "a") -> list[bytes]:
    found = broker.subjects.get(subject)
    return [] if found is None else [body for batch in found.batches for body in Batch(batch).bodies()]


async def test_messages_are_stored_when_the_block_ends() -> None:
    async with Client() as mq:
        async with mq.transaction(group=GROUP) as tx:
            first = await tx.send("a", "one", key="k", tags={"t"}, properties={"n": 1})
            more = await tx.send_many("b", ["two", "three"], priority=3)
            assert stored(mq.broker) == stored(mq.broker, "b") == []
            assert len({first, *more}) == 3
        assert stored(mq.broker) == [b"one"]

        async with mq.consume(["a", "b"], group="g") as messages:
            found = {message.id: message async for message in first_of(messages, 3)}
        assert set(found) == {first, *more}
        one = found[first]
        assert (one.key, one.tags, one.properties) == ("k", {"t"}, {"n": 1})
        assert [found[identity].body for identity in more] == [b"two", b"three"]


async def first_of(messages: Any, count: int) -> AsyncIterator[Any]:
    async for message in messages:
        yield message
        count -= 1
        if not count:
            return


async def test_exception_rolls_back() -> None:
    async with Client() as mq:
        with pytest.raises(KeyError):
            async with mq.transaction(group=GROUP) as tx:
                await tx.send("a", "one")
                raise KeyError
        assert stored(mq.broker) == []
        assert [verdict for verdict, _ in mq.broker.transactions.decided.values()] == [Verdict.ROLLBACK]


async def test_cancelled_block_rolls_back() -> None:
    async with Client() as mq:

        async def block() -> None:
            async with mq.transaction(group=GROUP) as tx:
                await tx.send("a", "one")
                await asyncio.Event().wait()

        task = asyncio.create_task(block())
        while not mq.broker.transactions.pending:  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [verdict for verdict, _ in mq.broker.transactions.decided.values()] == [Verdict.ROLLBACK]


async def test_transaction_without_messages_asks_nobody() -> None:
    async with Client() as mq:
        async with mq.transaction(group=GROUP):
            pass
        with pytest.raises(KeyError):
            async with mq.transaction(group=GROUP):
                raise KeyError
        assert mq.broker.transactions.decided == {}
        assert not mq.broker.peers


async def test_block_may_decide_by_itself_and_nothing_is_sent_afterwards() -> None:
    async with Client() as mq:
        async with mq.transaction(group=GROUP) as tx:
            await tx.send("a", "one")
            assert await tx.commit() == 1
            assert await tx.commit() == 0
            with pytest.raises(Refused, match="has ended with commit"):
                await tx.send("a", "two")
            with pytest.raises(Refused, match="has ended with commit"):
                await tx.rollback()
        async with mq.transaction(group=GROUP) as tx:
            await tx.send("a", "two")
            await tx.rollback()
            with pytest.raises(Refused, match="has ended with rollback"):
                await tx.commit()
        assert stored(mq.broker) == [b"one"]


async def test_transaction_whose_send_failed_is_not_committed() -> None:
    async with Client() as mq:
        with pytest.raises(Refused, match="1024 are the limit"):
            async with mq.transaction(group=GROUP) as tx:
                await tx.send("a", "one", key="k" * 2000)

        original = mq.broker.transactions.handle

        def refusing(peer: Any, correlation: int, command: Any) -> None:
            if isinstance(command, Half):
                peer.fail(correlation, "message_too_large", "no")
            else:
                original(peer, correlation, command)

        tx = mq.transaction(group=GROUP)
        await tx.send("a", "one")
        mq.broker.transactions.handle = refusing  # type: ignore[method-assign]
        with pytest.raises(Refused, match="no"):
            await tx.send("a", "two")
        with pytest.raises(Refused, match="no"):
            await tx.commit()
        assert stored(mq.broker) == []
        assert mq.broker.transactions.pending == {}


async def test_transaction_has_so_many_sends_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Client() as mq:
        monkeypatch.setattr(limits, "TRANSACTION_BATCHES_MAX", 2)
        async with mq.transaction(group=GROUP) as tx:
            await tx.send("a", "one")
            await tx.send("a", "two")
            with pytest.raises(Refused, match="2 sends at most"):
                await tx.send("a", "three")
        assert stored(mq.broker) == [b"one", b"two"]


async def test_what_is_sent_side_by_side_is_committed() -> None:
    async with Client() as mq:
        async with mq.transaction(group=GROUP) as tx:
            await asyncio.gather(*(tx.send("a", f"{number}") for number in range(10)))
        assert stored(mq.broker) == [b"%d" % number for number in range(10)]


async def test_commit_while_a_send_is_under_way_is_refused() -> None:
    async with Client() as mq:
        tx = mq.transaction(group=GROUP)
        await tx.send("a", "one")
        late = asyncio.create_task(tx.send("a", "two"))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="await that first"):
            await tx.commit()
        await asyncio.gather(late, return_exceptions=True)
        assert stored(mq.broker) == []


async def test_wrong_names_are_refused_at_once() -> None:
    async with Client() as mq:
        with pytest.raises(Refused, match="no group name"):
            mq.transaction(group="a b")
        with pytest.raises(Refused, match="no subject name"):
            async with mq.transaction(group=GROUP) as tx:
                await tx.send("a b", "x")
        with pytest.raises(Refused, match="no group name"):
            mq.check_back(group="a b")(never)


async def never(_transaction: PendingTransaction) -> Any:
    raise AssertionError


# -- connections -----------------------------------------------------------------------------------------------


def said(place: Any, kind: type[Command]) -> list[Any]:
    return [command for command in place.broker.said if isinstance(command, kind)]


async def test_half_messages_and_decisions_are_said_again_over_a_new_connection(
    serve: Any, until: Any
) -> None:
    async with serve() as place, place.client() as mq:
        place.broker.answers = False
        async with asyncio.TaskGroup() as group:
            tx = mq.transaction(group=GROUP)

            async def block() -> None:
                async with tx:
                    await tx.send("a", "one")

            group.create_task(block())
            await until(lambda: place.broker.peers)
            place.broker.answers = True
            place.drop()
            await until(lambda: said(place, Half))
            place.broker.answers = False
            place.drop()
            place.broker.answers = True
        assert len(said(place, Half)) >= 1
        assert stored(place.broker) == [b"one"]


async def test_lost_answer_of_a_commit_is_asked_for_again(serve: Any, until: Any) -> None:
    async with serve() as place, place.client() as mq:
        tx = mq.transaction(group=GROUP)
        await tx.send("a", "one")
        place.broker.answers = False
        committing = asyncio.create_task(tx.commit())
        await until(lambda: said(place, Decide))
        place.broker.answers = True
        place.drop()

        assert await committing == 1
        assert len(said(place, Decide)) == 2
        assert stored(place.broker) == [b"one"]


async def test_commit_that_nobody_answers_is_not_known(serve: Any, until: Any) -> None:
    settings = ClientSettings(backoff_max_s=0.05, send_timeout_s=0.2)
    async with serve() as place, place.client(settings=settings) as mq:
        tx = mq.transaction(group=GROUP)
        await tx.send("a", "one")
        place.broker.answers = False
        with pytest.raises(OutcomeUnknown, match=f"whether transaction {tx.id} was ended with commit"):
            await tx.commit()
        with pytest.raises(Refused, match="has ended with unknown"):
            await tx.rollback()


async def test_transaction_cannot_begin_where_no_broker_is(serve: Any) -> None:
    settings = ClientSettings(backoff_max_s=0.05, send_timeout_s=0.2)
    async with serve() as place, place.client(settings=settings) as mq:
        await place.stop()
        with pytest.raises(BrokerUnreachable):
            async with mq.transaction(group=GROUP) as tx:
                await tx.send("a", "one")
        await place.start()


async def test_all_of_a_transaction_lies_on_one_broker_group(town: Any) -> None:
    async with town(2) as realm, realm.client() as mq:
        realm.realm.route("a", "g0", "g1")
        realm.realm.route("b", "g0", "g1")
        realm.realm.route("c", "g1")
        for _ in range(8):
            async with mq.transaction(group=GROUP) as tx:
                await tx.send("a", "x")
                await tx.send("b", "y")
        assert sum(len(realm.stored(group)) for group in ("g0", "g1")) == 8
        for group in ("g0", "g1"):
            assert len(realm.stored(group)) == len(realm.stored(group, "b"))

        while True:
            tx = mq.transaction(group=GROUP)
            await tx.send("a", "z")
            if realm.places["g0"].broker.transactions.pending:
                break
            await tx.rollback()
        with pytest.raises(Refused, match="'c' is not on broker group g0"):
            await tx.send("c", "z")


# -- by a person -----------------------------------------------------------------------------------------------


async def test_pending_transactions_are_listed_and_decided_in_their_producers_stead() -> None:
    async with Client() as mq:
        first, second = mq.transaction(group=GROUP), mq.transaction(group="other")
        await first.send("a", "one")
        await second.send_many("b", ["two", "three"])
        found = await mq.undecided()
        assert [(row["id"], row["group"], row["broker"], row["messages"]) for row in found.rows] == [
            (first.id, GROUP, "g0", 1),
            (second.id, "other", "g0", 2),
        ]
        assert (found.pending, found.away) == (2, [])

        assert await mq.decide(second.id, "commit") == 2
        assert await mq.decide(first.id, "rollback") == 0
        assert (await mq.undecided()).rows == []
        with pytest.raises(Refused, match="was rolled back"):
            await mq.decide(first.id, "commit")
        with pytest.raises(Refused, match="is not here, or was decided long ago"):
            await mq.decide("8" * 16, "commit")
        with pytest.raises(ValueError, match="is no transaction"):
            await mq.decide("17", "commit")
        assert (stored(mq.broker), stored(mq.broker, "b")) == ([], [b"two", b"three"])


# -- without an event loop -------------------------------------------------------------------------------------


def blocking(broker: MemoryBroker) -> BlockingClient:
    return BlockingClient(make=lambda: Client(broker))


def test_blocking_client_has_transactions() -> None:
    broker = MemoryBroker()
    with blocking(broker) as mq:
        with mq.transaction(group=GROUP) as tx:
            tx.send("a", "one")
            tx.send_many("a", ["two"])
            assert stored(broker) == []
        with pytest.raises(KeyError), mq.transaction(group=GROUP) as gone:
            gone.send("a", "three")
            raise KeyError
        assert parse_transaction_id(tx.id) != parse_transaction_id(gone.id)
    assert stored(broker) == [b"one", b"two"]


async def test_transaction_goes_on_where_it_began_while_its_broker_group_takes_nothing(
    town: Any, until: Any
) -> None:
    """Its group gets another master, and the other one takes messages meanwhile: neither is it sent there, nor is it
    said that the subject is not where it lies.
    """
    async with town(groups=2) as t, t.client() as mq:
        t.realm.route("a", "g0", "g1")
        async with mq.transaction(group=GROUP) as tx:
            await tx.send("a", "one")
            home = tx._home
            t.realm.serve(home, t.places[home].port, state="R")
            await until(lambda: mq._router.atlas.brokers[home].state == "R")
            await tx.send("a", "two")
        assert t.stored(home) == [b"one", b"two"]
