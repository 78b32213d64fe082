"""A queue in memory in place of the client, and the command line run in this process."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

import pytest

import tidemill
from tidemill import Moved
from tidemill.cli import run, session


@dataclass
class FakeMessage:
    """What a consumer is given, and a receipt as well."""

    id: str
    subject: str
    sequence: int
    body: bytes
    key: str | None = None
    tags: frozenset[str] = frozenset()
    properties: dict[str, Any] = field(default_factory=dict)
    attempts: int = 1
    stored_at: datetime = datetime(2026, 9, 1, 0, 0, 0, 123_456, tzinfo=UTC)
    priority: int = 0
    order_key: str | None = None
    delay: timedelta | None = None
    at: datetime | None = None
    dedup_key: str | None = None
    timer_key: str | None = None
    cron: str | None = None
    time_zone: str | None = None
    missed: str | None = None

    @property
    def duplicate(self) -> bool:
        """A queue that knows one key."""
        return self.dedup_key == "known"


@dataclass
class FakeQueue:
    """What was asked of the client. ``settled`` holds what standard output held when a message was acknowledged."""

    messages: list[FakeMessage] = field(default_factory=list)
    sequences: Counter[str] = field(default_factory=Counter)
    error: BaseException | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    consumed: dict[str, Any] = field(default_factory=dict)
    acknowledged: list[tuple[int, bytes]] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    sought: list[tuple[str, str, object, bool]] = field(default_factory=list)
    signal_when_empty: int = 0
    written: Callable[[], bytes] = lambda: b""

    def add(self, subject: str, body: bytes, **more: Any) -> FakeMessage:
        sequence = self.sequences[subject]
        self.sequences[subject] += 1
        message = FakeMessage(f"id-{len(self.messages)}", subject, sequence, body, **more)
        self.messages.append(message)
        return message


@dataclass
class FakeBatch:
    bodies: list[bytes]

    def __len__(self) -> int:
        return len(self.bodies)


class FakeConsumer:
    def __init__(self, queue: FakeQueue, subjects: Sequence[str]) -> None:
        self.queue = queue
        self.waiting = [message for message in queue.messages if message.subject in subjects]
        self.current: FakeMessage | None = None
        self.closed = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._acknowledge()
        elif self.current is not None:
            self.queue.released.append(self.current.sequence)

    def __aiter__(self) -> FakeConsumer:
        return self

    async def close(self) -> None:
        self._acknowledge()
        self.waiting.clear()
        self.closed.set()

    async def __anext__(self) -> FakeMessage:
        self._acknowledge()
        if not self.waiting:
            if self.queue.signal_when_empty:
                os.kill(os.getpid(), self.queue.signal_when_empty)
            await self.closed.wait()
            raise StopAsyncIteration
        self.current = self.waiting.pop(0)
        return self.current

    async def batches(self) -> AsyncIterator[FakeBatch]:
        while self.waiting:
            taken, self.waiting = self.waiting[:3], self.waiting[3:]
            yield FakeBatch([message.body for message in taken])
        await self.closed.wait()

    def _acknowledge(self) -> None:
        if self.current is not None:
            self.queue.acknowledged.append((self.current.sequence, self.queue.written()))
            self.current = None


class FakeClient:
    def __init__(self, queue: FakeQueue, server: str) -> None:
        self.queue, self.server = queue, server

    async def __aenter__(self) -> Self:
        if self.queue.error is not None:
            raise self.queue.error
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def send(self, subject: str, body: bytes, **more: Any) -> FakeMessage:
        return self.queue.add(subject, body, **{**more, "tags": frozenset(more.get("tags", ()))})

    async def send_many(self, subject: str, bodies: Sequence[bytes], **more: Any) -> list[FakeMessage]:
        return [self.queue.add(subject, body, **more) for body in bodies]

    def consume(self, subjects: str | Iterable[str], **more: Any) -> FakeConsumer:
        names = [subjects] if isinstance(subjects, str) else list(subjects)
        self.queue.consumed = {"subjects": names, **more}
        return FakeConsumer(self.queue, names)

    async def subjects(self) -> list[dict[str, Any]]:
        return self.queue.rows

    groups = subjects

    async def seek(self, subject: str, group: str, to: object, *, rehearsal: bool = False) -> Moved:
        self.queue.sought.append((subject, group, to, rehearsal))
        return Moved(4, 1_000, 0, 3, 2)


class Terminal(io.TextIOWrapper):
    """A standard stream that says of itself whether somebody sits at it."""

    def __init__(self, content: bytes = b"", interactive: bool = False) -> None:
        super().__init__(io.BytesIO(content), encoding="utf-8", write_through=True)
        self.interactive = interactive

    def isatty(self) -> bool:
        return self.interactive

    def content(self) -> bytes:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue()


@dataclass
class Outcome:
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


Command = Callable[..., Outcome]


async def found(server: str) -> None:
    """The server is there."""


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> FakeQueue:
    queue = FakeQueue()
    monkeypatch.setattr(tidemill, "Client", lambda server: FakeClient(queue, server), raising=False)
    monkeypatch.setattr(session, "find_server", found)
    monkeypatch.delenv("TIDEMILL_SERVER", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return queue


@pytest.fixture
def command(queue: FakeQueue, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run the command line against the queue in memory."""

    def run_command(*arguments: str, stdin: bytes | None = None) -> Outcome:
        out, err = Terminal(), Terminal()
        queue.written = out.content
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        with monkeypatch.context() as streams:
            streams.setattr(sys, "stdin", Terminal(stdin or b"", interactive=stdin is None))
            streams.setattr(sys, "stdout", out)
            streams.setattr(sys, "stderr", err)
            code = run(list(arguments))
        for number, handler in handlers.items():
            signal.signal(number, handler)
        queue.written = lambda: b""
        return Outcome(code, out.content(), err.content().decode())

    return run_command
