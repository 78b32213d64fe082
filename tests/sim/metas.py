"""Replicas of meta in a world: the real replica and the real paths over the simulated store, and how they are asked.

A request is what HTTP carries: method, path, body as text; an answer is a status and a value that went through JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

from multidict import MultiDict

from sim.calls import Calls
from sim.storehouse import SimStore
from sim.world import Env
from tidemill.errors import BrokerUnreachable
from tidemill.routes import ROUTES_TIMEOUT_S, _complaint
from tidemill_broker.attendance import BrokerAttendance
from tidemill_broker.doors import Service
from tidemill_host.local import LocalPeer
from tidemill_host.obeying import Obeying
from tidemill_host.refusals import HttpRefused, wire_response
from tidemill_host.routing import Route, Router, Variables
from tidemill_meta.doors.api import Api
from tidemill_meta.doors.replica import Replica
from tidemill_meta.doors.requests import denials, parse_body
from tidemill_meta.doors.watch import Watch, parse_interest
from tidemill_meta.settings import MetaSettings
from tidemill_meta.storing import StoreAway
from tidemill_wire.asking import PATIENCE_SECONDS, MetaRefused, Request
from tidemill_wire.errors import WireError
from tidemill_wire.fencing import Fence
from tidemill_wire.replication import Appoint, Stand, Stood

PORT = 7401
STARTS_EVERY_S = 0.5
LINE_EVERY_S = 0.5
Question = tuple[str, str, str]
"""Method, path, body."""


class MetaNode:
    """One replica's node."""

    def __init__(self, settings: MetaSettings, calls: Calls) -> None:
        self._settings = settings
        self._calls = calls

    async def serve(self, env: Env) -> None:
        """``python -m tidemill_meta``, and what starts it again while the store is away."""
        settings = replace(self._settings, name=f"{env.name}.{env.life}")
        while True:
            replica = Replica(settings, SimStore(self._calls, env), env.clock)
            try:
                await replica.open()
                break
            except StoreAway:
                await asyncio.sleep(STARTS_EVERY_S)
        self._calls.listen(PORT, self._desk(replica, Watch(replica.meta, env.clock)).answer)
        await replica.run()

    def _desk(self, replica: Replica, watch: Watch) -> Desk:
        """Who answers for a replica, and is told what changes."""
        replica.changed = watch.changed
        return Desk(Api(replica, watch), watch)


class Desk:
    """The paths of meta, below HTTP."""

    def __init__(self, api: Api, watch: Watch) -> None:
        self._watch = watch
        asked = {**api.asked(), ("POST", "/v1/watch"): self._line}
        handlers = [(True, asked), (False, api.read())]
        routes: list[Any] = [
            Route(method, path, (has_body, handler))  # type: ignore[arg-type]
            for has_body, table in handlers
            for (method, path), handler in table.items()
        ]
        self._router = Router(routes)

    async def answer(self, question: Question) -> tuple[int, Any]:
        method, address, body = question
        path, _, query = address.partition("?")
        found = self._router.find(path)
        assert found is not None, path
        has_body, handler = found[0][method]  # type: ignore[misc]
        try:
            with denials():
                said = parse_body(body.encode()) if has_body else MultiDict(parse_qsl(query))
                return 200, json.loads(json.dumps(await handler(said, found[1])))
        except HttpRefused as error:
            response = error.response()
        except WireError as error:
            response = wire_response(error)
        return response.status, json.loads(response.body)  # type: ignore[arg-type]

    async def _line(self, body: object, _: Variables) -> object:
        """The line with which a watch stream would begin."""
        line: object = json.loads(self._watch._first(*parse_interest(body)))
        return line


class MetaPort:
    """A replica's HTTP port for a real client. A watch stream is its first line, asked for again and again: what
    changes is told a moment later than it would be, and all of it each time.
    """

    def __init__(self, calls: Calls, host: str) -> None:
        self._calls = calls
        self._host = host

    async def get(self, path: str, timeout_s: float = ROUTES_TIMEOUT_S) -> Any:
        return await self._ask("GET", path, "", timeout_s)

    async def post(self, path: str, body: object, timeout_s: float = ROUTES_TIMEOUT_S) -> Any:
        return await self._ask("POST", path, json.dumps(body), timeout_s)

    async def lines(self, path: str, body: object, silence_s: float) -> AsyncGenerator[Any]:
        while True:
            yield await self._ask("POST", path, json.dumps(body), min(silence_s, ROUTES_TIMEOUT_S))
            await asyncio.sleep(LINE_EVERY_S)

    async def _ask(self, method: str, path: str, body: str, timeout_s: float) -> Any:
        try:
            status, answer = await self._calls.ask(self._host, PORT, (method, path, body), timeout_s)
        except OSError as error:
            raise BrokerUnreachable(f"no answer from {self._host}{path}: {error}") from error
        if status >= 400:
            raise _complaint(status, f"{method} {path}", json.dumps(answer))
        return answer


class Metas:
    """Meta, for one node that asks it: one replica after the other, until one answers."""

    def __init__(self, calls: Calls, names: Sequence[str], rng: random.Random) -> None:
        self._calls = calls
        self._names = rng.sample(names, len(names))

    async def ask(
        self, method: str, path: str, body: Mapping[str, Any], patience_s: float = PATIENCE_SECONDS
    ) -> tuple[int, Any]:
        question = method, path, json.dumps(body)
        answer: tuple[int, Any] = await self._calls.ask(self._names[0], PORT, question, patience_s)
        return answer

    def __len__(self) -> int:
        return len(self._names)

    def turn_away(self) -> None:
        """The next replica is asked from now on."""
        self._names.append(self._names.pop(0))

    async def until_done(self, method: str, path: str, body: Mapping[str, Any], again_s: float) -> None:
        """Again and again, until it is; what is gone already is."""
        while True:
            try:
                status, _ = await self.ask(method, path, body)
            except OSError:
                status = 0
            if status == 200 or (method == "DELETE" and status == 404):
                return
            if status in {0, 503}:
                self.turn_away()
            await asyncio.sleep(again_s)


async def attend(
    service: Service,
    local: LocalPeer,
    attendance: BrokerAttendance,
    metas: Metas,
    woken: asyncio.Event | None = None,
) -> None:
    """What ``host/attending.py`` does, over the simulated network. ``woken``: a beat need not wait for its time. Until
    cancelled.
    """
    obeying = Obeying(local)
    woken = woken or asyncio.Event()
    while True:
        woken.clear()
        for _ in range(len(metas)):
            try:
                await _beat(service, (local, obeying), attendance, metas)
                break
            except OSError:
                metas.turn_away()
            except (MetaRefused, WireError):
                metas.turn_away()
                break
        with suppress(TimeoutError):
            async with asyncio.timeout(attendance.beat_s):
                await woken.wait()


async def _beat(
    service: Service, peer: tuple[LocalPeer, Obeying], attendance: BrokerAttendance, metas: Metas
) -> None:
    local, obeying = peer
    stood = await local.ask(Stand(asks=True))
    assert isinstance(stood, Stood)
    due = attendance.beat(stood, service.state)
    while due is not None:
        if isinstance(due, Request):
            due = attendance.answered(*await metas.ask(due.method, due.path, due.body, due.patience_s))
            continue
        answer: object = None
        if not isinstance(due, Appoint | Fence):
            answer = service.heed(due)
        elif (answer := await obeying.ask(due, attendance.beat_s / 2)) is None:
            return
        due = attendance.answered(200, answer)
