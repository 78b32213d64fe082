"""`tidemill consume --exec`: a command handles messages, and its exit code says how that ended."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.asking import post, send
from e2e.queues import COMMAND, Queue, run_command, wait_until
from e2e.services import environment

pytestmark = pytest.mark.e2e

MANIFEST = """
apiVersion: tidemill.dev/v1alpha1
kind: ConsumerGroup
metadata: {name: billing}
spec:
  subjectName: orders
  startFrom: {position: Earliest}
  delivery: {maxAttempts: 2, minRetrySeconds: 0, retryBackoffSeconds: [1], ackTimeoutSeconds: 30}
"""


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Queue]:
    manifest = tmp_path / "group.yaml"
    manifest.write_text(MANIFEST)
    queue = Queue(tmp_path / "data", [manifest]).start()
    yield queue
    queue.close()


def consume(queue: Queue, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    return run_command(
        "consume", "orders", "-g", "billing", "--timeout", "30", "--exec", command, *options,
        server=queue.server,
    )  # fmt: skip


def test_a_command_has_the_message_and_acknowledges_it_by_ending_well(orders: Queue) -> None:
    message = {
        "text": "a\nb", "key": "k\u0000é", "order_key": "o", "tags": ["x", "y"], "properties": {"sugar": 2},
        "priority": 3,
    }  # fmt: skip
    [sent] = post(orders, "/v1/subjects/orders/messages", message).value["messages"]
    names = [
        "ID",
        "SUBJECT",
        "GROUP",
        "SEQUENCE",
        "KEY",
        "ORDER_KEY",
        "TAGS",
        "PROPERTIES",
        "PRIORITY",
        "ATTEMPTS",
    ]
    shown = " ".join(f'"$TIDEMILL_{name}"' for name in names)
    done = consume(orders, f"cat; printf '|%s' {shown}", "-n", "1")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("|") == [
        "a\nb", sent["id"], "orders", "billing", str(sent["sequence"]), "k\ufffdé", "o", "x,y",
        '{"sugar": 2}', "3", "0",
    ]  # fmt: skip
    row = orders.group("billing")
    assert (row["acked"], row["lag"], row["in_flight"], row["failed"]) == (1, 0, 0, 0)


def test_a_command_that_ends_badly_is_a_failure_with_its_last_words(orders: Queue) -> None:
    send(orders, "orders", "no", "yes")
    script = "read body; echo looking >&2; [ \"$body\" = yes ] || { echo 'no such customer' >&2; echo >&2; exit 3; }"
    done = consume(orders, script, "-n", "3")

    assert done.returncode == 0
    assert done.stderr.count("looking\n") == 3
    assert done.stderr.count(" failed, exit code 3: no such customer\n") == 2
    wait_until("it is given up", lambda: orders.group("billing")["dead"] == 1)
    listed = run_command("dead", "list", "orders", "-g", "billing", "-o", "json", server=orders.server)
    [letter] = [json.loads(line) for line in listed.stdout.splitlines()]
    assert (letter["attempts"], letter["reason"]) == (2, "exit code 3: no such customer")
    assert orders.group("billing")["acked"] == 1


def test_a_command_that_is_killed_or_reads_nothing_is_told_by_that_alone(orders: Queue) -> None:
    send(orders, "orders", "x" * 500_000)
    done = consume(orders, "[ $TIDEMILL_ATTEMPTS -gt 0 ] || kill -9 $$", "-n", "2")

    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith(" failed, killed by SIGKILL\n")
    assert orders.group("billing")["acked"] == 1


def test_as_json_the_command_is_given_the_whole_message(orders: Queue) -> None:
    send(orders, "orders", "tea")
    done = consume(orders, "cat", "-n", "1", "-o", "json")

    assert json.loads(done.stdout)["body"] == "tea"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_at_work_ends_before_its_message_is_settled(
    orders: Queue, tmp_path: Path, number: signal.Signals
) -> None:
    send(orders, "orders", "first", "second")
    begun, go = tmp_path / "begun", tmp_path / "go"
    script = f"touch {begun}; while [ ! -e {go} ]; do sleep 0.05; done; cat"
    process = subprocess.Popen(
        [*COMMAND, "consume", "orders", "-g", "billing", "--exec", script],
        env=environment({"TIDEMILL_SERVER": orders.server}), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        wait_until("it is at work", begun.exists, 30)
        process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        assert orders.group("billing")["acked"] == 0
        go.touch()
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()

    assert (process.returncode, out, err) == (0, b"first", b"")
    row = orders.group("billing")
    assert (row["acked"], row["lag"], row["in_flight"]) == (1, 1, 0)
