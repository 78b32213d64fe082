"""The HTTP gateway below HTTP: the real requests' way through it, and clients that have nothing but HTTP.

A request travels as a call (``calls.py``): path, head and body, and a status and a JSON value back. What aiohttp does
on both sides is not modelled; an answer that cannot be written, because its connection is gone, is.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from aiohttp import HttpVersion11, web
from multidict import CIMultiDict

from sim.calls import HAS_GONE, NEVER, Calls
from sim.checkers import Ack, Delivery, Outcome, Send, ended, place_of
from sim.clients import GAP_S, SIZES
from sim.lanes import draw_priority
from sim.world import Env
from tidemill_broker.doors.gateway import GROUP, MESSAGES, Gateway
from tidemill_broker.doors.gateway_receipts import Receipts
from tidemill_host.refusals import HttpRefused, wire_response
from tidemill_host.routing import Router
from tidemill_wire.errors import WireError

if TYPE_CHECKING:
    from sim.worked import Worked

PORT = 7401
BROKEN_ONE_IN = 15
PATIENCE_S = 3.0
TRIES_MAX = 4
VISITED = "all"
"""The consumer group: it wants everything."""
Question = tuple[str, Mapping[str, str], bytes]
"""Path, head, body of a POST."""


class Body:
    """A body that has come."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def is_eof(self) -> bool:
        return True

    def read_nowait(self) -> bytes:
        return self._data


class Paper:
    """Where an answer is written; ``broken``: its connection is gone, as it is when nobody waits for it any more."""

    length: int | None = None
    output_size = 0

    def __init__(self, *, broken: bool) -> None:
        self._broken = broken

    async def write_headers(self, _status: str, _headers: object) -> None:
        if self._broken or HAS_GONE.get()():
            raise ConnectionResetError("nobody reads this answer")

    def send_headers(self) -> None:
        return

    async def write_eof(self, _data: bytes = b"") -> None:
        return


class Asking:
    """As much of aiohttp's request as the gateway, and an answer to it, look at."""

    method, query_string, version, keep_alive, transport = "POST", "", HttpVersion11, True, None

    def __init__(self, question: Question, *, broken: bool) -> None:
        _, head, body = question
        self.headers = CIMultiDict(head)
        self.content_type = head.get("Content-Type", "application/octet-stream")
        self.content_length, self.body_exists = len(body), bool(body)
        self.content = Body(body)
        self._payload_writer = Paper(broken=broken)

    async def _prepare_hook(self, _response: object) -> None:
        return


class Door:
    """A life of the gateway."""

    def __init__(self, gateway: Gateway, rng: random.Random) -> None:
        self._router = Router(gateway.routes())
        self._rng = rng

    async def answer(self, question: Question) -> tuple[int, Any]:
        found = self._router.find(question[0])
        assert found is not None, question[0]
        handler: Any = found[0]["POST"]
        request = Asking(question, broken=self._rng.randrange(BROKEN_ONE_IN) == 0)
        try:
            response = await handler(cast("web.BaseRequest", request), found[1])
        except HttpRefused as error:
            response = error.response()
        except WireError as error:
            response = wire_response(error)
        except ConnectionError:
            return cast("tuple[int, Any]", NEVER)
        return response.status, json.loads(response.body)


@dataclass(frozen=True, slots=True)
class Given:
    """A message as HTTP gave it."""

    name: str
    place: str
    receipt: str


