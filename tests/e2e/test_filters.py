"""Filters and patterns against a real queue: what is wanted comes, and little else is read or sent for it."""

from __future__ import annotations

import asyncio

import pytest

from e2e.queues import Queue, run_command, wait_until
from tidemill import Client, ClientSettings
from tidemill.blocking import Client as BlockingClient

pytestmark = pytest.mark.e2e

BATCH = 1000
BODY = bytes(1024)
BATCHES = 20


async def fill(server: str) -> None:
    """One message of ten thousand is a VIP's; the others have so many tags that no batch's word lacks a bit."""
    async with Client(server, settings=ClientSettings(linger_ms=1, batch_bytes=1200 * BATCH)) as mq:
        for batch in range(BATCHES):
            numbers = range(batch * BATCH, (batch + 1) * BATCH)
            tags = [{"vip"} if number % 10_000 == 5_000 else {f"t{number % 97}"} for number in numbers]
            await asyncio.gather(*(mq.send("order.created", BODY, tags=each) for each in tags))


def test_one_message_of_ten_thousand_costs_two_percent_of_the_bytes_at_most(queue: Queue) -> None:
    asyncio.run(fill(queue.server))
    before = queue.metrics()
    with (
        BlockingClient(queue.server) as mq,
        mq.consume("order.created", group="few", tags={"vip"}) as messages,
    ):
        found = [next(iter(messages)).sequence for _ in range(BATCHES * BATCH // 10_000)]
        wait_until("nothing lags", lambda: queue.group("few")["lag"] == 0)
    after = queue.metrics()

    assert found == [5_000, 15_000]
    total = BATCHES * BATCH * len(BODY)
    read, sent = (
        after[name] - before[name] for name in ("tidemill_sifted_bytes_total", "tidemill_bytes_sent_total")
    )
    assert 0 < read < total * 0.02, f"{read / total:.2%}"
    assert sent < total * 0.02, f"{sent / total:.2%}"
    assert after["tidemill_skipped_messages_total"] == BATCHES * BATCH - len(found)


def test_restart_begins_behind_what_was_skipped(queue: Queue) -> None:
    asyncio.run(fill(queue.server))
    with BlockingClient(queue.server) as mq:
        with mq.consume("order.created", group="none", tags={"nobody"}):
            wait_until("nothing lags", lambda: [row["lag"] for row in queue.get("/v1/groups")] == [0])
    queue.kill()
    queue.start()

    assert queue.group("none")["lag"] < 10_000


def test_command_line_takes_tags_and_patterns(queue: Queue) -> None:
    with BlockingClient(queue.server) as mq:
        mq.send("order.created", b"one", tags={"vip", "eu"})
        mq.send("order.paid", b"two", tags={"vip"})
        mq.send("customer.created", b"three", tags={"vip"})

    def consume(*arguments: str) -> list[str]:
        done = run_command("consume", *arguments, "--timeout", "20", server=queue.server)
        assert (done.returncode, done.stderr) == (0, ""), done
        return sorted(done.stdout.splitlines())

    assert consume("order.*", "--group", "a", "--tag", "vip", "--count", "2") == ["one", "two"]
    both = ("--tag", "vip", "--tag", "eu", "--match", "all")
    assert consume("*", "--group", "b", *both, "--count", "1") == ["one"]


def test_new_subject_joins_a_pattern_within_a_second(queue: Queue) -> None:
    asyncio.run(join(queue.server))


async def join(server: str) -> None:
    async with Client(server) as mq, mq.consume("order.*", group="g") as messages:
        await mq.send("order.created", b"1")
        assert (await anext(messages)).subject == "order.created"
        async with asyncio.timeout(1.0):
            await mq.send("order.paid", b"2")
            assert (await anext(messages)).subject == "order.paid"


def test_declared_filter_holds(make_queue, tmp_path) -> None:
    manifest = tmp_path / "group.yaml"
    manifest.write_text(
        "apiVersion: tidemill.dev/v1alpha1\nkind: ConsumerGroup\nmetadata: {name: billing}\n"
        "spec: {subjectName: order.created, filter: {tags: [vip], match: Any}}\n"
    )
    queue = make_queue(manifests=[manifest]).start()
    with BlockingClient(queue.server) as mq:
        mq.send("order.created", b"one", tags={"eu"})
        mq.send("order.created", b"two", tags={"vip"})
        with mq.consume("order.created", group="billing") as messages:
            assert next(iter(messages)).body == b"two"
    done = run_command(
        "consume", "order.created", "--group", "billing", "--tag", "eu", "--count", "1", server=queue.server
    )
    assert "filter_conflict" in done.stderr
