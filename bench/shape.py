"""What the shape costs: the same path in a straight line.

``python bench/shape.py`` starts three servers that speak the same protocol, drives each by the same client with the
same messages, and compares their CPU seconds. *straight* is the bytes' way alone: check and stamp each batch, write it,
answer; write a record of the size of the broker's, read the batches, answer. *direct* is the broker's machine with all
that it decides, carried out by a loop of ten lines. *broker* is that machine with its host. The house allows the shape
15 %.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, cast

from processes import cpu_seconds
from servers import Running, broker_command

from tidemill import Client
from tidemill_broker.doors.service import recover
from tidemill_broker.machine import Broker
from tidemill_broker.settings import BrokerSettings
from tidemill_host.clock import RealClock
from tidemill_host.disk import RealDisk
from tidemill_host.files import Files
from tidemill_host.machine import Mark, Peer
from tidemill_host.process import calm_collector
from tidemill_wire.batch import check_said, read_header, stamp
from tidemill_wire.commands import Ack, Done, Grant, Hello, Pull, Pulled, SendBatches, Sent, encode_command
from tidemill_wire.connection import Connection, Received, Role

RECORD = bytes(72)
SINGLES = 20_000
SIZES = ((1024, 400_000), (100, 3_000_000))


class Conversation(asyncio.BufferedProtocol, ABC):
    """One connection of a server that does at once what it is told."""

    def __init__(self) -> None:
        self._wire = Connection(Role.SERVER)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._wire.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        for event in self._wire.advance(nbytes):
            assert isinstance(event, Received)
            if isinstance(event.command, Hello):
                self.say(self._wire.welcome("straight", 1))
            else:
                self.take(event)

    def say(self, data: bytes | bytearray) -> None:
        if self.transport is not None:
            self.transport.write(data)

    @abstractmethod
    def take(self, event: Received) -> None:
        """A command that is no greeting."""


class Direct(Conversation):
    """The broker's own decisions, carried out without turn, lanes and holding back: what is left out is the host."""

    broker: Broker
    files: Files
    clock = RealClock()
    written = 0
    there: ClassVar[list[Direct | None]] = [None]  # by peer; 0 is the host itself

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._peer = Peer(len(self.there))
        self.there.append(self)
        self.broker.connected(self._peer, self.clock.now_ms())

    def connection_lost(self, exc: Exception | None) -> None:
        self.there[self._peer] = self.transport = None
        self.broker.disconnected(self._peer, self.clock.now_ms())

    def take(self, event: Received) -> None:
        self.broker.received(self._peer, event, self.clock.now_ms())
        self.carry_out()

    @classmethod
    def carry_out(cls) -> None:
        while ready := cls.broker.ready():
            for write in ready.writes:
                cls.files.write(write)
            for read in ready.reads:
                cls.broker.loaded(read.token, cls.files.answer(read), cls.clock.now_ms())
            for send in ready.sends:
                if (to := cls.there[send.peer]) is not None:
                    to.say(send.head)
                    for piece in send.slices:
                        to.say(cls.files.read(piece))
            if ready.writes:
                cls.written += 1
                cls.broker.persisted(Mark(cls.written, cls.written), cls.clock.now_ms())

    @classmethod
    def tick(cls) -> None:
        asyncio.get_running_loop().call_later(0.05, cls.tick)
        cls.broker.ticked(cls.clock.now_ms())
        cls.carry_out()

    @classmethod
    def prepare(cls, folder: str) -> None:
        disk = RealDisk(f"{folder}/data")
        cls.broker, _ = recover(disk, BrokerSettings(durability="low"), cls.clock.now_ms())
        cls.files = Files(disk)
        cls.tick()


