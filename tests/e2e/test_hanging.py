"""A handler that hangs: its client renews, the broker starts again meanwhile, and another one has it in the end."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.asking import send
from e2e.queues import COMMAND, Queue, run_command, wait_until
from e2e.services import environment

pytestmark = pytest.mark.e2e

LEASE_S, LIMIT_S = 5, 8
MANIFEST = f"""
apiVersion: tidemill.dev/v1alpha1
kind: ConsumerGroup
metadata: {{name: billing}}
spec:
  subjectName: orders
  startFrom: {{position: Earliest}}
  delivery: {{ackTimeoutSeconds: {LEASE_S}, maxAckTimeoutSeconds: {LIMIT_S}}}
"""


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Queue]:
    manifest = tmp_path / "group.yaml"
    manifest.write_text(MANIFEST)
    queue = Queue(tmp_path / "data", [manifest]).start()
    yield queue
    queue.close()


def consume(queue: Queue, command: str, output: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "consume", "orders", "-g", "billing", "-n", "1", "--exec", command], text=True,
        stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL,
        env=environment({"TIDEMILL_SERVER": queue.server}),
    )  # fmt: skip


def test_a_handler_that_hangs_keeps_its_message_up_to_the_limit_through_a_restart(orders: Queue) -> None:
    [sent] = send(orders, "orders", "o-1")
    hangs = consume(orders, "sleep 30")
    try:
        wait_until("it has the message", lambda: orders.group("billing")["in_flight"] == 1, 30)
        given = time.monotonic()
        orders.kill()
        orders.start()
        away_s = time.monotonic() - given
        other = consume(orders, "cat", subprocess.PIPE)
        told, _ = other.communicate(timeout=60)
        assert told == "o-1"
        assert time.monotonic() - given >= LIMIT_S - 1, "a lease is renewed until then"
    finally:
        hangs.kill()
        hangs.wait()
    why = run_command("why", sent["id"], server=orders.server).stdout
    held = why.count(" held too long ")
    if away_s > LEASE_S - 2 and not held:  # on a slow machine nobody was there to renew it with
        assert " lease ended " in why
    else:
        assert 1 <= held <= 2, "its own pull may have brought it again before it heard of that"
    assert "acknowledged by" in why
