"""A toy queue on which the simulator proves its teeth: one server, one log, a producer, a consumer, planted bugs.

It is also the smallest example of what plugs into a world: ``serve(env)`` for a node, ``run(env)`` for a client, and a
``Scenario`` that builds them, knows when all is drained, and checks. The wire is one line of text a request.
"""

from __future__ import annotations

import asyncio
import errno
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from zlib import crc32

from sim.checkers import (
    Ack,
    Delivery,
    History,
    Outcome,
    PowerCut,
    Promise,
    Send,
    Terms,
    ended,
    missing,
    violations,
)  # fmt: skip
from sim.faults import Kind
from sim.world import Env, Phases, World
from tidemill_host.disk import Disk

HEAD = struct.Struct("<II")
PORT = 7400
ANSWER_WITHIN_S = 2.0
LEASE_S = 3.0
POLL_S = 0.05
SUBJECT, GROUP = "subject", "group"


class Bug(Enum):
    NONE = "none"
    ANSWER_BEFORE_SYNC = "answers a send before the sync"
    ACK_BEFORE_SYNC = "answers an ack before the sync"
    NO_CHECKSUM = "believes records without checking them"
    TORN_TAIL_KEPT = "appends behind a torn tail"
    NO_FOLDER_SYNC = "never makes the name of its log durable"
    FAILED_SYNC_KEPT = "leaves in the page cache what a failed sync did not write"


class Store:
    """The log: records of (length, crc, payload); ``M`` is a message, ``A`` the ack of a sequence."""

    def __init__(self, disk: Disk, bug: Bug) -> None:
        self.messages: list[bytes] = []
        self.shown = 0
        """Only synced messages are given out: the place of one that a cut takes is given to another."""
        self.acked: set[int] = set()
        self._bug = bug
        self._file = disk.open("log", create=True)
        position = self._recover()
        if bug is not Bug.TORN_TAIL_KEPT:
            self._file.truncate(position)
        self._file.sync()
        self._synced, self._failed, self.shown = self._file.size(), False, len(self.messages)
        if bug is not Bug.NO_FOLDER_SYNC:
            disk.sync_folder("")

    def append(self, payload: bytes) -> int:
        if self._failed:
            raise OSError(errno.EIO, "the disk has failed; this life is ending")
        record = HEAD.pack(len(payload), crc32(payload)) + payload
        while record:
            record = record[self._file.append([record]) :]
        return self._apply(payload)

    def sync(self) -> None:
        size, shown = self._file.size(), len(self.messages)
        try:
            self._file.sync()
        except OSError:
            # The cache shows bytes that are neither dirty nor on the platter. The next life would believe them.
            if self._bug is not Bug.FAILED_SYNC_KEPT:
                self._failed = True
                self._file.truncate(self._synced)
                self._file.sync()
            raise
        self._synced, self.shown = size, shown

    def _recover(self) -> int:
        data, size = b"", self._file.size()
        while len(data) < size:
            data += self._file.read(len(data), size - len(data))
        position = 0
        while position + HEAD.size <= size:
            length, crc = HEAD.unpack_from(data, position)
            payload = data[position + HEAD.size : position + HEAD.size + length]
            whole = length > 0 and len(payload) == length
            if not whole or (crc32(payload) != crc and self._bug is not Bug.NO_CHECKSUM):
                break
            self._apply(payload)
            position += HEAD.size + length
        return position

    def _apply(self, payload: bytes) -> int:
        if payload[:1] == b"A":
            self.acked.add(int(payload[1:]))
            return int(payload[1:])
        self.messages.append(payload[1:])
        return len(self.messages) - 1


