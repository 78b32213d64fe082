"""``tidemill worker`` as it is run: signals, exit codes, banner, reload, and the example of its page."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.queues import Queue, run_command, wait_until
from e2e.services import environment
from e2e.workers import Line, Workers
from tidemill import Client

pytestmark = pytest.mark.e2e

REDELIVERY_SECONDS = 1.0
PAGE = Path(__file__).parents[2] / "docs" / "worker.md"
EXAMPLE = re.compile(r"^```python\n(# shop\.py\n.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def workers(queue: Queue, tmp_path: Path) -> Iterator[Workers]:
    made = Workers(tmp_path, queue)
    yield made
    made.close()


def send(queue: Queue, count: int, subject: str = "orders") -> list[str]:
    bodies = [f"{number}" for number in range(count)]

    async def sending() -> None:
        async with Client(queue.server) as mq:
            await mq.send_many(subject, [body.encode() for body in bodies])

    asyncio.run(sending())
    return bodies


def settled(queue: Queue, count: int) -> Callable[[], bool]:
    """Everything was acknowledged, and nothing is left."""

    def holds() -> bool:
        rows = [row for row in queue.get("/v1/groups") if row["group"] == "workers"]
        left = sum(row["lag"] + row["in_flight"] + row["failed"] for row in rows)
        return sum(row["acked"] for row in rows) == count and not left

    return holds


def begun_by(workers: Workers, pid: int) -> list[Line]:
    return [line for line in workers.diary("began") if line.pid == pid]


def test_sigterm_finishes_what_runs_and_gives_back_the_rest_within_a_second(
    queue: Queue, workers: Workers
) -> None:
    send(queue, 40)
    # Long enough for the second one to begin, on a machine that does much beside it, before ten more do.
    first = workers.start(CONCURRENCY="10", PAUSE="15")
    wait_until("ten handlers run", lambda: len(begun_by(workers, first.pid)) == 10)
    second = workers.start(CONCURRENCY="40", PAUSE="0.01")
    wait_until("the second one has what the first has no room for", lambda: begun_by(workers, second.pid))
    before = len(begun_by(workers, second.pid))
    told = time.monotonic()
    first.send_signal(signal.SIGTERM)
    wait_until("the rest was begun", lambda: len(begun_by(workers, second.pid)) == 30)
    given = [line.at for line in begun_by(workers, second.pid)[before:]]
    assert len(given) >= 10, "the first one held messages that were not begun"
    assert max(given) - told <= REDELIVERY_SECONDS
    assert first.wait(60) == 0
    wait_until("all are acknowledged", settled(queue, 40))
    assert len(workers.diary("began")) == len(workers.diary("acked")) == 40


@pytest.mark.parametrize("how, code", [("drain_seconds are over", 3), ("a second signal", 4)])
def test_what_cannot_be_finished_is_given_back_at_once(
    queue: Queue, workers: Workers, how: str, code: int
) -> None:
    send(queue, 5)
    first = workers.start(CONCURRENCY="5", PAUSE="600", DRAIN="0.5" if code == 3 else "600")
    wait_until("five handlers run", lambda: len(begun_by(workers, first.pid)) == 5)
    second = workers.start(CONCURRENCY="5", PAUSE="0.01")
    wait_until("the second one is ready", lambda: queue.group("workers").get("consumers", 2) == 2)
    first.send_signal(signal.SIGTERM)
    if code == 4:
        wait_until("it has heard", lambda: "worker_drains" in workers.errors(first))
        first.send_signal(signal.SIGTERM)
    told = time.monotonic()
    assert first.wait(30) == code
    wait_until("all are acknowledged", settled(queue, 5))
    assert max(line.at for line in begun_by(workers, second.pid)) - told <= 0.5 + REDELIVERY_SECONDS
    assert "given back" in workers.errors(first)


def test_several_processes_share_the_work_are_replaced_and_drain_together(
    queue: Queue, workers: Workers
) -> None:
    workers_all = workers.start("--processes", "2", "--concurrency", "4", CONCURRENCY="99", PAUSE="0.05")
    send(queue, 100)
    wait_until("two work", lambda: len({line.pid for line in workers.diary()}) == 2)
    assert "concurrency 4" in workers.errors(workers_all)
    victim = workers.diary()[0].pid
    os.kill(victim, signal.SIGKILL)
    send(queue, 400)  # more than the other one handles until then
    wait_until("another took its place", lambda: len({line.pid for line in workers.diary()}) == 3, 30)
    wait_until("all are acknowledged", settled(queue, 500), 40)
    workers_all.send_signal(signal.SIGINT)
    assert workers_all.wait(30) == 0
    assert f"process {victim} ended by itself, exit code -9" in workers.errors(workers_all)


def test_children_drain_when_the_process_above_them_is_killed(queue: Queue, workers: Workers) -> None:
    above = workers.start("--processes", "2")
    send(queue, 10)
    wait_until("one works", lambda: workers.diary("acked"))
    above.kill()
    wait_until("no process consumes any more", lambda: "worker" not in _commands(workers.folder), 20)


def _commands(folder: Path) -> str:
    """Command lines of the processes that run in a folder."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "cwd") == str(folder):
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue  # it ended meanwhile, or is not ours to see
    return "\n".join(found)


