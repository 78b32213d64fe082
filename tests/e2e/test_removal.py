"""A subject or a group that a person removes is gone from brokers and clients, on one machine and in a cluster."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from e2e.clusters import Cluster
from e2e.conftest import MakeQueue
from e2e.queues import COMMAND, Queue, run_command, wait_until
from tidemill import Client, ClientSettings
from tidemill.errors import Refused

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two broker groups with a slave each; every test has subjects of its own."""
    made = Cluster(tmp_path_factory.mktemp("removal") / "cluster", 2, 1)
    try:
        yield made.start()
    finally:
        made.close()


def declaration(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "tidemill.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def declare(queue: Queue, *documents: dict[str, Any]) -> None:
    """As soon as all brokers have let go of what had that name."""
    wait_until("it is declared", lambda: declared(queue, documents), PATIENCE_SECONDS)


def declared(queue: Queue, documents: Sequence[dict[str, Any]]) -> bool:
    request = urllib.request.Request(f"http://{queue.server}/v1/declarations", json.dumps(documents).encode())
    code = ""
    try:
        urllib.request.urlopen(request, timeout=30).close()
    except urllib.error.HTTPError as error:
        code = json.loads(error.read())["error"]["code"]
    assert code in {"", "not_gone"}
    return not code


def masters_say(cluster: Cluster, what: str, subject: str) -> list[dict[str, Any]]:
    field = "name" if what == "subjects" else "subject"
    found: list[dict[str, Any]] = []
    for broker in cluster.get("/v1/routes")["brokers"]:
        with urllib.request.urlopen(f"http://{broker['control']}/v1/{what}", timeout=30) as answer:
            found += [row for row in json.loads(answer.read()) if row[field] == subject]
    return found


async def send(server: str, subject: str, *bodies: bytes) -> None:
    async with Client(server) as mq:
        for body in bodies:
            await mq.send(subject, body)


async def take(server: str, subject: str, group: str, count: int) -> list[bytes]:
    async with Client(server) as mq, mq.consume(subject, group=group) as messages:
        found: list[bytes] = []
        async for message in messages:
            found.append(bytes(message.body))
            await message.ack()
            if len(found) == count:
                break
        return found


def test_a_removed_subject_is_gone_from_a_cluster_and_comes_back_empty(cluster: Cluster) -> None:
    bodies = [b"%d" % number for number in range(20)]
    asyncio.run(send(cluster.server, "orders", *bodies))
    asyncio.run(take(cluster.server, "orders", "billing", 20))
    asyncio.run(send(cluster.server, "orders", b"left"))

    done = run_command("subjects", "remove", "orders", "--yes", server=cluster.server)
    assert done.returncode == 1
    assert "subject orders is not done with" in done.stderr
    assert "1 to consume" in done.stderr
    done = run_command("subjects", "remove", "orders", "--yes", "--force", server=cluster.server)
    assert done.returncode == 0, done.stderr
    wait_until("brokers let go", lambda: not masters_say(cluster, "subjects", "orders"), PATIENCE_SECONDS)
    assert masters_say(cluster, "groups", "orders") == []
    with pytest.raises(Refused, match="was removed"):
        asyncio.run(send(cluster.server, "orders", b"late"))

    for group in ("g0", "g1"):  # the slaves know it as well
        done = run_command("broker", "handover", group, server=cluster.server)
        assert done.returncode == 0, done.stderr
    declare(cluster, declaration("Subject", "orders"))
    wait_until(
        "both have it again", lambda: len(masters_say(cluster, "subjects", "orders")) == 2, PATIENCE_SECONDS
    )
    assert [row["messages"] for row in masters_say(cluster, "subjects", "orders")] == [0, 0]
    asyncio.run(send(cluster.server, "orders", b"new"))
    assert asyncio.run(take(cluster.server, "orders", "billing", 1)) == [b"new"]


def test_programs_that_use_a_subject_are_not_cut_off_by_mistake_and_hear_why_when_they_are(
    cluster: Cluster,
) -> None:
    async def scenario() -> None:
        async with Client(cluster.server, settings=ClientSettings(send_timeout_s=20.0)) as mq:
            await mq.send("bills", b"1")
            done = await asyncio.to_thread(
                run_command, "subjects", "remove", "bills", "--yes", server=cluster.server
            )
            assert done.returncode == 1
            assert "subject 'bills' has 1 producer: stop them, or add --force" in done.stderr
            await asyncio.to_thread(
                run_command, "subjects", "remove", "bills", "--yes", "--force", server=cluster.server
            )
            async with asyncio.timeout(PATIENCE_SECONDS):
                with pytest.raises(Refused, match="was removed"):
                    while True:
                        await mq.send("bills", b"2")

    asyncio.run(scenario())


def test_a_removed_group_is_refused_to_its_consumer_until_it_is_declared(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with Client(cluster.server) as mq:
            await mq.send("parcels", b"1")
            async with mq.consume("parcels", group="billing") as messages:
                async for message in messages:
                    await message.ack()
                    break
                await asyncio.to_thread(
                    run_command, "groups", "remove", "parcels", "billing", "--yes", "--force",
                    server=cluster.server,
                )  # fmt: skip
                async with asyncio.timeout(PATIENCE_SECONDS):
                    with pytest.raises(Refused, match="was removed"):
                        async for _ in messages:
                            raise AssertionError("nothing is there to be consumed")

    asyncio.run(scenario())
    declare(
        cluster,
        declaration("ConsumerGroup", "billing", subjectName="parcels", startFrom={"position": "Earliest"}),
    )
    wait_until(
        "both have it again", lambda: len(masters_say(cluster, "groups", "parcels")) == 2, PATIENCE_SECONDS
    )
    assert asyncio.run(take(cluster.server, "parcels", "billing", 1)) == [b"1"]


def test_a_queue_in_one_process_removes_at_once_and_does_not_bring_it_back_when_it_starts(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(command=COMMAND).start()
    asyncio.run(send(queue.server, "orders", b"1"))
    asyncio.run(send(queue.server, "kept", b"1"))
    done = run_command("subjects", "remove", "orders", "--yes", "--force", server=queue.server)
    assert done.returncode == 0, done.stderr
    assert [row["name"] for row in queue.get("/v1/subjects")] == ["kept"]
    queue.kill()
    queue.start()
    wait_until(
        "meta is there",
        lambda: run_command("status", server=queue.server).returncode == 0,
        PATIENCE_SECONDS,
    )

    with pytest.raises(Refused, match="was removed"):
        asyncio.run(send(queue.server, "orders", b"late"))
    assert [row["name"] for row in queue.get("/v1/subjects")] == ["kept"]
    declare(queue, declaration("Subject", "orders"))
    asyncio.run(send(queue.server, "orders", b"new"))
    assert asyncio.run(take(queue.server, "orders", "late", 1)) == [b"new"]


def check_removed_if_empty(queue: Queue) -> None:
    """What is left keeps a subject, which goes on; what all groups have done with does not."""
    asyncio.run(send(queue.server, "herbs", b"1", b"2"))
    asyncio.run(take(queue.server, "herbs", "cook", 1))

    done = run_command("subjects", "remove", "herbs", "--yes", "--if-empty", server=queue.server)
    assert done.returncode == 1
    assert "subject 'herbs' is not empty: g0 has 1 message that a group has not done with" in done.stderr
    asyncio.run(send(queue.server, "herbs", b"3"))
    asyncio.run(take(queue.server, "herbs", "cook", 2))

    done = run_command("subjects", "remove", "herbs", "--yes", "--if-empty", server=queue.server)
    assert done.returncode == 0, done.stderr
    with pytest.raises(Refused, match="was removed"):
        asyncio.run(send(queue.server, "herbs", b"late"))


def test_a_subject_is_removed_from_a_queue_only_if_it_is_empty(make_queue: MakeQueue) -> None:
    check_removed_if_empty(make_queue(command=COMMAND).start())


def test_a_subject_is_removed_from_a_cluster_only_if_it_is_empty(cluster: Cluster) -> None:
    placed = declaration("Subject", "herbs", placement={"brokerGroups": ["g0"]})
    declare(cluster, placed)
    check_removed_if_empty(cluster)
