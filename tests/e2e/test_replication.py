"""A master and a slave as processes: the master is killed under load, the slave is appointed, and nothing is lost.

The test is meta here: it says who is what, over the port that meta will use. The client asks the slave for its routes,
so it is sent to the master first and finds the slave itself when that has become one.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import MakeQueue
from e2e.metas import Meta
from e2e.queues import Queue
from e2e.towns import MANY, PATIENCE_SECONDS, Ledger, consume, produce, wait_given, wait_more
from tidemill import Client, ClientSettings

pytestmark = pytest.mark.e2e

SUBJECT = "orders"
WRITES_AGAIN_SECONDS = 10.0


class Group:
    """Two brokers, and what is decided of them."""

    def __init__(self, make_queue: MakeQueue) -> None:
        self.queues = {
            name: make_queue(name, settings={"TIDEMILL_NAME": name, "TIDEMILL_REPLICATED": "true"})
            for name in ("g0-0", "g0-1")
        }
        for queue in self.queues.values():
            queue.start()

    def appoint(self, name: str, epoch: int, master: str, in_sync: Sequence[str], version: int = 0) -> None:
        """Tell one of them."""
        addresses = {one: f"{queue.host}:{queue.port}" for one, queue in self.queues.items()}
        body = {
            "group": "g0", "epoch": epoch, "master": master, "replicas": list(self.queues),
            "in_sync": list(in_sync), "version": version, "addresses": addresses,
        }  # fmt: skip
        post(self.queues[name], "/v1/replication/appointment", body)

    def stand(self, name: str) -> dict[str, Any]:
        standing: dict[str, Any] = self.queues[name].get("/v1/replication")
        return standing

    async def wait_stand(self, name: str, **wanted: object) -> dict[str, Any]:
        """Until it stands so with a broker; it is away for a moment while it becomes something else."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found: dict[str, Any] = {}
            with suppress(OSError, urllib.error.URLError, ValueError):
                found = await asyncio.to_thread(self.stand, name)
            if all(found.get(key) == value for key, value in wanted.items()) and found:
                return found
            assert time.monotonic() < deadline, (found, wanted, self.queues[name].errors)
            await asyncio.sleep(0.05)


