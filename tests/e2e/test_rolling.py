"""Brokers that are told to stop hand over and say goodbye: a group is rolled, and nobody waits for a dead broker.

Both real processes and a real meta; meta is asked before each stop, as whoever rolls a cluster should.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import MakeQueue
from e2e.metas import Meta
from e2e.queues import Queue, wait_until
from tidemill import Client, ClientSettings

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 60.0
STALL_SECONDS = 4.5
"""Below the silence after which a broker is dead, on a machine that is busy."""


@pytest.fixture
def meta(tmp_path: Path) -> Iterator[Meta]:
    made = Meta(tmp_path / "meta")
    yield made.start()
    made.close()


@pytest.fixture
def pair(make_queue: MakeQueue, meta: Meta) -> dict[str, Queue]:
    queues: dict[str, Queue] = {}
    for name in ("g0-0", "g0-1"):
        settings = {"TIDEMILL_NAME": name, "TIDEMILL_REPLICATED": "true", "TIDEMILL_META": meta.server}
        queues[name] = make_queue(name, settings=settings).start()
    wait_whole(meta)
    return queues


def group_of(meta: Meta) -> dict[str, Any]:
    return next((row for row in meta.get("/v1/brokers") if row["group"] == "g0"), {})


def row_of(meta: Meta, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in group_of(meta)["brokers"] if one["name"] == name)
    return found


def wait_whole(meta: Meta) -> None:
    """Until somebody leads, to whom the other one could be handed over."""

    def is_whole() -> bool:
        return any(one["hand_over_to"] for one in group_of(meta).get("brokers", ()))

    wait_until("both are in sync, and meta is sure of it", is_whole, PATIENCE_SECONDS)


def ready(queue: Queue) -> tuple[int, str]:
    """What a probe of readiness gets."""
    try:
        with urllib.request.urlopen(f"http://{queue.server}/readyz", timeout=10) as answer:
            return answer.status, json.load(answer)["status"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["detail"]
    except OSError:
        return 0, ""


@dataclass
class Ledger:
    """What was answered as stored, and the longest time between two answers."""

    stored: list[bytes] = field(default_factory=list)
    stall_s: float = 0.0
    over: bool = False


async def produce(server: str, ledger: Ledger) -> None:
    settings = ClientSettings(send_timeout_s=PATIENCE_SECONDS, backoff_max_s=0.2)
    async with Client(server, settings=settings) as mq:
        last = time.monotonic()
        while not ledger.over:
            body = b"%d" % len(ledger.stored)
            await mq.send("orders", body)
            now = time.monotonic()
            ledger.stall_s, last = max(ledger.stall_s, now - last), now
            ledger.stored.append(body)


async def consume(server: str, count: int) -> set[bytes]:
    found: set[bytes] = set()
    async with Client(server) as mq, mq.consume("orders", group="g", start="earliest") as messages:
        async for message in messages:
            found.add(bytes(message.body))
            await message.ack()
            if len(found) == count:
                break
    return found


async def roll(queues: dict[str, Queue], meta: Meta, ledger: Ledger) -> None:
    """The slave, and then the master, each when meta allows it."""
    async with asyncio.TaskGroup() as tasks:
        producing = tasks.create_task(produce(meta.server, ledger))
        try:
            for _ in queues:
                await asyncio.to_thread(wait_whole, meta)
                master = group_of(meta)["master"]
                slave = next(name for name in queues if name != master)
                assert row_of(meta, slave)["safe_to_stop"]
                assert not row_of(meta, master)["safe_to_stop"]
                for name in (slave, master):
                    await asyncio.to_thread(wait_whole, meta)
                    await asyncio.to_thread(restart, queues[name])
        finally:
            ledger.over = True
        await producing


def restart(queue: Queue) -> None:
    assert queue.stop() == 0
    queue.start()


def test_a_group_is_rolled_while_it_is_written_and_nobody_waits_for_a_dead_broker(
    pair: dict[str, Queue], meta: Meta
) -> None:
    ledger, epoch = Ledger(), group_of(meta)["epoch"]

    asyncio.run(roll(pair, meta, ledger))

    print(f"rolled twice: {len(ledger.stored)} messages, {ledger.stall_s:.2f} s without an answer at most")
    assert group_of(meta)["epoch"] >= epoch + 2
    assert ledger.stall_s < STALL_SECONDS
    assert asyncio.run(consume(meta.server, len(ledger.stored))) == set(ledger.stored)


def test_who_can_do_its_work_is_ready_and_who_cannot_says_why(pair: dict[str, Queue], meta: Meta) -> None:
    master = group_of(meta)["master"]
    slave = next(name for name in pair if name != master)
    wait_until("both are ready", lambda: {ready(one)[0] for one in pair.values()} == {200}, PATIENCE_SECONDS)

    pair[master].kill()
    wait_until("it leads", lambda: group_of(meta)["master"] == slave, PATIENCE_SECONDS)
    wait_until("it is ready", lambda: ready(pair[slave])[0] == 200, PATIENCE_SECONDS)
    meta.kill()
    wait_until("its lease is over", lambda: ready(pair[slave])[0] == 503, PATIENCE_SECONDS)
    assert ready(pair[slave])[1] == f"{slave} takes no work now"
    pair[master].start()
    assert ready(pair[master]) == (503, f"{master} waits to be told what it is in its group")
    assert pair[master].get("/healthz") == {"status": "ok"}
