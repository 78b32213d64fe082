"""Order keys on a real queue: the example of ``docs/ordered.md``, and a consumer that is killed in the middle."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.queues import Queue, environment, wait_until
from tidemill import Client

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

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


def test_example_handles_each_order_in_its_order(queue: Queue, tmp_path: Path) -> None:
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
