"""Transactions with a real broker that is killed between half message and commit, and real producers that die."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.asking import post
from e2e.conftest import MakeQueue
from e2e.queues import Queue, run_command
from e2e.services import environment
from tidemill import Client, ClientSettings, PendingTransaction, Refused

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).parents[2] / "docs" / "transactions.md"
QUICK = {
    "TIDEMILL_TRANSACTION_CHECK_AFTER_MS": "200",
    "TIDEMILL_TRANSACTION_CHECK_INTERVAL_MS": "200",
    "TIDEMILL_TRANSACTION_CHECKS_MAX": "1000",
}
SETTINGS = ClientSettings(send_timeout_s=60.0, backoff_max_s=0.2)
DYING = """
import asyncio, os, sys
from tidemill import Client

async def main():
    async with Client(sys.argv[1]) as mq:
        tx = mq.transaction(group="shop")
        await tx.send("order.paid", b"of a dead one", key=sys.argv[2])
        print(tx.id, flush=True)
        os._exit(9)

asyncio.run(main())
"""


def client(queue: Queue) -> Client:
    return Client(queue.server, settings=SETTINGS)


async def wait_for(holds: Callable[[], object]) -> None:
    """Poll until it is so."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - another process tells nobody
            await asyncio.sleep(0.02)


async def seen(mq: Client, subject: str) -> list[bytes]:
    return [message.body async for message in mq.browse(subject)]


async def test_broker_is_killed_between_half_messages_and_their_commit(make_queue: MakeQueue) -> None:
    queue = make_queue().start()
    async with client(queue) as mq:
        await mq.send("order.paid", b"before")
        async with mq.transaction(group="shop") as tx:
            await tx.send("order.paid", b"one")
            await tx.send("order.shipped", b"two")
            queue.kill()
            queue.start()
            assert await seen(mq, "order.paid") == [b"before"]
        assert await seen(mq, "order.paid") == [b"before", b"one"]
        assert await seen(mq, "order.shipped") == [b"two"]

        gone = mq.transaction(group="shop")
        await gone.send("order.paid", b"never")
        await gone.rollback()
        queue.kill()
        queue.start()
        assert await seen(mq, "order.paid") == [b"before", b"one"]
        subjects = {str(row["name"]) for row in queue.get("/v1/subjects")}
        assert subjects == {"order.paid", "order.shipped"}


async def test_commits_under_kills_are_done_once_or_not_at_all(make_queue: MakeQueue) -> None:
    queue = make_queue().start()
    committed: list[bytes] = []
    over = asyncio.Event()

    async def produce(mq: Client, lane: int) -> None:
        number = 0
        while not over.is_set():
            body = f"{lane}/{number}".encode()
            number += 1
            tx = mq.transaction(group="shop")
            await tx.send("order.paid", body)
            if number % 3:
                await tx.commit()
                committed.append(body)
            else:
                await tx.rollback()

    async with client(queue) as mq:
        async with asyncio.TaskGroup() as tasks:
            for lane in range(8):
                tasks.create_task(produce(mq, lane))
            for _ in range(4):
                more = len(committed) + 20
                await wait_for(lambda more=more: len(committed) >= more)  # type: ignore[misc]
                await asyncio.to_thread(queue.kill)
                await asyncio.to_thread(queue.start)
            over.set()
        assert sorted(await seen(mq, "order.paid")) == sorted(committed)
        assert len(set(committed)) == len(committed)


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
async def test_another_process_decides_for_one_that_was_killed(make_queue: MakeQueue, outcome: Any) -> None:
    queue = make_queue(settings=QUICK).start()
    died = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", DYING, queue.server, "o-17"], capture_output=True, env=environment({}),
        timeout=60, check=False,
    )  # fmt: skip
    assert died.returncode == 9, died.stderr
    queue.kill()
    queue.start()
    asked: asyncio.Queue[PendingTransaction] = asyncio.Queue()
    mq = client(queue)

    @mq.check_back(group="shop")
    async def what_became(transaction: PendingTransaction) -> Any:
        asked.put_nowait(transaction)
        return outcome

    async with mq:
        async with asyncio.timeout(60):
            one = await asked.get()
        assert (one.id, one.messages[0].key) == (died.stdout.decode().strip(), "o-17")
        await wait_for(lambda: not queue.metrics()["tidemill_transactions_pending"])
        left = [b"of a dead one"] if outcome == "commit" else []
        async with asyncio.timeout(60):  # what is committed is seen when it is on the disk
            while await seen(mq, "order.paid") != left:
                pass


