"""What the shape costs: the same path in a straight line, without machine, turn, lanes or leases.

``python bench/shape.py`` starts the broker and, after it, a straight-line server that speaks the same protocol: it
receives a SEND, checks and stamps each batch, writes it, answers; it receives a PULL, writes a record of the same size
as the broker's, reads the batches, answers. Both are driven by the same client process with the same messages, and
CPU seconds of the server are compared. The house allows the shape 15 %.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import cast

from processes import cpu_seconds
from servers import Running, broker_command

from tidemill import Client
from tidemill_wire.batch import check_said, read_header, stamp
from tidemill_wire.commands import Ack, Done, Grant, Hello, Pull, Pulled, SendBatches, Sent, encode_command
from tidemill_wire.connection import Connection, Received, Role

RECORD = bytes(72)
SIZES = ((1024, 200_000), (100, 1_000_000))


class Straight(asyncio.BufferedProtocol):
    """One connection of the straight-line server. One subject a test, rows in a list."""

    rows: dict[str, list[tuple[int, int, int, int]]]
    cursors: dict[str, int]
    file = -1
    end = 0

    def __init__(self) -> None:
        self._wire = Connection(Role.SERVER)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._wire.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        assert self._transport is not None
        for event in self._wire.advance(nbytes):
            assert isinstance(event, Received)
            match event.command:
                case Hello():
                    self._transport.write(self._wire.welcome("straight", 1))
                case SendBatches(batches):
                    self._transport.write(encode_command(Sent(self._store(batches)), event.correlation))
                case Pull() as pull:
                    self._give(pull, event.correlation)
                case Ack():
                    os.write(self.file, RECORD)
                    Straight.end += len(RECORD)
                    self._transport.write(encode_command(Done(), event.correlation))
                case _:
                    self._transport.write(encode_command(Done(), event.correlation))

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
        assert self._transport is not None
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
        self._transport.write(encode_command(Pulled([grant], 60_000), correlation, size))
        self._transport.write(data)


async def serve(folder: str) -> None:
    """The straight-line server, with the two paths that a client needs."""
    Straight.rows, Straight.cursors = {}, {}
    Straight.file = os.open(f"{folder}/log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Straight, "127.0.0.1", 0)
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
        for _ in range(10_000):
            await mq.send("shape.one", b"x" * 1024)
        figures["one at a time"] = (cpu_seconds(pid) - before) * 1e6 / 10_000
    return figures


def command_for(name: str, folder: str) -> list[str]:
    """How a server is started on an empty folder."""
    if name == "straight":
        return [sys.executable, __file__, "--serve", folder]
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
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.serve:
        import uvloop

        uvloop.run(serve(arguments.serve))
        return
    best: dict[str, dict[str, float]] = {"straight": {}, "broker": {}}
    for _ in range(arguments.rounds):
        for name, found in best.items():
            for figure, value in measure(name).items():
                found[figure] = min(value, found.get(figure, value))
    sys.stdout.write(f"server CPU seconds per million messages, best of {arguments.rounds}\n")
    for figure, straight in best["straight"].items():
        broker = best["broker"][figure]
        line = f"{figure:>14}  straight {straight:8.2f}  broker {broker:8.2f}  {broker / straight:5.2f} x"
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
