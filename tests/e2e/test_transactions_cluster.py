"""Transactions in a real cluster: the master that has the half messages is killed, and another one goes on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from e2e.clusters import Cluster
from e2e.queues import run_command, wait_until
from tidemill import Client, ClientSettings, PendingTransaction

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 60.0
QUICK = {
    "TIDEMILL_TRANSACTION_CHECK_AFTER_MS": "1000",
    "TIDEMILL_TRANSACTION_CHECK_INTERVAL_MS": "500",
    "TIDEMILL_TRANSACTION_CHECKS_MAX": "10000",
}
SETTINGS = ClientSettings(send_timeout_s=PATIENCE_SECONDS, backoff_max_s=0.2, routes_cache=False)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster", 2, 1, settings=QUICK).start()
    yield made
    made.close()


def led(cluster: Cluster, name: str) -> dict[str, Any]:
    """As meta sees it; nothing while nobody says."""
    with suppress(OSError, ValueError, StopIteration):
        return cluster.group(name)
    return {"in_sync": [], "epoch": 0}


def wait_in_sync(cluster: Cluster, name: str) -> None:
    wait_until("both are in sync", lambda: len(led(cluster, name)["in_sync"]) == 2, PATIENCE_SECONDS)


def listed(cluster: Cluster) -> list[dict[str, Any]]:
    done = run_command("transactions", "list", "--output", "json", server=cluster.server)
    return [json.loads(line) for line in done.stdout.splitlines()]


def wait_for_another_master(cluster: Cluster, name: str) -> None:
    """Kill the master, and see that the slave leads."""
    known = cluster.group(name)
    os.kill(cluster.children()[known["master"]], signal.SIGKILL)
    wait_until("another leads", lambda: led(cluster, name)["epoch"] > known["epoch"], PATIENCE_SECONDS)


async def seen(mq: Client, subject: str) -> list[bytes]:
    return [message.body async for message in mq.browse(subject)]


async def test_half_messages_outlive_their_master_and_their_producer(cluster: Cluster) -> None:
    for name in ("g0", "g1"):
        await asyncio.to_thread(wait_in_sync, cluster, name)
    asked: asyncio.Queue[PendingTransaction] = asyncio.Queue()
    decided: set[str] = set()
    async with Client(cluster.server, settings=SETTINGS) as mq:
        tx, gone = mq.transaction(group="shop"), mq.transaction(group="shop")
        await tx.send("order.paid", b"one")
        await tx.send("order.paid", b"two")
        async with Client(cluster.server, settings=SETTINGS) as dying:
            left = dying.transaction(group="shop")
            await left.send("order.paid", b"three")
        await gone.send("order.paid", b"never")
        rows = await asyncio.to_thread(listed, cluster)
        assert {row["id"] for row in rows} == {tx.id, left.id, gone.id}
        home = next(str(row["broker"]) for row in rows if row["id"] == tx.id)
        await asyncio.to_thread(wait_for_another_master, cluster, home)

        assert await tx.commit() == 2
        await gone.rollback()
        assert sorted(await seen(mq, "order.paid")) == [b"one", b"two"]

        @mq.check_back(group="shop")
        async def what_became(transaction: PendingTransaction) -> Any:
            asked.put_nowait(transaction)
            decided.add(transaction.id)
            return "commit"

        async with asyncio.timeout(PATIENCE_SECONDS):
            one = await asked.get()
        assert (one.id, [message.body for message in one.messages]) == (left.id, [b"three"])
        await asyncio.to_thread(wait_until, "it is decided", lambda: listed(cluster) == [], PATIENCE_SECONDS)
        assert sorted(await seen(mq, "order.paid")) == [b"one", b"three", b"two"]
        assert decided == {left.id}
