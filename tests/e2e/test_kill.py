"""kill -9 under load, again and again, on one folder: the promises of docs/durability.md for the death of a process.

Producers send one by one and by the thousand, into a subject of each durability class; consumers acknowledge. What was
answered is written down on this side. KILLS=50 kills fifty times; ``make soak`` does.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from e2e.conftest import MakeQueue
from e2e.queues import Queue
from tidemill import BrokerUnreachable, Client, ClientSettings, LeaseLost, OutcomeUnknown, Unavailable

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("KILLS", "6"))
CLASSES = ("low", "normal", "high")
MANY = 300
PATIENCE_SECONDS = 60.0
SETTINGS = ClientSettings(send_timeout_s=PATIENCE_SECONDS, backoff_max_s=0.2)
HEAD = "---\napiVersion: tidemill.dev/v1alpha1\n"
MANIFEST = "".join(
    f"{HEAD}kind: Subject\nmetadata: {{name: orders.{one}}}\n"
    f"spec: {{config: [{{name: durability, value: {one}}}]}}\n"
    # A short lease: what was on its way to a consumer when the broker died is given again when it ends.
    f"{HEAD}kind: ConsumerGroup\nmetadata: {{name: workers-{one}}}\n"
    f"spec: {{groupName: workers, subjectName: orders.{one}, delivery: {{ackTimeoutSeconds: 3}}}}\n"
    for one in CLASSES
)


@dataclass
class Ledger:
    """What the queue has answered, and what it has given."""

    stored: dict[bytes, int] = field(default_factory=dict)
    """Body -> sequence, of each message that was answered as stored."""
    acked: set[bytes] = field(default_factory=set)
    given: Counter[bytes] = field(default_factory=Counter)
    again: list[bytes] = field(default_factory=list)
    """Given to the group after its acknowledgement had been answered."""
    unknown: int = 0
    over: bool = False

    def give(self, bodies: list[bytes]) -> None:
        self.given.update(bodies)
        self.again += [body for body in bodies if body in self.acked]


async def produce(mq: Client, subject: str, ledger: Ledger, lane: int) -> None:
    """Single messages in one lane, many at once in the other; each body exists once."""
    number = 0
    while not ledger.over:
        count = 1 if lane == 0 else MANY
        bodies = [f"{subject}/{lane}/{number + at}".encode() for at in range(count)]
        number += count
        try:
            if lane == 0:
                ledger.stored[bodies[0]] = (await mq.send(subject, bodies[0])).sequence
            else:
                receipts = await mq.send_many(subject, bodies)
                ledger.stored.update(
                    (body, receipt.sequence) for body, receipt in zip(bodies, receipts, strict=True)
                )
        except (OutcomeUnknown, BrokerUnreachable, Unavailable):
            ledger.unknown += count


async def consume(mq: Client, subject: str, ledger: Ledger, name: str) -> None:
    """Acknowledge by the batch, and believe it only when it was answered."""
    async with mq.consume(subject, group="workers", name=name) as messages:
        async for batch in messages.batches():
            ledger.give(batch.bodies)
            with suppress(LeaseLost, BrokerUnreachable):
                await batch.ack()
                ledger.acked.update(batch.bodies)


async def wait_kills(queue: Queue, chance: random.Random) -> list[float]:
    """Kill it at any moment, start it again at once; how long each start took."""
    starts: list[float] = []
    for _ in range(KILLS):
        await asyncio.sleep(chance.uniform(0.05, 0.8))
        queue.kill()
        await asyncio.to_thread(queue.start)
        starts.append(queue.ready_seconds)
    return starts


async def wait_drained(queue: Queue, ledger: Ledger) -> None:
    """Until the group has got all that was stored, and the broker says that nothing is left.

    Patience is for standing still: fifty kills leave a backlog that a busy machine needs minutes for.
    """
    loop = asyncio.get_running_loop()
    least, deadline = -1, 0.0
    while True:
        missing = len(ledger.stored.keys() - ledger.given.keys())
        rows = [row for row in await asyncio.to_thread(queue.get, "/v1/groups") if row["group"] == "workers"]
        left = sum(row["lag"] + row["in_flight"] + row["failed"] for row in rows)
        if not missing and not left:
            return
        if least < 0 or missing + left < least:
            least, deadline = missing + left, loop.time() + PATIENCE_SECONDS
        assert loop.time() < deadline, (missing, rows)
        await asyncio.sleep(0.1)


async def work(queue: Queue, ledger: Ledger, chance: random.Random) -> list[float]:
    async with Client(queue.server, settings=SETTINGS) as mq, asyncio.TaskGroup() as tasks:
        subjects = [f"orders.{one}" for one in CLASSES]
        for subject in subjects:
            for name in ("ann", "bob"):
                consumer = tasks.create_task(consume(mq, subject, ledger, f"{subject}-{name}"))
                consumer.set_name("consumer")
        producers = [
            tasks.create_task(produce(mq, subject, ledger, lane)) for subject in subjects for lane in (0, 1)
        ]
        starts = await wait_kills(queue, chance)
        ledger.over = True
        await asyncio.gather(*producers)
        await wait_drained(queue, ledger)
        for task in asyncio.all_tasks():
            if task.get_name() == "consumer":
                task.cancel()
    return starts


async def audit(queue: Queue, subject: str, count: int) -> Counter[bytes]:
    """Everything in a subject, read by a group that knows nothing yet."""
    found: Counter[bytes] = Counter()
    async with Client(queue.server) as mq, mq.consume(subject, group="audit", start="earliest") as messages:
        async for batch in messages.batches():
            for body, message in zip(batch.bodies, batch, strict=True):
                found[body] += 1
                assert message.sequence < count
            if found.total() >= count:
                return found
    raise AssertionError("unreachable")


def test_kill_after_kill_nothing_answered_is_lost_or_given_again(
    make_queue: MakeQueue, tmp_path: Path
) -> None:
    manifest = tmp_path / "subjects.yaml"
    manifest.write_text(MANIFEST)
    queue = make_queue(manifests=[manifest]).start()
    assert {row["durability"] for row in queue.get("/v1/subjects")} == set(CLASSES)
    ledger, chance = Ledger(), random.Random(os.environ.get("SEED", "tide"))
    starts = asyncio.run(work(queue, ledger, chance))
    rows = {row["name"]: row for row in queue.get("/v1/subjects")}
    found: Counter[bytes] = Counter()
    for one in CLASSES:
        subject = f"orders.{one}"
        found += asyncio.run(audit(queue, subject, rows[subject]["next_sequence"]))
    lost = [body for body in ledger.stored if body not in found]
    twice = [body for body, count in found.items() if count > 1]
    print(
        f"\n{KILLS} kills: {len(ledger.stored)} answered, {len(lost)} lost, {len(twice)} stored twice, "
        f"{len(ledger.again)} given again after their ack, {sum(ledger.given.values()) - len(ledger.given)} "
        f"given again before it, {ledger.unknown} of unknown outcome; "
        f"ready after {min(starts):.2f} to {max(starts):.2f} s"
    )
    assert lost == []
    assert ledger.again == []
    assert twice == []
    assert len(ledger.stored) >= KILLS * MANY
    assert max(starts) < 10
    assert queue.stop() == 0
