"""Both kinds of peers: raw ones that say whatever they like, and a well-behaved one that must not notice them."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from e2e.queues import Queue
from tidemill import Client
from tidemill_wire.batch import Origin
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Command, Failed, Hello, SendBatches, Sent, encode_command
from tidemill_wire.connection import Connection, Event, Received, Rejected, Role, State

PATIENCE_SECONDS = 20.0
HELLO = encode_command(Hello(1, 1, "an enemy"), 0)


class RawPeer:
    """A connection to the data port without any client: bytes out, events in."""

    def __init__(
        self, queue: Queue, *, greeted: bool = True, token: str | None = None, port: int = 0
    ) -> None:
        self.socket = socket.create_connection((queue.host, port or queue.port), timeout=PATIENCE_SECONDS)
        self._connection = Connection(Role.CLIENT)
        self._events: list[Event] = []
        self._correlation = 0
        if token is not None:
            self.say(encode_command(Hello(1, 1, "an enemy", token), 0))
        elif greeted:
            self.say(HELLO)
            assert isinstance(self.hear(), Received)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def say(self, data: bytes | bytearray) -> None:
        """Say it, all of it; a peer that has hung up meanwhile may have said why."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def hear(self) -> Event | None:
        """The next event; ``None`` when the other side has closed."""
        while not self._events:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data or self._connection.state is State.CLOSED:
                return None
            self._events += self._connection.feed(data)
        return self._events.pop(0)

    def ask(self, command: Command) -> Command:
        """A command and its answer."""
        self._correlation += 1
        self.say(encode_command(command, self._correlation))
        answer = self.hear()
        assert isinstance(answer, Received), answer
        assert answer.correlation == self._correlation
        return answer.command

    def refusal(self) -> int:
        """The number of the error that is said next, or 0 when the connection just ends."""
        event = self.hear()
        if isinstance(event, Rejected):
            return event.error.kind.number
        if isinstance(event, Received) and isinstance(event.command, Failed):
            return event.command.number
        assert event is None, event
        return 0

    def refused_batches(self, batches: bytes | bytearray) -> list[tuple[int, str]]:
        """Number and detail of what a SEND is refused for."""
        answer = self.ask(SendBatches(bytearray(batches)))
        assert isinstance(answer, Sent), answer
        return [(number, detail) for _, number, detail in answer.refused]

    @property
    def closed(self) -> bool:
        """Nothing more comes, and the other side has closed."""
        return self.hear() is None


class Numbers:
    """Batches of one producer, numbered."""

    def __init__(self, producer_id: int = 4711) -> None:
        self.producer_id = producer_id
        self._sequence = 0

    def origin(self, subject: str | bytes, **more: object) -> Origin:
        self._sequence += 1
        name = subject.encode() if isinstance(subject, str) else subject
        batch_id = self._sequence.to_bytes(16, "big")
        return Origin(name, self.producer_id, self._sequence, batch_id, 1_780_000_000_000, **more)  # type: ignore[arg-type]

    def batch(self, subject: str | bytes, bodies: Sequence[bytes] = (b"hello",), **more: object) -> bytearray:
        return build_batch(self.origin(subject, **more), Content(bodies))


async def exchange(server: str, subject: str, rounds: int = 3) -> float:
    """Send and receive as a user does; how long the slowest round took."""
    slowest = 0.0
    async with Client(server) as mq, mq.consume(subject, group="well-behaved") as messages:
        for number in range(rounds):
            began = time.monotonic()
            async with asyncio.timeout(PATIENCE_SECONDS):
                sent = await mq.send(subject, f"round {number}")
                message = await anext(messages)
            assert (message.body, message.id) == (f"round {number}".encode(), sent.id)
            slowest = max(slowest, time.monotonic() - began)
    return slowest


class Neighbour:
    """A client that works while others attack. Leaving the block fails when it was disturbed."""

    def __init__(self, queue: Queue) -> None:
        self._server = queue.server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="neighbour")
        self._error: BaseException | None = None
        self.rounds = 0
        self.slowest_seconds = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        rounds = self.rounds
        self._over.set()
        self._thread.join()
        if error is None:
            assert self._error is None, f"the neighbour was disturbed: {self._error!r}"
            assert self.rounds > 0, f"the neighbour got nothing done ({rounds})"

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:
            self._error = error

    async def _work(self) -> None:
        async with Client(self._server) as mq, mq.consume("neighbour", group="neighbours") as messages:
            while not (self._over.is_set() and self.rounds):  # one round at least, however short the attack
                began = time.monotonic()
                async with asyncio.timeout(PATIENCE_SECONDS):
                    sent = await mq.send("neighbour", b"all is well")
                    assert (await anext(messages)).id == sent.id
                self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
                self.rounds += 1