def test_a_change_is_named_drained_and_run_and_a_broken_file_is_waited_for(
    queue: Queue, workers: Workers
) -> None:
    process = workers.start("--reload", "--processes", "2")
    module = workers.folder / "shop.py"
    good = module.read_text()
    send(queue, 1)
    wait_until("it works", lambda: workers.diary("acked"), 60)
    # The other one may be reading the module still, and would find the mistake before anybody noticed a change.
    wait_until("both work", lambda: queue.group("workers")["consumers"] == 2, 60)
    put(module, good + "\nx = (\n")
    wait_until("it says where", lambda: "waiting for the next change" in workers.errors(process), 60)
    said = workers.errors(process)
    assert "changed: shop.py" in said
    assert re.search(r"^tidemill: shop\.py:\d+: '\(' was never closed: correct it there$", said, re.MULTILINE)
    assert "Traceback" not in said
    assert said.count("correct it there") == said.count("waiting for the next change") == 1
    put(module, good.replace('"began"', '"renewed"'))
    send(queue, 1)
    wait_until("the new code works", lambda: workers.diary("renewed"), 60)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def put(file: Path, text: str) -> None:
    """At once, as editors do: who looks between two writes sees an empty file, which is a change of its own."""
    other = file.with_suffix(".new")
    other.write_text(text)
    other.replace(file)


def test_the_banner_and_the_metrics_say_what_is_done(queue: Queue, workers: Workers) -> None:
    process = workers.start("--metrics-port", "0")
    send(queue, 3)
    wait_until("all are acknowledged", lambda: len(workers.diary("acked")) == 3)
    said = workers.errors(process)
    assert "orders -> handle: group workers, concurrency 50, async" in said
    port = re.search(r"metrics_page http port (\d+)", said)
    assert port is not None
    with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'tidemill_worker_handled_total{handler="handle",group="workers"} 3' in text
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def test_a_worker_starts_without_a_queue_says_so_once_and_works_when_it_comes(
    queue: Queue, workers: Workers
) -> None:
    assert queue.stop() == 0
    process = workers.start()
    wait_until("it says so", lambda: "no_broker_yet" in workers.errors(process))
    queue.start()
    send(queue, 1)
    wait_until("it works", settled(queue, 1), 20)
    assert workers.errors(process).count("no_broker_yet") == 1
    queue.kill()
    wait_until("it says so again", lambda: "broker_away" in workers.errors(process))
    queue.start()
    wait_until("it is back", lambda: "broker_back" in workers.errors(process), 20)
    assert workers.errors(process).count("broker_away") == 1


def test_a_rejected_message_is_a_dead_letter_at_once(queue: Queue, tmp_path: Path) -> None:
    module = (
        "from tidemill import Reject, Worker\nworker = Worker()\n\n\n"
        "@worker.on('orders', group='workers')\ndef handle(message):\n    raise Reject('no such customer')\n"
    )
    workers = Workers(tmp_path, queue, module)
    try:
        process = workers.start()
        send(queue, 2)
        wait_until("both are dead", lambda: dead_letters(queue) == 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        workers.close()
    assert workers.errors(process).count("handler_rejects") == 2


def dead_letters(queue: Queue) -> int:
    return sum(row["dead"] for row in queue.get("/v1/groups") if row["group"] == "workers")


def test_a_worker_ends_in_time_though_the_queue_is_away(queue: Queue, workers: Workers) -> None:
    """What it has done and could not tell is handled again: at least once."""
    send(queue, 50)
    process = workers.start(CONCURRENCY="5", PAUSE="1", DRAIN="3")
    wait_until("five handlers run", lambda: len(begun_by(workers, process.pid)) == 5)
    queue.kill()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 3
    assert len(workers.diary("ended")) == 5
    queue.start()
    workers.start(CONCURRENCY="50", PAUSE="0.01")
    wait_until("all are acknowledged", settled(queue, 50), 30)


WRONG = {
    "no colon": ("shop", "", "MODULE:WORKER"),
    "no module": ("absent:worker", "", "there is no module absent"),
    "no worker": ("shop:absent", "x = 1", "no worker called absent"),
    "no Worker": ("shop:x", "x = 1", "no worker called x"),
    "no handler": ("shop:w", "from tidemill import Worker\nw = Worker()", "has no handler"),
    "syntax": ("shop:w", "def f(:\n", "shop.py:1: "),
    "raises": ("shop:w", "\n1 / 0\n", "ZeroDivisionError: division by zero at shop.py:2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_module_that_cannot_be_used_is_one_sentence(tmp_path: Path, name: str) -> None:
    target, text, named = WRONG[name]
    (tmp_path / "shop.py").write_text(text)
    done = run_command("worker", target, cwd=tmp_path)
    lines = [line for line in done.stderr.splitlines() if line.startswith("tidemill: ")]
    assert done.returncode == 2, done
    assert len(lines) == 1
    assert named in lines[0]
    assert "Traceback" not in done.stderr


def test_the_example_of_the_page_runs(queue: Queue, tmp_path: Path) -> None:
    found = EXAMPLE.search(PAGE.read_text())
    assert found is not None
    (tmp_path / "shop.py").write_text(found[1])
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "shop.py"], cwd=tmp_path, stdout=said, stderr=said,
            env=environment({"TIDEMILL_SERVER": queue.server}),
        )  # fmt: skip
    try:
        run_command("send", "order.created", "o-1", server=queue.server)
        wait_until("it was handled", lambda: "charged o-1" in (tmp_path / "said").read_text(), 20)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
