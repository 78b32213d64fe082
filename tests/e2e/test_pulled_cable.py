"""A consumer's machine, or its broker's, is gone without a word: real kernels, each in a network namespace of its own.

What each side knows of it is what its kernel and its own questions say; a connection ends for neither of them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.namespaces import Cut, Network, need_namespaces
from e2e.queues import BROKER, COMMAND, Queue, wait_until
from e2e.services import environment
from tidemill_wire import limits

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 45.0
"""Far more than it takes, and less than a lease."""

CONSUMES = """
import asyncio, sys
from pathlib import Path
from tidemill import Client

async def main():
    server, diary, name = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    async with Client(server) as mq, mq.consume("tide", group="g", name=name) as messages:
        with diary.open("a") as file:
            print("begun", file=file, flush=True)
            async for message in messages:
                print(message.body.decode(), message.attempts, file=file, flush=True)
                if message.body == b"kept":
                    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def network() -> Iterator[Network]:
    need_namespaces()
    made = Network(["broker", "lost", "other"])
    try:
        yield made.start()
    finally:
        made.close()


class Place:
    """A lone broker, and programs elsewhere."""

    def __init__(self, network: Network, folder: Path, stack: ExitStack) -> None:
        self._network, self._folder, self._stack = network, folder, stack
        self.queue = Queue(
            folder / "broker",
            command=(*network.inside("broker"), *BROKER),
            options=("--host", network.address("broker")),
        )
        stack.callback(self.queue.close)
        self.queue.start()
        self.server = f"{network.address('broker')}:{self.queue.http_port}"

    def consume(self, where: str) -> Path:
        """A program that keeps the message it is to keep; its diary."""
        diary = self._folder / where
        diary.touch()
        command = [sys.executable, "-c", CONSUMES, self.server, str(diary), where]
        with (self._folder / f"{where}.err").open("wb") as errors:
            process = subprocess.Popen(
                [*self._network.inside(where), *command], stdout=errors, stderr=errors, env=environment()
            )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return diary

    def send(self, body: str) -> None:
        command = [*self._network.inside("other"), *COMMAND, "send", "tide", body]
        said = environment({"TIDEMILL_SERVER": self.server})
        done = subprocess.run(command, env=said, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr

    def closed(self) -> float:
        """How many connections the broker gave up."""
        with self._network.visit("broker"):
            return self.queue.refused().get("too_slow", 0)

    def opened(self) -> float:
        with self._network.visit("broker"):
            return self.queue.metrics()["tidemill_connections_total"]


@pytest.fixture
def place(network: Network, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(network, tmp_path, stack)


def test_consumer_whose_cable_was_pulled_loses_what_it_held_before_its_lease_ends(
    place: Place, network: Network
) -> None:
    place.send("kept")
    lost = place.consume("lost")
    wait_until("the first one has it", lambda: "kept" in lost.read_text(), PATIENCE_SECONDS)
    other = place.consume("other")
    wait_until("the other one waits", lambda: "begun" in other.read_text(), PATIENCE_SECONDS)

    network.cut("lost", Cut.LINK)
    began = time.monotonic()
    wait_until("the other one is given it", lambda: "kept 1" in other.read_text(), PATIENCE_SECONDS)
    passed = time.monotonic() - began

    assert passed < limits.LEASE_MS_DEFAULT / 1000
    print({"seconds from the cut to another consumer": round(passed, 1)})
    assert place.closed() == 1


def test_broker_whose_cable_was_pulled_is_left_and_found_again(place: Place, network: Network) -> None:
    """A client that only waits for it says PING."""
    place.send("before")
    waits = place.consume("lost")
    wait_until("it is served", lambda: "before" in waits.read_text(), PATIENCE_SECONDS)
    opened = place.opened()

    network.cut("broker", Cut.LINK)
    wait_until("the broker has given it up", lambda: place.closed() == 1, PATIENCE_SECONDS)
    network.heal("broker", Cut.LINK)
    wait_until("it is back", lambda: place.opened() > opened, PATIENCE_SECONDS)
    place.send("after")
    wait_until("it is given what comes", lambda: "after" in waits.read_text(), PATIENCE_SECONDS)