async def test_silence_ends_a_transaction(make_queue: MakeQueue) -> None:
    queue = make_queue(settings=QUICK | {"TIDEMILL_TRANSACTION_CHECKS_MAX": "2"}).start()
    async with client(queue) as mq:
        tx = mq.transaction(group="shop")
        await tx.send("order.paid", b"x")
        await wait_for(lambda: queue.metrics()["tidemill_transactions_silent_total"])
        with pytest.raises(Refused, match="nobody of its producer group said in time"):
            await tx.commit()


def test_program_of_the_document_runs(make_queue: MakeQueue, tmp_path: Path) -> None:
    queue = make_queue().start()
    [program] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    program = re.sub(r"Client\(.*?\)", f"Client({queue.server!r})", program)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env=environment({}), timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    [message] = queue.get("/v1/subjects/order.paid/messages")["messages"]
    assert message["key"] == "o-17"


def rows(queue: Queue, *options: str) -> list[dict[str, Any]]:
    done = run_command("transactions", "list", "--output", "json", *options, server=queue.server)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


async def test_person_lists_and_decides(make_queue: MakeQueue) -> None:
    queue = make_queue().start()
    async with client(queue) as mq:
        first, second = mq.transaction(group="shop"), mq.transaction(group="bar")
        await first.send("order.paid", b"one")
        await first.send("order.shipped", b"two")
        await second.send("order.paid", b"three")
        found = await asyncio.to_thread(rows, queue)
        assert [(row["id"], row["group"], row["messages"]) for row in found] == [
            (first.id, "shop", 2),
            (second.id, "bar", 1),
        ]
        assert found[0]["subjects"] == ["order.paid", "order.shipped"]
        assert [row["id"] for row in await asyncio.to_thread(rows, queue, "--group", "bar")] == [second.id]

        done = await asyncio.to_thread(
            run_command, "transactions", "commit", first.id, "--output", "json", server=queue.server
        )
        assert json.loads(done.stdout) == {"id": first.id, "outcome": "commit", "messages": 2}
        again = await asyncio.to_thread(run_command, "transactions", "commit", first.id, server=queue.server)
        assert again.stdout == f"Transaction {first.id} is committed: 2 messages.\n"
        wrong = await asyncio.to_thread(
            run_command, "transactions", "rollback", first.id, server=queue.server
        )
        assert (wrong.returncode, "was committed" in wrong.stderr) == (1, True)
        gone = await asyncio.to_thread(
            run_command, "transactions", "rollback", second.id, server=queue.server
        )
        assert gone.stdout == f"Transaction {second.id} is rolled back.\n"
        assert await asyncio.to_thread(rows, queue) == []
        assert await first.commit() == 2, "it is, already"
        assert await seen(mq, "order.paid") == [b"one"]
        unknown = await asyncio.to_thread(
            run_command, "transactions", "commit", "8" * 16, server=queue.server
        )
        assert "is not here, or was decided long ago" in unknown.stderr


async def test_transactions_are_listed_and_decided_over_http(make_queue: MakeQueue) -> None:
    queue = make_queue().start()
    async with client(queue) as mq:
        tx = mq.transaction(group="shop")
        await tx.send("order.paid", b"one")
        listed = queue.get("/v1/transactions")
        assert (listed["pending"], listed["transactions"][0]["id"]) == (1, tx.id)
        path = f"/v1/transactions/{tx.id}"
        assert (await asyncio.to_thread(post, queue, f"{path}/commit", None)).value == {"count": 1}
        late = await asyncio.to_thread(post, queue, f"{path}/rollback", None)
        assert (late.status, late.code) == (409, "transaction_decided")
        none = await asyncio.to_thread(post, queue, f"/v1/transactions/{'8' * 16}/commit", None)
        assert (none.status, none.code) == (404, "unknown_transaction")
        wrong = await asyncio.to_thread(post, queue, "/v1/transactions/7/commit", None)
        assert wrong.status == 400
        assert await seen(mq, "order.paid") == [b"one"]