class Visiting:
    """A node that sends and receives over HTTP: a send without an answer is said again with the same key."""

    def __init__(self, cluster: Worked, calls: Calls) -> None:
        self._cluster = cluster
        self._calls = calls
        self._number = 0

    async def run(self, env: Env) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send(env))
            tasks.create_task(self._receive(env))

    async def _ask(
        self, path: str, names: Mapping[str, str], head: Mapping[str, str], body: bytes
    ) -> tuple[int, Any]:
        question = path.format(**names), head, body
        found: tuple[int, Any] = await self._calls.ask("s1", PORT, question, PATIENCE_S)
        return found

    # -- sending -----------------------------------------------------------------------------------------------

    async def _send(self, env: Env) -> None:
        while not env.quiet.is_set():
            self._number += 1
            subject = env.rng.choice(self._cluster.groups[VISITED].subjects)
            name = f"{env.name}.{self._number}"
            body = name.encode() + b"|" + env.rng.randbytes(env.rng.choice(SIZES))
            key = env.rng.choice(("", "key"))
            send = Send(name, env.name, subject, body, self._cluster.promises[subject], key, env.loop.now)
            send.priority = draw_priority(self._cluster.priorities, name)
            await self._say(env, self._cluster.history.sending(send))
            await asyncio.sleep(env.rng.expovariate(1.0 / (2 * GAP_S)))
        self._cluster.finished.add(env.name)

    async def _say(self, env: Env, send: Send) -> None:
        head = {
            "Content-Type": "application/octet-stream",
            "Idempotency-Key": send.message,
            "Tidemill-Priority": str(send.priority),
        } | ({"Tidemill-Key": send.key} if send.key else {})
        for number in range(TRIES_MAX):
            self._cluster.probe("http_again", number > 0)
            try:
                status, said = await self._ask(MESSAGES, {"subject": send.subject}, head, send.body)
            except OSError:
                await asyncio.sleep(env.rng.random())
                continue
            if status == 200:
                send.place = place_of(send.subject, said["messages"][0]["sequence"])
                ended(send, Outcome.OK, env.loop.now)
                return
            if not said["error"]["retryable"]:
                self._cluster.problems.append(f"refused: {send.message}: {status} {said}")
            await asyncio.sleep(env.rng.random())
        ended(send, Outcome.UNKNOWN, env.loop.now)

    # -- receiving ---------------------------------------------------------------------------------------------

    async def _receive(self, env: Env) -> None:
        while True:
            subject = env.rng.choice(self._cluster.groups[VISITED].subjects)
            names = {"subject": subject, "group": VISITED}
            asked = {
                "consumer": env.name,
                "max": env.rng.choice((1, 5, 50)),
                "wait_ms": env.rng.choice((0, 300)),
            }
            try:
                status, said = await self._post(f"{GROUP}/receive", names, asked)
                if status == 200:
                    rows = said["messages"]
                    given = [self._got(env, subject, row) for row in rows if row["body"]]
                    await self._settle(env, names, given)
                elif not said["error"]["retryable"]:
                    self._cluster.problems.append(f"refused: a receive of {subject}: {status} {said}")
            except OSError:
                pass
            await asyncio.sleep(env.rng.random() * 0.2)

    async def _post(self, path: str, names: Mapping[str, str], value: object) -> tuple[int, Any]:
        head = {"Content-Type": "application/json"}
        return await self._ask(path, names, head, json.dumps(value).encode())

    def _got(self, env: Env, subject: str, row: Mapping[str, Any]) -> Given:
        cluster = self._cluster
        read = Receipts(subject, VISITED).read(row["receipt"])
        asked_s = cluster.granted.get(read[1]) if read is not None else None
        if asked_s is None:
            cluster.problems.append(f"invented: receipt {row['receipt']} of {subject}")
        body = base64.b64decode(row["body"])
        name, place = (
            body.partition(b"|")[0].decode(errors="replace"),
            place_of(row["subject"], row["sequence"]),
        )
        cluster.history.delivered(
            Delivery(
                env.loop.now, asked_s or 0.0, VISITED, env.name, row["subject"], name, place, body,
                row["key"] or "", row["priority"],
            )
        )  # fmt: skip
        cluster.probe("http_given", True)
        return Given(name, place, row["receipt"])

    async def _settle(self, env: Env, names: Mapping[str, str], given: list[Given]) -> None:
        """Ack all; or fail, give back or forget them."""
        if not given:
            return
        how = (
            "ack" if env.quiet.is_set() else env.rng.choices(("ack", "nack", "release", ""), (80, 8, 8, 4))[0]
        )
        if not how:
            return
        acks = [
            self._cluster.history.acking(Ack(VISITED, one.place, one.name, env.loop.now))
            for one in given
            if how == "ack"
        ]
        lost: set[str] | None = None
        value: dict[str, Any] = {"receipts": [one.receipt for one in given]}
        try:
            status, said = await self._post(f"{GROUP}/{how}", names, value)
            if status in {200, 409}:
                lost = set(said["lost"])
        except OSError:
            pass  # nobody knows
        for ack, one in zip(acks, given, strict=False):
            sure = lost is not None and one.receipt not in lost
            ended(ack, Outcome.OK if sure else Outcome.UNKNOWN, env.loop.now)
