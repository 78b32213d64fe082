"""Several worker processes: what their ends make of the exit code of the one that looks after them."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from tidemill.cli import supervise
from tidemill.cli.failures import FAILURE, USAGE
from tidemill.cli.supervise import Supervisor


class Child:
    """A process that ends when it is let."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.stdin = self
        self.told: list[int] = []
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def wait(self) -> int:
        return await self.ended

    def send_signal(self, number: int) -> None:
        self.told.append(number)

    def close(self) -> None:
        """Its standard input."""


class Children:
    """Those that a supervisor has started, in their order."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, folder: Path, *, reload: bool, processes: int = 1
    ) -> None:
        monkeypatch.setattr(supervise, "LOOK_S", 0.001)
        monkeypatch.chdir(folder)
        self.made: list[Child] = []
        self.supervisor: Any = Supervisor(["shop:worker"], processes, None, reload=reload)
        monkeypatch.setattr(self.supervisor, "_start", self._start)

    async def _start(self, index: int) -> Child:
        self.made.append(Child(100 + index))
        return self.made[-1]

    def signalled(self) -> None:
        """As SIGTERM does."""
        self.supervisor._signalled()


@pytest.mark.parametrize(
    "code, expected", [(0, 0), (3, 3), (-signal.SIGTERM, 0), (-signal.SIGKILL, FAILURE), (USAGE, USAGE)]
)
async def test_worst_end_of_a_child_is_the_exit_code_but_one_that_had_not_begun_is_none(
    monkeypatch, tmp_path, until, code, expected
):
    """It is told to drain before it listens to signals, and dies of that."""
    children = Children(monkeypatch, tmp_path, reload=False, processes=2)
    running = asyncio.create_task(children.supervisor.run())
    await until(lambda: len(children.made) == 2)
    children.signalled()
    assert [child.told for child in children.made] == [[signal.SIGTERM]] * 2
    children.made[0].ended.set_result(0)
    children.made[1].ended.set_result(code)

    assert await running == expected


async def test_a_module_that_cannot_be_used_ends_all(monkeypatch, tmp_path, until):
    children = Children(monkeypatch, tmp_path, reload=False, processes=2)
    running = asyncio.create_task(children.supervisor.run())
    await until(lambda: len(children.made) == 2)
    children.made[0].ended.set_result(USAGE)
    await until(lambda: children.made[1].told)
    children.made[1].ended.set_result(0)

    assert await running == USAGE


@pytest.mark.parametrize("code", [USAGE, -signal.SIGTERM, 3])
async def test_how_children_ended_before_a_change_says_nothing_of_how_all_ends(
    monkeypatch, tmp_path, until, code
):
    """One that was just reading a broken file when the change was noticed has come to its end by itself."""
    children = Children(monkeypatch, tmp_path, reload=True)
    running = asyncio.create_task(children.supervisor.run())
    await until(lambda: children.made)
    (tmp_path / "shop.py").write_text("x = (\n")
    await until(lambda: children.made[0].told)
    children.made[0].ended.set_result(code)
    await until(lambda: len(children.made) == 2)
    children.signalled()
    children.made[1].ended.set_result(0)

    assert await running == 0
