"""The kernel's own threads sync real files, and the loop hears of it."""

from __future__ import annotations

import asyncio
import os
import platform
from pathlib import Path

import pytest

from tidemill_host.disk import RealDisk, RealFile
from tidemill_host.kernel import CALLS, OPERATIONS_MAX, KernelSync, kernel_sync

PATIENCE_S = 20


def opened() -> KernelSync:
    kernel = kernel_sync()
    if kernel is None:
        pytest.skip("this system has no queue of asynchronous operations, or none left")
    return kernel


def test_linux_on_a_known_processor_has_the_queue() -> None:
    """Or all tests of this file would be passed over in silence."""

    async def look() -> bool:
        kernel = kernel_sync()
        if kernel is not None:
            kernel.close()
        return kernel is not None

    known = platform.system() == "Linux" and platform.machine() in CALLS
    if not known:
        assert not asyncio.run(look())
    elif int(Path("/proc/sys/fs/aio-nr").read_text()) + OPERATIONS_MAX < int(
        Path("/proc/sys/fs/aio-max-nr").read_text()
    ):
        assert asyncio.run(look())


def test_many_files_are_synced_and_each_end_is_heard_once(tmp_path: Path) -> None:
    async def run() -> None:
        kernel = opened()
        disk = RealDisk(str(tmp_path))
        files = [disk.open(f"{number}.log", create=True) for number in range(4)]
        heard: list[OSError | None] = []
        for turn in range(3 * OPERATIONS_MAX):
            for file in files:
                file.append([b"x" * 100])
            ended = asyncio.Event()

            def done(error: OSError | None, ended: asyncio.Event = ended) -> None:
                heard.append(error)
                ended.set()

            assert kernel.sync(files[: 1 + turn % 4], done)
            async with asyncio.timeout(PATIENCE_S):
                await ended.wait()
        assert heard == [None] * 3 * OPERATIONS_MAX
        kernel.close()
        for file in files:
            file.close()

    asyncio.run(run())


def test_file_may_be_closed_while_it_is_synced(tmp_path: Path) -> None:
    async def run() -> None:
        kernel = opened()
        file = RealDisk(str(tmp_path)).open("a.log", create=True)
        file.append([bytes(1 << 20)])
        ended: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        assert kernel.sync([file], ended.set_result)
        file.close()
        async with asyncio.timeout(PATIENCE_S):
            assert await ended is None
        kernel.close()

    asyncio.run(run())


def test_what_cannot_be_synced_so_is_left_to_the_lane() -> None:
    """A pipe has no disk below it; and more than the queue holds is not begun at all."""

    async def run() -> None:
        kernel = opened()
        reading, writing = os.pipe()
        file = RealFile(writing)
        assert not kernel.sync([file], pytest.fail)
        assert not kernel.sync([], pytest.fail)
        assert not kernel.sync([file] * (OPERATIONS_MAX + 1), pytest.fail)
        kernel.close()
        file.close()
        os.close(reading)

    asyncio.run(run())


def test_part_that_was_begun_is_an_error_and_not_said_to_be_synced(tmp_path: Path) -> None:
    """A second sync of the part that was begun would call it good, whatever became of the first."""

    async def run() -> None:
        kernel = opened()
        reading, writing = os.pipe()
        file = RealDisk(str(tmp_path)).open("a.log", create=True)
        file.append([b"x"])
        ended: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        assert kernel.sync([file, RealFile(writing)], ended.set_result)
        async with asyncio.timeout(PATIENCE_S):
            assert isinstance(await ended, OSError)
        kernel.close()
        file.close()
        os.close(reading)
        os.close(writing)

    asyncio.run(run())
