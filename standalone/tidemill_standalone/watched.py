"""What is asked for where `tidemill up` runs a lone broker: meta and a canary beside it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from tidemill_broker.doors.neighbour import House
from tidemill_broker.settings import BrokerSettings
from tidemill_host.locks import Locks
from tidemill_host.log import warning
from tidemill_standalone.beside import MetaBeside
from tidemill_standalone.canary import CANARY, TOLD, Perch, canary_of
from tidemill_standalone.children import Pauses, how, started
from tidemill_wire.declarations import Declaration

END_SECONDS = 5.0


class MetaAndCanary(MetaBeside):
    """A lone broker's neighbours, when a canary is one of them."""

    def __init__(
        self,
        perch: Perch,
        arguments: House,
        declarations: Sequence[Declaration],
        settings: BrokerSettings,
    ) -> None:
        os.environ[TOLD] = perch.address
        super().__init__(arguments, declarations, settings)
        self._perch = perch
        self._locks: Locks = arguments.locks
        self._host = str(arguments.host)

    async def keep(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().keep(), name="meta and later")
            tasks.create_task(self._look(), name=CANARY)

    async def _look(self) -> NoReturn:
        await self._opened.wait()
        child = canary_of(self._perch, self._locks, (self._host, self._ports[1]))
        loop, pauses = asyncio.get_running_loop(), Pauses()
        while True:
            pauses.begun(loop.time())
            process = await started(child)
            try:
                code = await _until_it_ends(process)
            finally:
                await _end(process)
            wait_s = pauses.ended(loop.time())
            warning(
                CANARY,
                f"{CANARY}, process {process.pid}, ended by itself ({how(code)}): started again in {wait_s:g} s",
            )
            await asyncio.sleep(wait_s)


async def _until_it_ends(process: asyncio.subprocess.Process) -> int:
    assert process.stdout is not None
    async for _ in process.stdout:
        pass  # it says where its page is, which is known
    return await process.wait()


async def _end(process: asyncio.subprocess.Process) -> None:
    """It, too, when this one ends."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):  # it has just ended
        process.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        if process.returncode is None:
            process.kill()
