"""Queues that are always cleaned up, each by its own process id. Every module here is marked ``e2e``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from e2e.queues import BROKER, Queue, wait_until
from e2e.towers import Tower

STANDALONE = (sys.executable, "-m", "tidemill_standalone")
MakeQueue: TypeAlias = Callable[..., Queue]


@pytest.fixture
def make_queue(tmp_path: Path) -> Iterator[MakeQueue]:
    """Makes queues that are not started yet."""
    made: list[Queue] = []

    def make(
        name: str = "data",
        manifests: Sequence[Path] = (),
        settings: Mapping[str, str] | None = None,
        command: Sequence[str] = BROKER,
        options: Sequence[str] = (),
    ) -> Queue:
        made.append(Queue(tmp_path / name, manifests, settings, command, options))
        return made[-1]

    yield make
    for queue in made:
        queue.close()


@pytest.fixture
def queue(make_queue: MakeQueue) -> Queue:
    """One that serves."""
    return make_queue().start()


@pytest.fixture
def queue_with_later(make_queue: MakeQueue) -> Queue:
    """One that serves, with meta and a delay service beside it."""
    queue = make_queue("standalone", command=STANDALONE).start()
    wait_for_later(queue)
    return queue


def wait_for_later(queue: Queue) -> None:
    """Until the delay service, which begins a moment after the broker, is there."""
    wait_until("somebody takes messages for later", lambda: queue.get("/v1/routes")["delays"])


@pytest.fixture(scope="module")
def shared_queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    """One for all tests of a module: an attack must leave it as it was for the next one."""
    queue = Queue(tmp_path_factory.mktemp("shared") / "data")
    yield queue.start()
    queue.close()


@pytest.fixture(scope="module")
def tower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tower]:
    tower = Tower(tmp_path_factory.mktemp("tower"))
    tower.start()
    tower.furnish()
    yield tower
    assert tower.running
    assert tower.errors == ""
    tower.close()


@pytest.fixture
def refused(tower: Tower) -> Iterator[Callable[[str], None]]:
    """Says afterwards that one more was counted, and noted."""
    before, lines = tower.refused(), len(tower.audited())
    said: list[str] = []
    yield said.append
    for code in said:
        assert tower.refused().get(code, 0) > before.get(code, 0), f"{code} was not counted"
        if not any(line["outcome"] == code for line in tower.audited()[lines:]):
            # So many are refused in this second that only their number is noted, by the next line.
            wait_until(f"{code} is noted", lambda: counted_silently(tower, lines), 30)


def counted_silently(tower: Tower, lines: int) -> bool:
    """Whether a line says of refusals before it that were not noted; each look is one more refusal."""
    tower.ask("GET", "/v1/routes", token=None)
    return any("unnoted_before" in line for line in tower.audited()[lines:])