class Straight(Conversation):
    """Nothing but the bytes' way: no leases, no numbers of producers, no groups. Rows in a list."""

    rows: dict[str, list[tuple[int, int, int, int]]]
    cursors: dict[str, int]
    file = -1
    end = 0

    def take(self, event: Received) -> None:
        match event.command:
            case SendBatches(batches):
                self.say(encode_command(Sent(self._store(batches)), event.correlation))
            case Pull() as pull:
                self._give(pull, event.correlation)
            case Ack():
                os.write(self.file, RECORD)
                Straight.end += len(RECORD)
                self.say(encode_command(Done(), event.correlation))
            case _:
                self.say(encode_command(Done(), event.correlation))

    @classmethod
    def prepare(cls, folder: str) -> None:
        cls.rows, cls.cursors = {}, {}
        cls.file = os.open(f"{folder}/log", os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def _store(self, batches: bytearray) -> list[int]:
        view = memoryview(batches)
        at, firsts = 0, []
        while at < len(view):
            header = read_header(view, at)
            check_said(view, at, header)
            name = bytes(view[at + 104 : at + 104 + header.name_length]).decode()
            rows = self.rows.setdefault(name, [])
            first = rows[-1][0] + rows[-1][1] if rows else 0
            stamp(view, at, header.length, first, self.end + at, 0, 1)
            rows.append((first, header.messages, self.end + at, header.length))
            firsts.append(first)
            at += header.length
        os.writev(self.file, [view])
        Straight.end += at
        return firsts

    def _give(self, pull: Pull, correlation: int) -> None:
        name = pull.subjects[0]
        rows, index = self.rows.get(name, []), self.cursors.get(name, 0)
        if index >= len(rows):
            asyncio.get_running_loop().call_later(0.05, self._give, pull, correlation)
            return
        start, size, messages = index, 0, 0
        while index < len(rows) and messages < pull.messages_max and size + rows[index][3] <= pull.bytes_max:
            size += rows[index][3]
            messages += rows[index][1]
            index += 1
        self.cursors[name] = index
        os.write(self.file, RECORD)
        Straight.end += len(RECORD)
        grant = Grant(name, rows[start][0], rows[start][0], messages, 0, index - start)
        data = bytearray(size)
        os.preadv(self.file, [data], rows[start][2])
        self.say(encode_command(Pulled([grant], 60_000), correlation, size))
        self.say(data)


async def serve(name: str, folder: str) -> None:
    """A server in a straight line, with the two paths that a client needs."""
    kind = SERVERS[name]
    kind.prepare(folder)
    calm_collector()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(kind, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    routes = json.dumps(
        {"version": 1, "brokers": [{"group": "g0", "host": None, "port": port, "state": "RW"}]}
    )

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(routes)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n{routes}".encode())
        writer.close()

    web = await asyncio.start_server(answer, "127.0.0.1", 0)
    http_port = web.sockets[0].getsockname()[1]
    sys.stdout.write(f"ready tidemill://127.0.0.1:{port} http://127.0.0.1:{http_port}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


SERVERS: dict[str, type[Straight | Direct]] = {"straight": Straight, "direct": Direct}


async def drive(server: str, pid: int) -> dict[str, float]:
    """CPU seconds of the server a million messages: in, out, and one at a time."""
    figures: dict[str, float] = {}
    async with Client(server) as mq:
        for size, count in SIZES:
            bodies = [os.urandom(size) for _ in range(64)] * (count // 64)
            subject = f"shape.{size}"
            await mq.send_many(subject, bodies[:10_000])
            before = cpu_seconds(pid)
            await mq.send_many(subject, bodies)
            figures[f"in {size}"] = (cpu_seconds(pid) - before) * 1e6 / len(bodies)
            before, got = cpu_seconds(pid), 0
            async with mq.consume(subject, group="shape") as messages:
                async for batch in messages.batches():
                    got += len(batch)
                    if got >= len(bodies) + 10_000:
                        break
            figures[f"out {size}"] = (cpu_seconds(pid) - before) * 1e6 / got
        before = cpu_seconds(pid)
        for _ in range(SINGLES):
            await mq.send("shape.one", b"x" * 1024)
        figures["one at a time"] = (cpu_seconds(pid) - before) * 1e6 / SINGLES
    return figures


def command_for(name: str, folder: str) -> list[str]:
    """How a server is started on an empty folder."""
    if name in SERVERS:
        return [sys.executable, __file__, "--serve", name, folder]
    head = "apiVersion: tidemill.dev/v1alpha1\nkind: Subject\nmetadata: {name: "
    spec = "spec: {config: [{name: durability, value: low}]}"
    subjects = ["shape.one", *(f"shape.{size}" for size, _ in SIZES)]
    manifest = Path(folder, "low.yaml")
    manifest.write_text("\n---\n".join(f"{head}{subject}}}\n{spec}" for subject in subjects))
    return broker_command(f"{folder}/data", manifest)


def measure(name: str) -> dict[str, float]:
    """Start a server, drive it, stop it. Its folder goes at once: the next one's page cache is made of the same
    memory, since memory that was never touched costs ten times as much on a virtual machine.
    """
    with tempfile.TemporaryDirectory() as folder, Running(command_for(name, folder)) as server:
        return asyncio.run(drive(server.server, server.pid))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.serve:
        import uvloop

        uvloop.run(serve(*arguments.serve))
        return
    best: dict[str, dict[str, float]] = {name: {} for name in (*SERVERS, "broker")}
    for _ in range(arguments.rounds):
        for name, found in best.items():
            for figure, value in measure(name).items():
                found[figure] = min(value, found.get(figure, value))
    sys.stdout.write(f"server CPU seconds per million messages, best of {arguments.rounds}\n")
    for figure, broker in best["broker"].items():
        straight, direct = best["straight"][figure], best["direct"][figure]
        sys.stdout.write(
            f"{figure:>14}  straight {straight:8.3f}  direct {direct:8.3f}  broker {broker:8.3f}"
            f"  host {broker / direct:5.2f} x  all {broker / straight:5.2f} x\n"
        )


if __name__ == "__main__":
    main()
