"""Messages that programs send again, by Python, the command line and HTTP, over a broker's death: stored once."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import MakeQueue
from e2e.queues import Queue, run_command
from tidemill import Client

pytestmark = pytest.mark.e2e

MANIFEST = """\
apiVersion: tidemill.dev/v1alpha1
kind: Subject
metadata: {name: orders}
spec: {deduplicationSeconds: 3600}
---
apiVersion: tidemill.dev/v1alpha1
kind: Subject
metadata: {name: keyless}
spec: {deduplicationSeconds: 0}
"""


@pytest.fixture
def queue(make_queue: MakeQueue, tmp_path: Path) -> Queue:
    manifest = tmp_path / "subjects.yaml"
    manifest.write_text(MANIFEST)
    return make_queue(manifests=[manifest]).start()


def post(queue: Queue, key: str) -> dict[str, Any]:
    """What the gateway says of a message with a dedup key."""
    request = urllib.request.Request(
        f"http://{queue.server}/v1/subjects/orders/messages", b"over http",
        {"Content-Type": "application/octet-stream", "Tidemill-Dedup-Key": key},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=20) as answer:
        row: dict[str, Any] = json.load(answer)["messages"][0]
    return row


def send(queue: Queue, key: str, subject: str = "orders") -> Any:
    return run_command("send", subject, "x", "--dedup-key", key, "--output", "json", server=queue.server)


async def test_a_key_is_known_to_everybody_also_when_the_broker_was_killed(queue: Queue) -> None:
    async with Client(queue.server) as mq:
        first = await mq.send_many("orders", [b"a", b"b", b"c"], dedup_keys=["1", "2", None])
    posted = post(queue, "3")
    queue.kill()
    queue.start()

    said = json.loads(send(queue, "2").stdout)
    async with Client(queue.server) as mq:
        again = await mq.send("orders", b"again", dedup_key="3")
        found = await mq.find(first[1].id)

    assert said == {"id": first[1].id, "subject": "orders", "sequence": first[1].sequence, "duplicate": True}
    assert (again.id, again.sequence, again.duplicate) == (posted["id"], posted["sequence"], True)
    assert post(queue, "1") == {"id": first[0].id, "sequence": first[0].sequence, "duplicate": True}
    assert found is not None
    assert found.body == b"b"
    assert queue.metrics()["tidemill_messages_duplicate_total"] == 3


async def test_a_subject_without_a_window_says_what_to_do(queue: Queue) -> None:
    done = send(queue, "1", "keyless")

    assert done.returncode == 1
    assert "declare deduplicationSeconds of the subject, or send without a dedup key" in done.stderr
