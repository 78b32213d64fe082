"""What the Python drivers share: options, bodies, marks, windows.

A driver prints `begin` and `end` around what is measured, upon which run.py reads the CPU of server and client, and
then one line `result {json}`. The Java twin is java/Bench.java.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from array import array
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NoReturn

OPTIONS = dict(argument.split("=", 1) for argument in sys.argv[1:])
clock = time.perf_counter


def text(name: str, otherwise: str = "") -> str:
    return OPTIONS.get(name, otherwise)


def number(name: str, otherwise: int = 0) -> int:
    return int(OPTIONS.get(name, otherwise))


def seconds(name: str) -> float:
    return float(OPTIONS[name])


def make_bodies() -> list[bytes]:
    """64 bodies of random printable bytes, the same in every run."""
    chance = random.Random(7)
    return [bytes(chance.choices(range(33, 123), k=number("size"))) for _ in range(64)]


BODIES = make_bodies()


def chunk(size: int) -> list[bytes]:
    return [BODIES[index & 63] for index in range(size)]


class Measurement:
    """The time between `begin` and `end`, and the latencies of what was answered in it, in seconds."""

    def __init__(self) -> None:
        self.latencies = array("d")
        self.started = 0.0
        self.recording = False

    def begin(self) -> None:
        print("begin", flush=True)
        self.recording = True
        self.started = clock()

    def since(self) -> float:
        return clock() - self.started

    def note(self, began: float, messages: int = 1) -> None:
        if self.recording:
            took = clock() - began
            self.latencies.extend([took] * messages)

    def finish(self, count: int, elapsed: float | None = None, **more: float) -> NoReturn:
        elapsed = self.since() if elapsed is None else elapsed
        print("end", flush=True)
        report(count, elapsed, sorted(self.latencies), **more)


def report(count: int, elapsed: float, latencies: list[float], **more: float) -> NoReturn:
    result: dict[str, float] = {"n": count, "secs": elapsed, **more}
    if latencies:
        result["p50_ms"] = latencies[len(latencies) // 2] * 1e3
        result["p99_ms"] = latencies[int(len(latencies) * 0.99)] * 1e3
    print("result", json.dumps(result), flush=True)
    # Some clients have threads or tasks that never end.
    os._exit(0)


class Meter:
    """Counts what arrives; the first tenth warms up, the rest is measured."""

    def __init__(self) -> None:
        self.last = number("n")
        self.limit = seconds("secs")
        self.warm = self.last // 10
        self.count = 0
        self.first = 0
        self.measurement = Measurement()

    def took(self, messages: int) -> None:
        """Ends the process when it is enough."""
        self.count += messages
        if not self.first:
            if self.count >= self.warm:
                self.first = self.count
                self.measurement.begin()
        elif self.count >= self.last or self.measurement.since() > self.limit:
            self.measurement.finish(self.count - self.first)


async def window_of(send: Callable[[bytes], Awaitable[Awaitable[object]]], window: int) -> NoReturn:
    """Sends one by one with at most `window` unanswered; `send` hands over and gives what to wait for."""
    measurement = Measurement()
    free = asyncio.Semaphore(window)
    errors = 0

    def answered(began: float, future: asyncio.Future[object]) -> None:
        nonlocal errors
        free.release()
        errors += future.exception() is not None
        measurement.note(began)

    async def run(limit: float) -> int:
        sent = 0
        end = clock() + limit
        while clock() < end:
            await free.acquire()
            began = clock()
            future = asyncio.ensure_future(await send(BODIES[sent & 63]))
            future.add_done_callback(partial(answered, began))
            sent += 1
            if sent & 255 == 0:
                await asyncio.sleep(0)
        for _ in range(window):
            await free.acquire()
        for _ in range(window):
            free.release()
        return sent

    await run(seconds("warm"))
    errors = 0
    measurement.begin()
    count = await run(seconds("secs"))
    measurement.finish(count, errors=errors)


async def one_at_a_time(send: Callable[[bytes], Awaitable[object]]) -> NoReturn:
    end = clock() + seconds("warm")
    while clock() < end:
        await send(BODIES[0])
    measurement = Measurement()
    measurement.begin()
    count = 0
    while measurement.since() < seconds("secs"):
        began = clock()
        await send(BODIES[count & 63])
        measurement.note(began)
        count += 1
    measurement.finish(count)


def in_turns(send: Callable[[], int]) -> NoReturn:
    """For clients that block: `send` returns how many messages were answered meanwhile."""
    end = clock() + seconds("warm")
    while clock() < end:
        send()
    measurement = Measurement()
    measurement.begin()
    count = 0
    while measurement.since() < seconds("secs"):
        began = clock()
        messages = send()
        measurement.note(began, messages)
        count += messages
    measurement.finish(count)


def main(modes: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
    """Runs the mode that the options name, on uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(_run(modes))
    else:
        uvloop.run(_run(modes))


async def _run(modes: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
    await modes[text("mode")]()
