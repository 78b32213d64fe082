"""What a subject says of messages for later is obeyed by a real queue and a real cluster, however they are sent."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from e2e.clusters import Cluster
from e2e.conftest import STANDALONE, MakeQueue, wait_for_later
from e2e.queues import Queue, run_command, wait_until
from tidemill import Client, ClientSettings, Refused
from tidemill.far import Far
from tidemill.outbox import Outbox, Pace, create_tables_async
from tidemill_wire.unheeded import WHY

pytestmark = pytest.mark.e2e

SETTINGS = ClientSettings(send_timeout_s=30, backoff_max_s=0.2)
HOUR_S = 3600
NAME = "delay_not_allowed"
MANIFEST = """
apiVersion: tidemill.dev/v1alpha1
kind: Subject
metadata: {name: now}
spec:
  clusterRef: {name: prod}
  deletionPolicy: Delete
  placement: {minBrokerGroups: 2}
  delay: {mode: FORBIDDEN}
---
apiVersion: tidemill.dev/v1alpha1
kind: Subject
metadata: {name: soon}
spec: {delay: {maxDelaySeconds: 3600}}
---
apiVersion: tidemill.dev/v1alpha1
kind: ConsumerGroup
metadata: {name: billing}
spec:
  subjectName: now
  autoscaling: {mode: Keda, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: billing}}
  delivery: {retryBackoffSeconds: [1]}
"""


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    file = tmp_path / "queue.yaml"
    file.write_text(MANIFEST.replace("FORBIDDEN", "Forbidden"))
    return file


@pytest.fixture
def queue(make_queue: MakeQueue, manifest: Path) -> Queue:
    queue = make_queue("standalone", [manifest], command=STANDALONE).start()
    wait_for_later(queue)
    return queue


async def refusal(waited: Any) -> str:
    """The error's sentence."""
    with pytest.raises(Refused) as caught:
        await waited
    assert caught.value.kind.name == NAME
    return str(caught.value)


