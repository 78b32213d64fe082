"""Keeps a cluster on one machine: meta, brokers and delay services as processes, started again when they end.

    state      event                         next
    starting   meta is ready                 the servers are started
    starting   meta ends before it is ready  ended      exit code 1: meta said why
    starting   all groups are led            running    manifests declared, the ready line
    any        a child ended by itself       the same   started again at its ports, after a wait that doubles
    any        SIGTERM, SIGINT               ending     masters drain, then slaves, then meta
    ending     a signal again                ended      all are killed

It decides nothing about the queue: who leads is meta's business.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import aiohttp

from tidemill_broker.doors.greeting import greeting
from tidemill_host.locks import Locks
from tidemill_host.log import warning
from tidemill_host.process import say
from tidemill_standalone.canary import CANARY, Perch, canary_of
from tidemill_standalone.children import Pauses, how, started
from tidemill_standalone.plan import META, Child, Wanted, broker_of, delay_of, delays_of, meta_of, names_of
from tidemill_wire.addresses import address_of
from tidemill_wire.declarations import Declaration
from tidemill_wire.granted import Granted

BECAME = re.compile(rb"(\w+) in epoch (\d+)\n")
READY = re.compile(rb"ready (?:tidemill://.*:(\d+) )?https?://.*:(\d+)\n")
NEXT = ("status", "send hello 'first'", "broker handover g0")
LOOK_SECONDS = 0.1
IN_SYNC_SECONDS = 5.0
"""How long the ready line waits for slaves to be in sync, once all groups are led."""
ASK_SECONDS = 5.0
DRAIN_SECONDS = 15.0
"""A broker drains in 10; what is there then is killed."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Kept:
    """One child: its process, when there is one, and the ports at which it is found again."""

    def __init__(self, name: str, plan: Callable[[tuple[int, int]], Child], ports: tuple[int, int]) -> None:
        self.name = name
        self.ports = ports
        self.asked = ports
        self.process: asyncio.subprocess.Process | None = None
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()
        """It is not started any more."""
        self.plan = plan
        self.role, self.epoch = "", 0
        """What it said last that it is."""

    def tell(self, number: int) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):  # it has just ended
                self.process.send_signal(number)


