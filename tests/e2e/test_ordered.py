"""Order keys on a real queue: the example of ``docs/ordered.md``, and a consumer that is killed in the middle."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from e2e.conftest import MakeQueue
from e2e.queues import BROKER, COMMAND, Queue, environment, wait_until
from tidemill import Client

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).parents[2] / "docs" / "ordered.md"
EXAMPLE = re.compile(r"^```python\n(# orders\.py.*?)^```$", re.MULTILINE | re.DOTALL)
ORDERS, STEPS = 5, 40


def example(folder: Path) -> Path:
    found = EXAMPLE.search(PAGE.read_text())
    assert found is not None
    path = folder / "orders.py"
    path.write_text(found[1])
    return path


def start(queue: Queue, script: Path, output: Path) -> subprocess.Popen[bytes]:
    with output.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, str(script)], env=environment() | {"TIDEMILL_SERVER": queue.server}, stdout=file
        )


def steps_of(output: Path, order: str) -> list[str]:
    lines = [line.split() for line in output.read_text().splitlines()]
    return [words[1] for words in lines if words[0] == order]


@pytest.mark.parametrize("command", [BROKER, COMMAND], ids=["broker", "tidemill up"])
def test_example_handles_each_order_in_its_order(
    make_queue: MakeQueue, tmp_path: Path, command: Sequence[str]
) -> None:
    """Also where meta stands beside the broker, and allots."""
    queue = make_queue(command=command).start()
    output = tmp_path / "output"
    process = start(queue, example(tmp_path), output)
    wait_until("all was handled", lambda: len(output.read_text().splitlines()) == 9, 60)
    process.send_signal(signal.SIGTERM)

    assert process.wait(30) == 0
    for order in ("o-1", "o-2", "o-3"):
        assert steps_of(output, order) == ["paid", "packed", "sent"]


def test_killed_worker_is_followed_in_order(queue: Queue, tmp_path: Path) -> None:
    """Nothing is skipped; what the killed one had begun or not acked comes again, from there on in order."""
    script, output = tmp_path / "worker.py", tmp_path / "output"
    lines = example(tmp_path).read_text().replace("asyncio.run(main())", "worker.run()")
    script.write_text(lines)

    async def send() -> None:
        async with Client(queue.server) as mq:
            for step in range(STEPS):
                for order in range(ORDERS):
                    await mq.send("order.changed", str(step), order_key=f"o-{order}")

    asyncio.run(send())
    first = start(queue, script, output)
    wait_until("some were handled", lambda: len(output.read_text().splitlines()) > 20, 60)
    first.kill()
    first.wait(30)
    second = start(queue, script, output)
    last = str(STEPS - 1)
    wait_until(
        "all were handled",
        lambda: all(last in steps_of(output, f"o-{order}") for order in range(ORDERS)),
        120,
    )
    second.send_signal(signal.SIGTERM)

    assert second.wait(30) == 0
    for order in range(ORDERS):
        reached = -1
        for step in map(int, steps_of(output, f"o-{order}")):
            assert step <= reached + 1
            reached = max(reached, step)
        assert reached == STEPS - 1


DIARY = """
import asyncio, os, time
from tidemill import Worker

worker = Worker()


def note(what, message):
    line = f"{time.monotonic()} {os.getpid()} {what} {message.order_key} {message.body.decode()}\\n"
    os.write(1, line.encode())


@worker.on("order.changed", group="warehouse", by_key=True, concurrency=10)
async def handle(message):
    note("began", message)
    await asyncio.sleep(0.05)
    note("ended", message)


worker.run()
"""


def entries(output: Path) -> list[tuple[float, int, str, str, int]]:
    rows = [line.split() for line in output.read_text().splitlines()]
    return sorted((float(at), int(pid), what, key, int(step)) for at, pid, what, key, step in rows)


def handled_up_to(found: list[tuple[float, int, str, str, int]]) -> list[int]:
    """The last step of each order that a handler came to the end of."""
    return [
        max((step for _, _, what, key, step in found if (what, key) == ("ended", f"o-{order}")), default=-1)
        for order in range(ORDERS)
    ]


def test_worker_that_stood_still_begins_nothing_of_what_went_to_another(queue: Queue, tmp_path: Path) -> None:
    """Stopped for longer than its leases and its lock. What it was in the middle of it ends; that nobody can help."""
    script, output = tmp_path / "diary.py", tmp_path / "output"
    script.write_text(DIARY)
    steps = 300

    async def send() -> None:
        async with Client(queue.server) as mq:
            for step in range(steps):
                sends = [
                    mq.send("order.changed", str(step), order_key=f"o-{order}") for order in range(ORDERS)
                ]
                await asyncio.gather(*sends)

    asyncio.run(send())
    first = start(queue, script, output)
    wait_until("some were handled", lambda: len(output.read_text().splitlines()) > 50, 60)
    second = start(queue, script, output)
    wait_until("the second one waits", lambda: queue.group("warehouse")["consumers"] == 2, 30)
    first.send_signal(signal.SIGSTOP)
    wait_until("the second one begins", lambda: any(one[1] == second.pid for one in entries(output)), 120)
    first.send_signal(signal.SIGCONT)
    wait_until("all were handled", lambda: handled_up_to(entries(output)) == [steps - 1] * ORDERS, 120)
    for process in (first, second):
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0

    found = entries(output)
    taken_over = min(at for at, pid, *_ in found if pid == second.pid)
    assert not [one for one in found if one[1] == first.pid and one[2] == "began" and one[0] > taken_over]
    for order in range(ORDERS):
        handled = -1
        for _, _, what, key, step in found:
            if key == f"o-{order}" and what == "began":
                assert step <= handled + 1
            elif key == f"o-{order}":
                handled = max(handled, step)
        assert handled == steps - 1
