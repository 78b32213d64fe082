"""A broker is killed while one of its messages is being handled, and that fails: another broker gives it out again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.conftest import MakeQueue
from e2e.towns import PATIENCE_SECONDS, Cluster
from tidemill import Client, ClientSettings, Message
from tidemill_wire.ordering import logical_partition

pytestmark = pytest.mark.e2e

PATIENT = ClientSettings(send_timeout_s=PATIENCE_SECONDS, backoff_max_s=0.2)


@pytest.fixture
def cluster(make_queue: MakeQueue, tmp_path: Path) -> Iterator[Cluster]:
    """Two broker groups without slaves, with a subject on both."""
    made = Cluster(make_queue, tmp_path, g0=1, g1=1).start()
    spec = {"placement": {"brokerGroups": ["g0", "g1"]}}
    subject = {"apiVersion": "tidemill.dev/v1alpha1", "kind": "Subject", "metadata": {"name": "orders"}}
    made.meta.post("/v1/declarations", {**subject, "spec": spec})
    yield made
    made.close()


def key_of(half: int) -> str:
    keys = (f"k{number}" for number in range(100))
    return next(key for key in keys if logical_partition(key) * 2 // 1024 == half)


@pytest.mark.parametrize("spool", [False, True])
def test_message_that_failed_comes_again_while_its_broker_is_down_and_not_from_there(
    cluster: Cluster, tmp_path: Path, spool: bool
) -> None:
    settings = replace(PATIENT, spool_path=tmp_path / "spool") if spool else PATIENT

    async def case() -> tuple[Message, str, list[str], list[dict[str, object]]]:
        async with Client(cluster.meta.server, settings=settings) as mq:
            first = await mq.send("orders", "mine", key="key", properties={"p": 1}, order_key=key_of(0))
            await mq.send("orders", "other", order_key=key_of(1))
            rest: list[str] = []
            async with asyncio.timeout(120), mq.consume("orders", group="billing", name="ann") as messages:
                seen: dict[bytes, Message] = {}
                while len(seen) < 2:
                    message = await messages.take()
                    seen[message.body] = message
                await seen[b"other"].ack()
                await asyncio.to_thread(cluster.queues["g0-0"].kill)
                assert await seen[b"mine"].nack(delay=1, reason="no amount") is True
                again = await messages.take()
                await again.ack()
                await asyncio.to_thread(cluster.queues["g0-0"].start)
                await mq.send("orders", "marker", order_key=key_of(0))
                while "marker" not in rest:
                    message = await messages.take()
                    rest.append(message.body.decode())
                    await message.ack()
                groups = await mq.groups()
        return again, first.id, rest, groups

    again, identity, rest, groups = asyncio.run(case())

    assert (again.body, again.id, again.key, again.attempts) == (b"mine", identity, "key", 1)
    assert again.properties["p"] == 1
    assert again.properties["tidemill.dead"]["reason"] == "no amount"
    assert rest == ["marker"]
    assert [(one["in_flight"], one["failed"], one["lag"]) for one in groups] == [(0, 0, 0)]
