"""Commands before a person, and before a reader that stands still: what is shown, and what goes on meanwhile."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from e2e.conftest import MakeQueue
from e2e.queues import COMMAND, Queue, run_command, wait_until
from e2e.services import environment
from e2e.terminals import Terminal

pytestmark = pytest.mark.e2e

BAR = "━"
LINES = [b"%099d" % number for number in range(3_000)]
"""More than a pipe holds, and than a terminal shows before it is read."""


def at_a_terminal(queue: Queue, *arguments: str, also: str = "stdout") -> tuple[int, str, str]:
    """A command whose standard error is a terminal, and standard output, too, or a pipe: exit code, shown, piped."""
    with Terminal() as terminal:
        piped = subprocess.PIPE if also == "pipe" else terminal.theirs
        process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=subprocess.DEVNULL, stdout=piped, stderr=terminal.theirs,
            env=environment({"TIDEMILL_SERVER": queue.server, "TERM": "xterm"}),
        )  # fmt: skip
        with process:
            terminal.leave()
            shown = terminal.read_all(60)
            written = process.stdout.read().decode() if process.stdout is not None else ""
        return process.returncode, shown, written


def test_a_person_who_sends_many_sees_a_bar_and_a_sum_and_no_ids(shared_queue: Queue, tmp_path: Path) -> None:
    path = tmp_path / "many"
    path.write_bytes(b"line\n" * 30_000)

    code, shown, _ = at_a_terminal(shared_queue, "send", "cli.watched", "--lines", str(path))

    assert code == 0
    assert BAR in shown
    last = shown.rstrip().rpartition("\n")[2]
    assert re.search(r"30,000 messages sent to cli\.watched in \d+\.\d s$", last), last
    assert shown.count("\n") < 30


def test_ids_of_many_are_written_where_nobody_watches_and_the_bar_where_somebody_does(
    shared_queue: Queue, tmp_path: Path
) -> None:
    path = tmp_path / "many"
    path.write_bytes(b"line\n" * 1_000)

    code, shown, written = at_a_terminal(
        shared_queue, "send", "cli.watched.ids", "--lines", str(path), also="pipe"
    )
    assert (code, len(set(written.split()))) == (0, 1_000)
    assert BAR in shown
    assert "sent to" not in shown

    code, shown, _ = at_a_terminal(
        shared_queue, "send", "cli.watched.json", "--lines", str(path), "-o", "json"
    )
    assert (code, len([json.loads(line) for line in shown.splitlines()])) == (0, 1_000)


def test_what_was_stored_before_a_line_was_refused_is_in_the_sum(shared_queue: Queue, tmp_path: Path) -> None:
    path = tmp_path / "many"
    path.write_bytes(b"line\n" * 15_000 + b"x" * 2_000_000 + b"\n")

    code, shown, _ = at_a_terminal(shared_queue, "send", "cli.watched.part", "--lines", str(path))

    assert code == 1
    said = shown.rstrip().split("\n")[-2:]
    assert "at least 10,000 messages sent to cli.watched.part in " in said[0]
    assert said[1].startswith("tidemill: a message of 2000000 bytes")


@pytest.fixture
def hasty(make_queue: MakeQueue) -> Queue:
    """A queue with short leases, and LINES in it."""
    queue = make_queue(settings={"TIDEMILL_LEASE_MS": "1500"}).start()
    sent = run_command("send", "cli.stalled", "--lines", "-", server=queue.server, stdin=b"\n".join(LINES))
    assert sent.returncode == 0, sent.stderr
    return queue


def wait_while_nobody_reads(queue: Queue, group: str, seconds: float) -> int:
    """Until nothing more is written for so long, or a lease has ended; how many messages were acknowledged then."""
    wait_until("something is pulled", lambda: any(row["in_flight"] for row in queue.get("/v1/groups")), 60)
    acked, since = -1, time.monotonic()
    while time.monotonic() - since < seconds and not queue.metrics()["tidemill_leases_ended_total"]:
        row = queue.get("/v1/groups")
        now = row[0]["acked"] if row else -1
        if now != acked:
            acked, since = now, time.monotonic()
        time.sleep(0.1)
    assert queue.group(group)["in_flight"]
    return acked


@pytest.mark.parametrize("output", ["pipe", "terminal"])
def test_leases_are_renewed_while_nobody_reads_the_output(hasty: Queue, output: str) -> None:
    """`tidemill consume | less`, and a terminal that is halted: what was pulled is given to nobody else."""
    command = [*COMMAND, "consume", "cli.stalled", "--group", "stalled", "-n", str(len(LINES))]
    settings = environment({"TIDEMILL_SERVER": hasty.server})
    with Terminal() as terminal:
        piped = subprocess.PIPE if output == "pipe" else terminal.theirs
        with subprocess.Popen(command, env=settings, stdout=piped) as process:
            terminal.leave()
            assert 0 <= wait_while_nobody_reads(hasty, "stalled", 5) < len(LINES)
            assert hasty.metrics()["tidemill_leases_ended_total"] == 0
            shown = process.stdout.read() if process.stdout is not None else terminal.read_all(60).encode()
            assert process.wait(30) == 0
    assert shown.split() == LINES


def test_a_consumer_that_nobody_reads_ends_when_it_is_told_and_gives_back_what_was_not_read(
    hasty: Queue,
) -> None:
    command = [*COMMAND, "consume", "cli.stalled", "--group", "stuck"]
    settings = environment({"TIDEMILL_SERVER": hasty.server})
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        acked = wait_while_nobody_reads(hasty, "stuck", 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 1
        assert process.stdout is not None
        assert process.stderr is not None
        shown, errors = process.stdout.read(), process.stderr.read()
    assert errors.startswith(b"tidemill: nobody reads the output")
    assert errors.count(b"\n") == 1
    assert hasty.group("stuck")["in_flight"] == 0
    assert [line for line in shown.split(b"\n") if len(line) == 99] == LINES[: hasty.group("stuck")["acked"]]
    assert acked <= hasty.group("stuck")["acked"]
    rest = run_command(
        "consume", "cli.stalled", "-g", "stuck", "--timeout", "5", server=hasty.server
    ).stdout.split()
    assert sorted({*shown.decode().split(), *rest} & {line.decode() for line in LINES}) == [
        line.decode() for line in LINES
    ]
