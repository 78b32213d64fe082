"""A broker of a group attends meta: registers, says each second how it stands, and obeys what it is answered.

What is said and obeyed is ``attendance.py``'s business; here it is carried over HTTP. Whatever goes wrong on the way is
tried again with the next beat, at the next replica of meta. Meta away stops nothing by itself.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import aiohttp

from tidemill_broker.attendance import (
    BEAT_SECONDS,
    PATIENCE_SECONDS,
    Attendance,
    Identity,
    MetaRefused,
    Next,
    Request,
)
from tidemill_host.local import LocalPeer
from tidemill_wire.errors import WireError
from tidemill_wire.replication import Stand, Stood


class Attending:
    """One broker and its metas. ``keep`` runs until it is cancelled."""

    def __init__(self, local: LocalPeer, identity: Identity, metas: Sequence[str]) -> None:
        self._local = local
        self._attendance = Attendance(identity)
        self._metas = list(metas)
        self._complaint = ""

    async def keep(self) -> None:
        """Beat after beat."""
        timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                try:
                    await self._beat(session)
                    self._complaint = ""
                except (
                    aiohttp.ClientError,
                    TimeoutError,
                    OSError,
                    ValueError,
                    MetaRefused,
                    WireError,
                ) as error:
                    self._complain(error)
                    self._metas.append(self._metas.pop(0))
                await asyncio.sleep(BEAT_SECONDS)

    def _complain(self, error: Exception) -> None:
        """Once for each thing that is wrong: a beat is a second."""
        said = f"meta at {self._metas[0]}: {' '.join(str(error).split()) or type(error).__name__}"
        if said != self._complaint:
            sys.stderr.write(f"tidemill: {said}\n")
            self._complaint = said

    async def _beat(self, session: aiohttp.ClientSession) -> None:
        stood = await self._local.ask(Stand(asks=True))
        assert isinstance(stood, Stood)
        due: Next | None = self._attendance.beat(stood)
        while due is not None:
            if isinstance(due, Request):
                due = self._attendance.answered(*await self._ask(session, due))
            else:
                await self._local.ask(due)
                due = self._attendance.answered(200, {})

    async def _ask(self, session: aiohttp.ClientSession, request: Request) -> tuple[int, object]:
        url = f"http://{self._metas[0]}{request.path}"
        async with session.request(request.method, url, json=request.body) as response:
            return response.status, await response.json(content_type=None)