def post(queue: Queue, path: str, body: object) -> Any:
    request = urllib.request.Request(
        f"http://{queue.server}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


async def wait_alike(group: Group) -> None:
    """Until both logs end alike."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while group.stand("g0-0")["ends"] != group.stand("g0-1")["ends"]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def wait_committed(group: Group) -> None:
    """Until a slave knows that all it has is committed: it is told with what comes next, or after a second."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (stood := group.stand("g0-1"))["ends"] != stood["committed"]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def fetched(queue: Queue, folder: str) -> bytes:
    """A log as a slave gives it to an archive, in pieces."""
    data = b""
    for row in queue.get("/v1/segments")[folder]:
        at = row["base"]
        while at < row["end"]:
            url = f"http://{queue.server}/v1/segments/{folder}/{row['base']}?from={at}&size=1000000"
            with urllib.request.urlopen(url, timeout=10) as answer:
                piece = answer.read()
            assert piece
            data, at = data + piece, at + len(piece)
    return data


async def fail_over(group: Group, ledger: Ledger) -> None:
    for name in group.queues:
        await asyncio.to_thread(group.appoint, name, 1, "g0-0", ("g0-0", "g0-1"))
    await group.wait_stand("g0-0", role="master")
    await group.wait_stand("g0-1", role="slave")
    settings = ClientSettings(send_timeout_s=PATIENCE_SECONDS, backoff_max_s=0.2)
    async with Client(group.queues["g0-1"].server, settings=settings) as mq, asyncio.TaskGroup() as tasks:
        producer = tasks.create_task(produce(mq, ledger))
        consumer = tasks.create_task(consume(mq, ledger))
        await wait_more(ledger, 20 * MANY, PATIENCE_SECONDS)

        group.queues["g0-0"].kill()
        await asyncio.to_thread(group.appoint, "g0-1", 2, "g0-1", ("g0-1",))
        await wait_more(ledger, 5 * MANY, WRITES_AGAIN_SECONDS)

        await asyncio.to_thread(group.queues["g0-0"].start)
        await asyncio.to_thread(group.appoint, "g0-0", 2, "g0-1", ("g0-1",))
        await group.wait_stand("g0-1", wish=["g0-0", "g0-1"])
        post(group.queues["g0-1"], "/v1/replication/wish", {})
        await asyncio.to_thread(group.appoint, "g0-1", 2, "g0-1", ("g0-0", "g0-1"), 1)
        await wait_more(ledger, 5 * MANY, PATIENCE_SECONDS)

        began = time.monotonic()
        await asyncio.to_thread(post, group.queues["g0-1"], "/v1/replication/handover", {"to": "g0-0"})
        for name in ("g0-0", "g0-1"):
            await asyncio.to_thread(group.appoint, name, 3, "g0-0", ("g0-0", "g0-1"), 2)
        await wait_more(ledger, 1, WRITES_AGAIN_SECONDS)
        print(f"hand-over: {time.monotonic() - began:.3f} s without writes")
        await wait_more(ledger, 5 * MANY, PATIENCE_SECONDS)

        ledger.over = True
        await producer
        await wait_given(ledger)
        consumer.cancel()
    await wait_alike(group)
    await wait_committed(group)
    for folder in ("message", "action"):
        assert log_of(group.queues["g0-1"], folder) == fetched(group.queues["g0-1"], folder)


def log_of(queue: Queue, folder: str) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(Path(queue.data, folder).glob("*.log")))


def test_a_killed_master_loses_nothing_and_comes_back_as_a_slave(make_queue: MakeQueue) -> None:
    group, ledger = Group(make_queue), Ledger()

    asyncio.run(fail_over(group, ledger))

    assert ledger.stored <= ledger.given
    assert not ledger.again
    one, two = group.queues.values()
    assert one.stop() == two.stop() == 0
    assert log_of(one, "message") == log_of(two, "message")
    assert log_of(one, "action").startswith(log_of(two, "action")[:1000])


async def lag(group: Group) -> None:
    """A slave that stands still lags behind; when it goes on it has all, and all is committed."""
    settings = ClientSettings(send_timeout_s=PATIENCE_SECONDS)
    master, slave = group.queues.values()
    async with Client(master.server, settings=settings) as mq:
        await mq.send(SUBJECT, b"first")
        slave.signal(signal.SIGSTOP)
        sent = asyncio.ensure_future(mq.send_many(SUBJECT, [b"x" * 1000] * 100))
        name = 'tidemill_replication_slave_lag_bytes{slave="g0-1",log="message"}'
        uncommitted = 'tidemill_replication_uncommitted_bytes{log="message"}'
        await wait_metric(master, lambda found: found[name] > 100_000 and found[uncommitted] > 100_000)
        slave.signal(signal.SIGCONT)
        assert len(await sent) == 100
        await wait_metric(master, lambda found: found[name] == 0 == found[uncommitted])


