"""The lanes of a simulated broker, and the kernel that syncs for half of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from sim.disk import SimFile
from tidemill_host.disk import File
from tidemill_host.kernel import Done
from tidemill_host.persist import Lanes


class SimKernel:
    """Syncs as ``tidemill_host.kernel`` does: in a thread that is not the service's, and the loop hears of the end.

    The kernel holds what it syncs: a handle that is closed meanwhile ends nothing.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)

    def sync(self, files: Sequence[File], done: Done) -> bool:
        held = [file.held() for file in files if isinstance(file, SimFile)]
        assert len(held) == len(files)
        job = asyncio.get_running_loop().run_in_executor(self._thread, lambda: [file.sync() for file in held])
        job.add_done_callback(lambda ended: _tell(ended, done))
        return True


def _tell(ended: asyncio.Future[list[None]], done: Done) -> None:
    if ended.cancelled():
        return
    error = ended.exception()
    if error is not None and not isinstance(error, OSError):
        raise error
    done(error)


def make_lanes(*, kernel: bool) -> Lanes:
    """Three lanes, and a kernel that syncs or does not."""
    return Lanes(
        ThreadPoolExecutor(1),
        ThreadPoolExecutor(1),
        ThreadPoolExecutor(4),
        SimKernel() if kernel else None,
    )
