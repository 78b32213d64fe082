"""Who answers for a producer group is asked what became of its transactions."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tidemill import ClientSettings, OutcomeUnknown, PendingTransaction, Refused
from tidemill.blocking import Client as BlockingClient
from tidemill.memory import MemoryBroker
from tidemill.testing import Client
from tidemill_wire.columns import Batch
from tidemill_wire.transacting import Decide, parse_transaction_id

GROUP = "shop"


def stored(broker: MemoryBroker) -> list[bytes]:
    found = broker.subjects.get("a")
    return [] if found is None else [body for batch in found.batches for body in Batch(batch).bodies()]


async def never(_transaction: PendingTransaction) -> Any:
    raise AssertionError


@pytest.mark.parametrize(("outcome", "left"), [("commit", [b"one"]), ("rollback", [])])
async def test_another_client_of_the_producer_group_is_asked(outcome: Any, left: list[bytes]) -> None:
    broker = MemoryBroker()
    broker.transactions.check_after_s = 0.001
    asked: list[PendingTransaction] = []
    decided = asyncio.Event()
    async with Client(broker) as dying:
        tx = dying.transaction(group=GROUP)
        identity = await tx.send("a", "one", key="o-1", tags={"t"}, properties={"n": 1})
    heir = Client(broker)

    @heir.check_back(group=GROUP)
    async def what_became(transaction: PendingTransaction) -> Any:
        asked.append(transaction)
        decided.set()
        return outcome

    async with heir:
        await decided.wait()
        while broker.transactions.pending:  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0)
    assert stored(broker) == left
    [one] = asked
    [message] = one.messages
    assert (one.id, one.group, one.checks, message.id) == (tx.id, GROUP, 1, identity)
    assert (message.subject, message.body, message.key) == ("a", b"one", "o-1")
    assert (message.tags, message.properties) == ({"t"}, {"n": 1})


async def test_handler_that_fails_or_does_not_know_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    broker = MemoryBroker()
    broker.transactions.check_after_s = broker.transactions.check_interval_s = 0.001
    answers: list[Any] = [KeyError("no"), "unknown", "perhaps", "commit"]
    async with Client(broker) as dying:
        await dying.transaction(group=GROUP).send("a", "one")
    async with Client(broker) as mq:

        @mq.check_back(group=GROUP)
        async def what_became(transaction: PendingTransaction) -> Any:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        while broker.transactions.pending:  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0)
    assert stored(broker) == [b"one"]
    assert "check_back_failed" in caplog.text
    assert "returned 'perhaps': return commit, rollback or unknown" in caplog.text


async def test_nobody_is_asked_about_a_block_that_is_open_here() -> None:
    broker = MemoryBroker()
    broker.transactions.check_after_s = broker.transactions.check_interval_s = 0.001
    async with Client(broker) as mq:
        mq.check_back(group=GROUP)(never)
        async with mq.transaction(group=GROUP) as tx:
            await tx.send("a", "one")
            [kept] = broker.transactions.pending.values()
            while kept.checks < 3:  # noqa: ASYNC110 - nobody is told of it
                await asyncio.sleep(0)
    assert stored(broker) == [b"one"]


async def test_producer_group_that_never_answers_is_told_nothing_and_loses_the_transaction() -> None:
    broker = MemoryBroker()
    broker.transactions.check_after_s = broker.transactions.check_interval_s = 0.0
    async with Client(broker) as mq:
        tx = mq.transaction(group=GROUP)
        await tx.send("a", "one")
        while broker.transactions.pending:  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0)
        with pytest.raises(Refused, match="was rolled back"):
            await tx.commit()
    assert parse_transaction_id(tx.id) in broker.transactions.decided


async def test_client_answers_at_all_broker_groups(town: Any, until: Any) -> None:
    async with town(2) as realm, realm.client() as mq:
        realm.realm.route("a", "g0", "g1")
        mq.check_back(group=GROUP)(commit)
        for place in realm.places.values():
            place.broker.transactions.check_after_s = 0.001
        async with realm.client() as dying:
            for _ in range(8):
                await dying.transaction(group=GROUP).send("a", "x")
        await until(lambda: sum(len(realm.stored(group)) for group in ("g0", "g1")) == 8)
        assert all(realm.stored(group) for group in ("g0", "g1"))


async def commit(_transaction: PendingTransaction) -> Any:
    return "commit"


@pytest.mark.parametrize("text", ["", "1234", "7" * 16, "G" * 16, "8" * 17])
def test_text_that_is_no_transaction_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no transaction"):
        parse_transaction_id(text)


def test_blocking_client_answers_for_its_producer_group_in_a_thread() -> None:
    """Also for itself, when nobody told it what became of its commit."""
    broker = MemoryBroker()
    broker.transactions.check_after_s = broker.transactions.check_interval_s = 0.01
    threads: list[str] = []
    committed = threading.Event()
    original = broker.transactions.handle

    def deaf(peer: Any, correlation: int, command: Any) -> None:
        if not isinstance(command, Decide):
            original(peer, correlation, command)

    settings = ClientSettings(send_timeout_s=0.1, backoff_max_s=0.01)
    with BlockingClient(make=lambda: Client(broker, settings=settings)) as mq:

        @mq.check_back(group=GROUP)
        def what_became(transaction: PendingTransaction) -> Any:
            threads.append(threading.current_thread().name)
            broker.transactions.handle = original  # type: ignore[method-assign]
            committed.set()
            return "commit"

        tx = mq.transaction(group=GROUP)
        tx.send("a", "one")
        broker.transactions.handle = deaf  # type: ignore[method-assign]
        with pytest.raises(OutcomeUnknown):
            tx.commit()
        assert committed.wait(10)
        with mq.consume("a", group="g") as messages:
            assert next(iter(messages)).body == b"one"
    assert all(name != "tidemill" for name in threads)