class Server:
    """One life of the toy's node."""

    def __init__(self, env: Env, bug: Bug) -> None:
        self._env = env
        self._bug = bug
        self._store = Store(env.disk, bug)
        self._lane = ThreadPoolExecutor(1)
        self._leases: dict[int, float] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._wanted = asyncio.Event()

    async def serve(self) -> None:
        """A failed disk ends the process; its supervisor starts it again."""
        server = await asyncio.start_server(self._connected, "0.0.0.0", PORT)
        loop = self._env.loop
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            waiters, self._waiters = self._waiters, []
            await loop.run_in_executor(self._lane, self._store.sync)
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
            assert server.is_serving()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(await self._answer(line.strip()) + b"\n")
                await writer.drain()
        except ConnectionError:
            pass  # The client's business.
        except OSError:
            raise SystemExit(1) from None
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> bytes:
        verb, _, rest = line.partition(b" ")
        match verb:
            case b"SEND":
                sequence = self._store.append(b"M" + rest)
                await self._synced(wait=self._bug is not Bug.ANSWER_BEFORE_SYNC)
                return b"%d" % sequence
            case b"ACK":
                self._store.append(b"A" + rest)
                await self._synced(wait=self._bug is not Bug.ACK_BEFORE_SYNC)
                return b"ok"
            case _:
                return await self._pull()

    async def _pull(self) -> bytes:
        now = self._env.loop.now
        for sequence, message in enumerate(self._store.messages[: self._store.shown]):
            if sequence not in self._store.acked and self._leases.get(sequence, 0.0) <= now:
                self._leases[sequence] = now + LEASE_S
                return b"%d %s" % (sequence, message)
        await asyncio.sleep(POLL_S)
        return b""

    async def _synced(self, *, wait: bool) -> None:
        waiter = self._env.loop.create_future()
        self._waiters.append(waiter)
        self._wanted.set()
        if wait:
            await waiter


class Toy:
    """The scenario."""

    servers = ("s1",)
    clients = ("p1", "c1")
    kinds = tuple(kind for kind in Kind if kind not in {Kind.BIT_ROT, Kind.BAD_PLACE, Kind.CLIENT_KILL})
    probes = ()

    def __init__(
        self, bug: Bug = Bug.NONE, *, sends_per_s: float = 30.0, phases: Phases | None = None
    ) -> None:
        self.phases = phases or Phases(warm_up_s=0.5, faults_s=5.0)
        self.history = History()
        self._bug = bug
        self._gap_s = 1.0 / sends_per_s
        self._sent_all = False
        self._cuts: list[PowerCut] = []

    def build(self, world: World) -> None:
        world.add_server("s1", self._serve)
        world.add_client("p1", self._produce)
        world.add_client("c1", self._consume)

    def drained(self) -> bool:
        return self._sent_all and not any(missing(self.history, self._terms()))

    def check(self, world: World) -> list[str]:
        self._cuts = [PowerCut(cut.at_s, cut.node) for cut in world.cuts]
        return violations(self.history, self._terms())

    def _terms(self) -> Terms:
        return Terms({SUBJECT: (GROUP,)}, self._cuts, ack_promise=Promise.HIGH)

    async def _serve(self, env: Env) -> None:
        await Server(env, self._bug).serve()

    async def _produce(self, env: Env) -> None:
        link = Link(env)
        number = 0
        while not env.quiet.is_set():
            number += 1
            body = b"%x" % env.rng.getrandbits(8 * env.rng.choice((1, 30, 3000)))
            send = Send(f"m{number}", "p1", SUBJECT, body, Promise.HIGH, "", env.loop.now)
            self.history.sending(send)
            answer = await link.ask(b"SEND %s %s" % (send.message.encode(), body))
            send.place = "" if answer is None else answer.decode()
            ended(send, Outcome.UNKNOWN if answer is None else Outcome.OK, env.loop.now)
            await asyncio.sleep(env.rng.expovariate(1.0 / self._gap_s))
        self._sent_all = True

    async def _consume(self, env: Env) -> None:
        link = Link(env)
        while True:
            asked = env.loop.now
            answer = await link.ask(b"PULL")
            if not answer:
                continue
            place, message, body = (answer + b"  ").split(b" ")[:3]
            where, name = place.decode(), message.decode(errors="replace")
            self.history.delivered(Delivery(env.loop.now, asked, GROUP, "c1", SUBJECT, name, where, body))
            ack = self.history.acking(Ack(GROUP, where, name, env.loop.now))
            answer = await link.ask(b"ACK " + place)
            ended(ack, Outcome.OK if answer == b"ok" else Outcome.UNKNOWN, env.loop.now)


class Link:
    """A connection that is made again when it fails. ``None`` is: nobody knows."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, line: bytes) -> bytes | None:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                if self._streams is None:
                    self._streams = await asyncio.open_connection("s1", PORT, limit=1 << 20)
                reader, writer = self._streams
                writer.write(line + b"\n")
                answer = await reader.readline()
        except OSError:  # TimeoutError is one.
            answer = b""
        if not answer.endswith(b"\n"):
            if self._streams is not None:
                self._streams[1].transport.abort()
            self._streams = None
            await asyncio.sleep(0.05 + 0.1 * self._env.rng.random())
            return None
        return answer[:-1]


def make(seed: str) -> Toy:
    return Toy()


def make_buggy(bug: Bug) -> Callable[[str], Toy]:
    return lambda seed: Toy(bug)
