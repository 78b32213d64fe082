"""The measurements of `tidemill bench`: what is timed, and what comes of it."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemill.cli.failures import CommandFailed
from tidemill_wire.counted import counted

if TYPE_CHECKING:
    from tidemill import Client

BATCH_BYTES = 1 << 20
BATCH_MESSAGES = 10_000
BATCHES_IN_FLIGHT = 4
STAMP_BYTES = 8
SILENCE_SECONDS = 10

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent or consumed."""

    subject: str
    count: int
    size: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it."""

    messages: int
    bytes: int
    seconds: float
    cpu_seconds: float
    waits_ms: list[float]

    def figures(self) -> dict[str, int | float | None]:
        waits = sorted(self.waits_ms)
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "messages_per_second": round(self.messages / self.seconds),
            "megabytes_per_second": round(self.bytes / self.seconds / 1e6, 2),
            "p50_ms": percentile(waits, 0.5),
            "p99_ms": percentile(waits, 0.99),
            "p999_ms": percentile(waits, 0.999),
            "client_cpu_seconds_per_million": round(self.cpu_seconds / self.messages * 1e6, 3),
        }


def percentile(ordered: list[float], share: float) -> float | None:
    """The value that ``share`` of them do not exceed (nearest rank)."""
    if not ordered:
        return None
    return round(ordered[max(0, math.ceil(len(ordered) * share) - 1)], 3)


class Stopwatch:
    """Wall clock and processor time since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def stop(self, messages: int, size: int, waits_ms: list[float]) -> Measured:
        seconds = max(time.perf_counter() - self._wall, 1e-9)
        return Measured(messages, size, seconds, time.process_time() - self._cpu, waits_ms)


async def measure_produce(client: Client, load: Load, advance: Advance) -> Measured:
    """Batches as large as a producer would gather, a few in flight, each timed from send to answer."""
    body = os.urandom(load.size)
    whole = max(1, min(BATCH_MESSAGES, BATCH_BYTES // max(1, load.size), load.count))
    sizes = [whole] * (load.count // whole) + ([load.count % whole] if load.count % whole else [])
    waits_ms: list[float] = []
    left = iter(sizes)

    async def lane() -> None:
        for count in left:
            before = time.perf_counter()
            await client.send_many(load.subject, [body] * count)
            waits_ms.append((time.perf_counter() - before) * 1000)
            advance(count)

    watch = Stopwatch()
    async with asyncio.TaskGroup() as lanes:
        for _ in range(BATCHES_IN_FLIGHT):
            lanes.create_task(lane())
    return watch.stop(load.count, load.count * load.size, waits_ms)


async def measure_consume(client: Client, load: Load, advance: Advance) -> Measured:
    """Everything from the first message on, by batches, in a group of its own."""
    messages_taken, bytes_taken = 0, 0
    waits_ms: list[float] = []
    watch = Stopwatch()
    async with client.consume(load.subject, group=_new_group(), start="earliest") as messages:
        batches = messages.batches()
        while messages_taken < load.count:
            before = time.perf_counter()
            try:
                async with asyncio.timeout(SILENCE_SECONDS):
                    batch = await anext(batches)
            except TimeoutError:
                raise CommandFailed(
                    f"{messages_taken:,} of {counted(load.count, 'message')} came, then none for {SILENCE_SECONDS} "
                    "seconds: run `tidemill bench produce` first, or give a lower --count"
                ) from None
            waits_ms.append((time.perf_counter() - before) * 1000)
            messages_taken += len(batch)
            bytes_taken += sum(map(len, batch.bodies))
            advance(len(batch))
    return watch.stop(messages_taken, bytes_taken, waits_ms)


async def measure_latency(client: Client, load: Load, advance: Advance) -> Measured:
    """One message at a time, from before send() until it is in a consumer's hands."""
    padding = bytes(max(0, load.size - STAMP_BYTES))
    arrived: asyncio.Queue[tuple[bytes, float]] = asyncio.Queue()
    waits_ms: list[float] = []

    async def take() -> None:
        async with client.consume(load.subject, group=_new_group(), start="latest") as messages:
            async for message in messages:
                arrived.put_nowait((bytes(message.body[:STAMP_BYTES]), time.perf_counter()))

    taking = asyncio.ensure_future(take())
    try:
        await _reached(client, load.subject, arrived, taking)
        watch = Stopwatch()
        for number in range(load.count):
            stamp = number.to_bytes(STAMP_BYTES, "little")
            before = time.perf_counter()
            await client.send(load.subject, stamp + padding)
            while (got := await arrived.get())[0] != stamp:
                pass  # left over from finding out that the consumer is there
            waits_ms.append((got[1] - before) * 1000)
            advance(1)
        return watch.stop(load.count, load.count * (STAMP_BYTES + len(padding)), waits_ms)
    finally:
        taking.cancel()
        with suppress(asyncio.CancelledError):
            await taking


async def _reached(
    client: Client, subject: str, arrived: asyncio.Queue[Any], taking: asyncio.Future[None]
) -> None:
    """A group that starts at the latest message has a start once it has got one: send until it does."""
    while arrived.empty():
        await client.send(subject, b"\xff" * STAMP_BYTES)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await arrived.get()
                return
        if taking.done():
            taking.result()


def _new_group() -> str:
    return f"bench-{os.urandom(6).hex()}"