class Keeper:
    """See the module."""

    def __init__(
        self,
        wanted: Wanted,
        declarations: Sequence[Declaration],
        grants: Mapping[str, Granted],
        locks: Locks,
        perch: Perch | None = None,
    ) -> None:
        self._wanted = wanted
        self._grants = grants
        self._locks = locks
        self._declarations = declarations
        self._meta = Kept(META, lambda ports: meta_of(wanted, ports[1]), (0, wanted.http_port))
        self._brokers = [Kept(name, partial(self._broker, name), (0, 0)) for name in names_of(wanted)]
        self._delays = [Kept(name, partial(self._delay, name), (0, 0)) for name in delays_of(wanted)]
        self._servers = [*self._brokers, *self._delays]
        self._canary = [] if perch is None else [Kept(CANARY, lambda _: self._watcher(perch), (0, 0))]
        self._begun, self._ending = asyncio.Event(), asyncio.Event()
        """Meta was ready, or never will be; and it is over."""
        self._signals = 0
        self._code = 0

    async def run(self) -> int:
        """Until it is told to end; the exit code."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._signalled)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep(self._meta))
            await self._begun.wait()
            if not self._ending.is_set():
                for server in self._servers:
                    tasks.create_task(self._keep(server))
                led = tasks.create_task(self._lead(tasks))
                await self._ending.wait()
                led.cancel()
            await self._end()
        return self._code

    def _broker(self, name: str, ports: tuple[int, int]) -> Child:
        return broker_of(self._wanted, name, ports, self._meta.ports[1])

    def _delay(self, name: str, ports: tuple[int, int]) -> Child:
        return delay_of(self._wanted, name, ports, self._meta.ports[1])

    def _watcher(self, perch: Perch) -> Child:
        return canary_of(perch, self._locks, (self._wanted.host, self._meta.ports[1]))

    # -- one child ------------------------------------------------------------------------------------------------

    async def _keep(self, kept: Kept) -> None:
        """One process, again and again."""
        loop, pauses = asyncio.get_running_loop(), Pauses()
        while not self._ending.is_set():
            pauses.begun(loop.time())
            process = kept.process = await started(kept.plan(kept.ports))
            if self._ending.is_set():
                kept.tell(signal.SIGTERM)
            await self._read(kept, process)
            code = await process.wait()
            kept.process, kept.role = None, ""
            if self._ending.is_set():
                break
            was_ready = kept.ready.is_set()
            kept.ready.clear()
            if kept is self._meta and not was_ready:
                self._code = 1  # it has said why
                self._end_soon()
                break
            if not was_ready:
                kept.ports = kept.asked  # somebody may have taken the others meanwhile
            wait_s = pauses.ended(loop.time())
            self._say(
                f"{kept.name}, process {process.pid}, ended by itself ({how(code)}): started again in {wait_s:g} s"
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._ending.wait()
        kept.ended.set()

    async def _read(self, kept: Kept, process: asyncio.subprocess.Process) -> None:
        """What a child says, until it says no more."""
        assert process.stdout is not None
        async for line in process.stdout:
            if (found := READY.fullmatch(line)) is not None:
                kept.ports = int(found[1] or 0), int(found[2])
                kept.ready.set()
                if kept is self._meta:
                    self._begun.set()
                continue
            if (said := BECAME.fullmatch(line)) is not None:
                kept.role, kept.epoch = said[1].decode(), int(said[2])
            if not self._ending.is_set():
                self._say(f"{kept.name}: {line.decode(errors='replace').rstrip()}")

    # -- the cluster ----------------------------------------------------------------------------------------------

    async def _lead(self, tasks: asyncio.TaskGroup) -> None:
        """Wait until all groups are led, declare what is declared, and say that it is ready; then its canary begins."""
        loop = asyncio.get_running_loop()
        led_at = 0.0
        while True:
            masters = {(one.name, one.epoch) for one in self._servers if one.role == "master"}
            # What meta remembers of the last time does not count: it declares nobody dead before it has listened.
            groups = [one for one in await self._groups() if (one["master"], one["epoch"]) in masters]
            led = len(groups) >= self._wanted.brokers + self._wanted.delays
            led_at = (led_at or loop.time()) if led else 0.0
            replicas = sum(len(one["in_sync"]) for one in groups)
            if led and (replicas >= len(self._servers) or loop.time() - led_at > IN_SYNC_SECONDS):
                break
            await asyncio.sleep(LOOK_SECONDS)
        if self._declarations or self._grants:
            await self._declare()
        for canary in self._canary:
            tasks.create_task(self._keep(canary))
        host, port = self._wanted.host, self._meta.ports[1]
        say(f"ready {self._locks.scheme}://{address_of(host, port)}")
        if sys.stdout.isatty():
            say(greeting(host, port, NEXT, "cluster"))

    async def _groups(self) -> list[dict[str, Any]]:
        """The groups as meta sees them; none while it does not answer."""
        try:
            brokers = list(await self._ask("GET", "/v1/brokers", None))
            return brokers + list(await self._ask("GET", "/v1/delays", None)) if self._delays else brokers
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return []

    async def _declare(self) -> None:
        documents = [one.to_map() for one in self._declarations]
        try:
            if documents:
                await self._ask("POST", "/v1/declarations", documents)
            for name, granted in self._grants.items():
                await self._ask("PUT", f"/v1/access/grants/{name}", granted.to_map())
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._say(f"meta did not take what the manifests declare: {' '.join(str(error).split())}")

    async def _ask(self, method: str, path: str, body: object) -> Any:
        caller = self._locks.caller
        url = caller.url(address_of(self._wanted.host, self._meta.ports[1]), path)
        timeout = aiohttp.ClientTimeout(total=ASK_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, url, json=body, **caller.options()) as response,
        ):
            answer: Any = await response.json(content_type=None)
            if response.status >= 400:
                raise ValueError(str(answer.get("error", {}).get("detail", response.status)))
            return answer

    # -- the end --------------------------------------------------------------------------------------------------

    def _signalled(self) -> None:
        self._signals += 1
        self._end_soon()
        if self._signals > 1:
            for kept in (*self._canary, *self._servers, self._meta):
                kept.tell(signal.SIGKILL)

    async def _end(self) -> None:
        """Who watches first; masters, while somebody can take what they still have to say; meta last."""
        await self._stop([one for one in self._canary if one.process is not None])
        alive = [one for one in self._servers if one.process is not None]
        masters = (
            {one["master"] for one in await self._groups()} if alive and self._meta.process else set[str]()
        )
        await self._stop([one for one in alive if one.name in masters])
        await self._stop([one for one in alive if one.name not in masters])
        await self._stop([self._meta])

    async def _stop(self, some: Sequence[Kept]) -> None:
        for kept in some:
            kept.tell(signal.SIGTERM)
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                for kept in some:
                    await kept.ended.wait()
        except TimeoutError:
            for kept in some:
                if kept.process is not None:
                    self._say(f"{kept.name} did not end in {DRAIN_SECONDS:g} s and is killed")
                    kept.tell(signal.SIGKILL)

    def _end_soon(self) -> None:
        self._ending.set()
        self._begun.set()

    def _say(self, text: str) -> None:
        warning("keeper", text)