def post(queue: Queue, subject: str, body: object) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(
        queue.url(f"/v1/subjects/{subject}/messages"),
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


async def test_every_way_of_sending_is_refused_with_a_sentence_and_nothing_is_shortened(queue: Queue) -> None:
    async with Client(queue.server, settings=SETTINGS) as mq:
        said = await refusal(mq.send("now", b"tide", delay=60))
        assert said == (
            "subject 'now' takes no messages for later: send it without a time or for a nearer one, "
            f"or change spec.delay of the subject ({NAME})"
        )
        await refusal(mq.send("now", b"tide", cron="0 9 * * *", timer_key="k"))
        await refusal(mq.send_many("now", [b"tide"] * 10, delay=1))
        assert "3600 s are allowed" in await refusal(mq.send("soon", b"tide", delay=2 * HOUR_S))
        receipt = await mq.send("soon", b"tide", delay=HOUR_S, timer_key="k")
        await refusal(mq.reschedule(receipt.id, delay=2 * HOUR_S))
        await refusal(mq.reschedule(subject="soon", timer_key="k", delay=2 * HOUR_S))
        timer = await mq.timer(receipt.id)
        assert timer is not None
        assert abs(timer.due - datetime.now(UTC) - timedelta(hours=1)) < timedelta(minutes=5)
        await mq.send("now", b"at once")

    status, answer = post(queue, "now", {"text": "tide", "delay": "1m"})
    assert (status, answer["error"]["code"]) == (400, NAME)
    assert answer["error"]["detail"] == "subject 'now' takes no messages for later"
    done = run_command("send", "soon", "tide", "--delay", "2h", server=queue.server)
    assert done.returncode
    assert NAME in done.stderr


async def test_outbox_sets_aside_what_its_subject_does_not_allow_and_sends_the_rest(
    queue: Queue, tmp_path: Path
) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/shop.db"
    engine = create_async_engine(url)
    await create_tables_async(engine)
    async with (
        Client(queue.server, settings=SETTINGS) as mq,
        Outbox(engine, mq, pace=Pace(poll_s=0.05, retry_s=0.1)) as box,
        engine.connect() as connection,
    ):
        await box.send(connection, "now", b"later", delay=60)
        await box.send(connection, "now", b"at once")
        await connection.commit()
        async with mq.consume("now", group="billing", start="earliest") as messages:
            assert (await anext(messages)).body == b"at once"

        def told() -> bool:
            return NAME in run_command("outbox", "status", "--url", url).stdout

        await asyncio.to_thread(wait_until, "it is set aside, and why", told)
    await engine.dispose()


async def test_failure_that_its_subject_lets_not_wait_is_told_without_its_delay_and_raised(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Far, "beyond_ms", 0)  # a day is too long for a test
    async with Client(queue.server, settings=SETTINGS) as mq:
        await mq.send("now", b"tide")
        async with mq.consume("now", group="billing", start="earliest") as messages:
            message = await anext(messages)
            await refusal(message.nack(delay=600, reason="the bank is closed"))
            async with asyncio.timeout(60):
                again = await anext(messages)
            assert (again.id, again.attempts) == (message.id, 1)
            await again.ack()


async def test_declaration_that_changes_holds_for_what_comes_also_after_a_kill(
    queue: Queue, manifest: Path
) -> None:
    manifest.write_text(MANIFEST.replace("FORBIDDEN", "Allowed"))
    done = run_command("apply", "-f", str(manifest), server=queue.server)
    assert "Subject now changed" in done.stdout
    async with Client(queue.server, settings=SETTINGS) as mq:
        waits = await mq.send("now", b"tide", delay=HOUR_S, timer_key="k")
        manifest.write_text(MANIFEST.replace("FORBIDDEN", "Forbidden"))
        run_command("apply", "-f", str(manifest), server=queue.server)
        await refusal(mq.send("now", b"tide", delay=60))
        queue.kill()
        await asyncio.to_thread(queue.start)
        await asyncio.to_thread(wait_for_later, queue)
        await refusal(mq.send("now", b"tide", delay=60))
        assert await mq.timer(waits.id) is not None
        assert (await mq.cancel(waits.id)).changed == 1


def test_fields_that_only_others_obey_are_named_by_what_reads_the_file(queue: Queue, manifest: Path) -> None:
    done = run_command("apply", "-f", str(manifest), server=queue.server)
    assert done.returncode == 0
    said = [
        line.removeprefix("tidemill: ").partition(" is passed over: ") for line in done.stderr.splitlines()
    ]
    assert [(what, why) for what, _, why in said] == [
        ("clusterRef of Subject now", WHY["clusterRef"]),
        ("deletionPolicy of Subject now", WHY["deletionPolicy"]),
        ("autoscaling of ConsumerGroup billing", WHY["autoscaling"]),
    ]


async def test_delay_groups_of_a_cluster_are_told_and_a_new_master_obeys_from_the_first(
    tmp_path: Path,
) -> None:
    manifest = tmp_path / "queue.yaml"
    manifest.write_text(
        MANIFEST.replace("FORBIDDEN", "Allowed").replace("minBrokerGroups: 2", "minBrokerGroups: 1")
    )
    cluster = Cluster(tmp_path / "cluster", 1, 1, options=("--delays", "1")).start()
    try:
        wait_until("the delay group is in sync", lambda: _in_sync(cluster) == 2, 60)
        async with Client(cluster.server, settings=SETTINGS) as mq:
            await mq.send("now", b"tide", delay=HOUR_S)
            text = MANIFEST.replace("FORBIDDEN", "Forbidden").replace(
                "minBrokerGroups: 2", "minBrokerGroups: 1"
            )
            manifest.write_text(text)
            done = await asyncio.to_thread(run_command, "apply", "-f", str(manifest), server=cluster.server)
            assert done.returncode == 0, done.stderr
            deadline = asyncio.get_running_loop().time() + 30
            while not await _is_refused(mq):  # each send waits for its answer
                assert asyncio.get_running_loop().time() < deadline
            former = cluster.get("/v1/delays")[0]["master"]
            cluster.post(f"/v1/groups/{former.partition('-')[0]}/handover", {"to": _other(cluster, former)})
            for _ in range(20):
                await refusal(mq.send("now", b"tide", delay=60))
            assert cluster.get("/v1/delays")[0]["master"] != former
    finally:
        cluster.close()


async def _is_refused(mq: Client) -> bool:
    try:
        await mq.send("now", b"tide", delay=HOUR_S)
    except Refused as error:
        return error.kind.name == NAME
    return False


def _in_sync(cluster: Cluster) -> int:
    try:
        return len(cluster.get("/v1/delays")[0]["in_sync"])
    except (OSError, IndexError):
        return 0


def _other(cluster: Cluster, master: str) -> str:
    return next(str(one["name"]) for one in cluster.get("/v1/delays")[0]["brokers"] if one["name"] != master)
