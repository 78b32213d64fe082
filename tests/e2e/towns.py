"""Real clusters: replicas of meta and brokers of several groups, each a process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from e2e.conftest import MakeQueue
from e2e.metas import Meta
from e2e.queues import Queue
from tidemill import BrokerUnreachable, Client, LeaseLost, OutcomeUnknown, Unavailable

PATIENCE_SECONDS = 30.0
MANY = 200


class Cluster:
    """``Cluster(make_queue, folder, g0=2, g1=1)``: broker groups, and of how many brokers each is."""

    def __init__(self, make_queue: MakeQueue, folder: Path, **groups: int) -> None:
        self.meta = Meta(folder / "meta")
        self.queues: dict[str, Queue] = {}
        self._make_queue = make_queue
        self._groups = groups

    def start(self) -> Self:
        """All of them, each group with everybody in sync."""
        self.meta.start()
        for group, size in self._groups.items():
            for number in range(size):
                name = f"{group}-{number}"
                known = {
                    "TIDEMILL_NAME": name,
                    "TIDEMILL_REPLICATED": "true",
                    "TIDEMILL_META": self.meta.server,
                }
                self.queues[name] = self._make_queue(name, settings=known).start()
        for group, size in self._groups.items():
            self.wait_group(group, lambda row, size=size: row["master"] and len(row["in_sync"]) == size)
        return self

    def close(self) -> None:
        self.meta.close()

    def group(self, group: str) -> dict[str, Any]:
        rows: list[dict[str, Any]] = self.meta.get("/v1/brokers")
        return next((row for row in rows if row["group"] == group), {"master": "", "in_sync": []})

    def wait_group(self, group: str, holds: Any) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds(self.group(group)):
            assert time.monotonic() < deadline, (
                self.group(group),
                [one.errors for one in self.queues.values()],
            )
            time.sleep(0.05)

    def master(self, group: str) -> Queue:
        return self.queues[self.group(group)["master"]]


class Ledger:
    """What was answered, and what was given."""

    def __init__(self) -> None:
        self.stored: set[bytes] = set()
        self.given: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.again: list[bytes] = []
        self.twice: list[bytes] = []
        self.failures: list[Exception] = []
        self.over = False


async def produce(mq: Client, ledger: Ledger, subject: str = "orders", name: str = "p") -> None:
    """Send without end. A failure is noted: none is expected as long as a broker group is there."""
    number = 0
    while not ledger.over:
        bodies = [f"{name}-{number + at}".encode() for at in range(MANY)]
        number += MANY
        try:
            await mq.send_many(subject, bodies)
            ledger.stored.update(bodies)
            body = f"{name}-one-{number}".encode()
            await mq.send(subject, body)
            ledger.stored.add(body)
        except (OutcomeUnknown, BrokerUnreachable, Unavailable) as error:
            ledger.failures.append(error)


async def consume(
    mq: Client, ledger: Ledger, subjects: str | Sequence[str] = "orders", name: str = "ann"
) -> None:
    async with mq.consume(subjects, group="workers", name=name) as messages:
        async for batch in messages.batches():
            ledger.again += [body for body in batch.bodies if body in ledger.acked]
            ledger.twice += [body for body in batch.bodies if body in ledger.given]
            ledger.given.update(batch.bodies)
            with suppress(LeaseLost, BrokerUnreachable):
                await batch.ack()
                ledger.acked.update(batch.bodies)


async def wait_more(ledger: Ledger, count: int, seconds: float = PATIENCE_SECONDS) -> None:
    """Until so many more are stored."""
    deadline, wanted = time.monotonic() + seconds, len(ledger.stored) + count
    while len(ledger.stored) < wanted:
        assert time.monotonic() < deadline, f"{len(ledger.stored)} stored of {wanted}, {ledger.failures[-3:]}"
        await asyncio.sleep(0.01)


async def wait_given(ledger: Ledger) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not ledger.stored <= ledger.given:
        assert time.monotonic() < deadline, f"{len(ledger.stored - ledger.given)} were never given"
        await asyncio.sleep(0.05)