async def wait_metric(queue: Queue, holds: Callable[[dict[str, float]], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds(found := await asyncio.to_thread(queue.metrics)):
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.05)


def replication_of(queue: Queue) -> dict[str, float]:
    start = "tidemill_replication_"
    return {
        name.removeprefix(start): value for name, value in queue.metrics().items() if name.startswith(start)
    }


def test_the_metrics_say_who_is_what_and_how_far_behind(make_queue: MakeQueue) -> None:
    group = Group(make_queue)
    fenced = replication_of(group.queues["g0-1"])
    for name in group.queues:
        group.appoint(name, 3, "g0-0", ("g0-0", "g0-1"))
    for name, role in (("g0-0", "master"), ("g0-1", "slave")):
        asyncio.run(group.wait_stand(name, role=role))

    asyncio.run(lag(group))

    master, slave = map(replication_of, group.queues.values())
    assert (fenced['role{role="fenced"}'], fenced["epoch"]) == (1, 0)
    assert "in_sync" not in fenced
    for found, role in ((master, "master"), (slave, "slave")):
        assert {name: value for name, value in found.items() if name.startswith("role")} == {
            f'role{{role="{one}"}}': float(one == role) for one in ("fenced", "slave", "master")
        }
        assert (found["epoch"], found["replicas"], found["in_sync"]) == (3, 2, 2)
    assert master["slaves_connected"] == 1
    assert master['slave_pace_bytes{slave="g0-1"}'] == 0
    ends = group.stand("g0-1")["ends"]
    assert slave['fetched_bytes_total{log="message"}'] == ends["message"] > 100_000
    assert slave['fetched_bytes_total{log="action"}'] == ends["action"]


def test_a_slave_refuses_a_person_and_says_who_is_master(make_queue: MakeQueue) -> None:
    group = Group(make_queue)
    for name in group.queues:
        group.appoint(name, 1, "g0-0", ("g0-0",))
    asyncio.run(group.wait_stand("g0-1", role="slave"))

    slave = group.queues["g0-1"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(slave, "/v1/subjects/orders/messages", {"messages": [{"text": "tide"}]})

    said = json.load(refused.value)["error"]
    assert refused.value.code == 503
    assert said["code"] == "not_master"
    assert "g0-0 is the master" in said["detail"]


async def wait_in_sync(meta: Meta, queues: Sequence[Queue]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(meta_group(meta).get("in_sync", [])) < len(queues):
        assert time.monotonic() < deadline, (meta_group(meta), [queue.errors for queue in queues])
        await asyncio.sleep(0.1)


async def be_replaced(make_queue: MakeQueue, meta: Meta, ledger: Ledger) -> float:
    """How long nothing was stored after the master was killed, with nobody but meta to decide."""
    queues = [
        make_queue(
            name,
            settings={"TIDEMILL_NAME": name, "TIDEMILL_REPLICATED": "true", "TIDEMILL_META": meta.server},
        )
        for name in ("g0-0", "g0-1")
    ]
    for queue in queues:
        queue.start()
    await wait_in_sync(meta, queues)
    master = next(queue for queue in queues if queue.data.name == meta_group(meta)["master"])
    slave = next(queue for queue in queues if queue is not master)
    settings = ClientSettings(send_timeout_s=PATIENCE_SECONDS, backoff_max_s=0.2)
    async with Client(slave.server, settings=settings) as mq, asyncio.TaskGroup() as tasks:
        producer = tasks.create_task(produce(mq, ledger))
        consumer = tasks.create_task(consume(mq, ledger))
        await wait_more(ledger, 10 * MANY, PATIENCE_SECONDS)
        master.kill()
        killed = time.monotonic()
        await wait_more(ledger, 2 * MANY, PATIENCE_SECONDS)
        gap = time.monotonic() - killed
        ledger.over = True
        await producer
        await wait_given(ledger)
        consumer.cancel()
    return gap


def meta_group(meta: Meta) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{meta.server}/v1/brokers", timeout=5) as answer:
        rows: list[dict[str, Any]] = json.load(answer)
    return next((row for row in rows if row["group"] == "g0"), {})


def test_meta_appoints_a_slave_when_the_master_is_killed(make_queue: MakeQueue, tmp_path: Path) -> None:
    meta, ledger = Meta(tmp_path / "meta").start(), Ledger()
    try:
        gap = asyncio.run(be_replaced(make_queue, meta, ledger))
    finally:
        meta.kill()

    print(f"automatic failover: {gap:.1f} s without writes")
    assert gap < WRITES_AGAIN_SECONDS + 5
    assert ledger.stored <= ledger.given
    assert not ledger.again
