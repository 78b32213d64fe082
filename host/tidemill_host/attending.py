"""A server of a group attends meta: registers, says each second how it stands, and obeys what it is answered.

What is said and obeyed is its attendance's business; here it is carried over HTTP. Whatever goes wrong on the way is
tried again with the next beat, at the next replica of meta. Meta away stops nothing by itself.

What the service cannot do of what it is answered stops no beat, either: what comes behind it may be what helps.

A service that asks who its clients are hears between its beats that somebody lost something (``hearing.py``); the next
beat comes at once then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import aiohttp

from tidemill_host.hearing import Hearing
from tidemill_host.local import LocalPeer
from tidemill_host.log import warning
from tidemill_host.obeying import Obeying
from tidemill_host.server import Server
from tidemill_wire.asking import MetaRefused, Request
from tidemill_wire.errors import WireError
from tidemill_wire.fencing import Fence
from tidemill_wire.replication import Appoint, Stand, Stood
from tidemill_wire.routes import State


class Attendance(Protocol):
    """What is to be said and done, one after the other; what is no request and no command is for the service."""

    beat_s: float

    def beat(self, stood: Stood, state: State) -> object: ...

    def answered(self, status: int, answer: object) -> object | None: ...


class Door(Protocol):
    """The service that attends."""

    server: Server

    @property
    def problem(self) -> str:
        """What it cannot do yet of what meta said, in a sentence; it says so when all else of the beat is done."""
        ...

    @property
    def state(self) -> State:
        """What its disk lets it take."""
        ...

    def heed(self, due: object) -> object:
        """Do what meta said, and no command says; what is to be answered, if anything. What cannot be done is a
        part of the answer, and no error: that would end the beat.
        """
        ...


class Attending:
    """One server and its metas. ``keep`` runs until it is cancelled."""

    def __init__(
        self, service: Door, attendance: Attendance, metas: Sequence[str], *, hears: bool = False
    ) -> None:
        self._service = service
        self._local = LocalPeer(service.server, lambda _answer: None)
        self._obeying = Obeying(self._local)
        self._attendance = attendance
        self._metas = list(metas)
        self._of_meta, self._of_service = Complaint(), Complaint()
        self._woken = asyncio.Event()
        """Meta has news: the next beat need not wait for its time."""
        self._hearing = Hearing(lambda: service.server.caller, self._metas, self._woken.set)
        self._hears = hears

    async def keep(self) -> None:
        """Beat after beat."""
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
            if self._hears:
                tasks.create_task(self._hearing.keep(session), name="hearing")
            while True:
                self._woken.clear()
                await self._try(session)
                self._of_service.say(self._service.problem)
                await self._pause()

    async def _try(self, session: aiohttp.ClientSession) -> None:
        """A beat, at whichever replica answers."""
        for _ in self._metas:
            try:
                await self._beat(session)
                self._of_meta.say("")
                break
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._pass_over(error)
            except MetaRefused as error:
                # Another one of the group asked first: the next beat goes by what has become of it.
                if error.code != "conflict":
                    self._pass_over(error)
                break
            except (ValueError, WireError) as error:
                self._pass_over(error)
                break

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._attendance.beat_s):
                await self._woken.wait()

    def _pass_over(self, error: Exception) -> None:
        """The next replica is asked from now on; of one that does not answer at once."""
        said = " ".join(str(error).split()) or type(error).__name__
        self._of_meta.say(f"meta at {self._metas[0]}: {said}")
        self._metas.append(self._metas.pop(0))

    async def _beat(self, session: aiohttp.ClientSession) -> None:
        stood = await self._local.ask(Stand(asks=True))
        assert isinstance(stood, Stood)
        due: object | None = self._attendance.beat(stood, self._service.state)
        while due is not None:
            if isinstance(due, Request):
                due = self._attendance.answered(*await self._ask(session, due))
            else:
                answer: object = None
                if not isinstance(due, Appoint | Fence):
                    answer = self._service.heed(due)
                elif (answer := await self._obeying.ask(due, self._attendance.beat_s / 2)) is None:
                    return  # the next beat says again how it stands
                due = self._attendance.answered(200, answer)

    async def _ask(self, session: aiohttp.ClientSession, request: Request) -> tuple[int, object]:
        caller = self._service.server.caller
        url = caller.url(self._metas[0], request.path)
        timeout = aiohttp.ClientTimeout(total=request.patience_s)
        asking = session.request(request.method, url, json=request.body, timeout=timeout, **caller.options())
        async with asking as response:
            return response.status, await response.json(content_type=None)


class Complaint:
    """Said once for each thing that is wrong: a beat is a second."""

    def __init__(self) -> None:
        self._said = ""

    def say(self, sentence: str) -> None:
        """Unless it was the last one; an empty one says that all is well again."""
        if sentence and sentence != self._said:
            warning("attending", sentence)
        self._said = sentence
