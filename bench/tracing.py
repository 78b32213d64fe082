"""What spans cost a program: processor time of a producer and of a consumer, a message, without and with them.

    python -m bench.tracing [--messages 5000] [--rounds 3]

A broker by itself; messages are sent one by one, many at a time, and consumed in a loop. *traced* keeps every span and
throws it away where it would be exported, *unsampled* begins none but carries its context. The lowest of some rounds,
one JSON object; only the time of the program's own process counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from tidemill import Client, tracing

READY = re.compile(rb"ready tidemill://\S+ http://(\S+)\n")
AT_ONCE = 100


class Nowhere(SpanExporter):
    """Where spans go."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def traced(provider: TracerProvider) -> type[Client]:
    class Own(tracing.Client):
        tracer_provider = provider

    return Own


def kinds() -> dict[str, Callable[[str], Client]]:
    """How a client is made."""
    kept = TracerProvider()
    kept.add_span_processor(BatchSpanProcessor(Nowhere()))
    return {"plain": Client, "unsampled": traced(TracerProvider(sampler=ALWAYS_OFF)), "traced": traced(kept)}


async def produce(mq: Client, subject: str, messages: int) -> float:
    """Microseconds of the processor, a message."""
    began = time.process_time()
    for first in range(0, messages, AT_ONCE):
        count = min(AT_ONCE, messages - first)
        await asyncio.gather(*(mq.send(subject, b"x" * 100) for _ in range(count)))
    return (time.process_time() - began) / messages * 1e6


async def consume(mq: Client, subject: str, messages: int) -> float:
    """The same of a loop."""
    left, began = messages, time.process_time()
    async with mq.consume(subject, group="g") as found:
        async for _ in found:
            left -= 1
            if not left:
                break
    return (time.process_time() - began) / messages * 1e6


async def measure(server: str, messages: int, rounds: int) -> dict[str, dict[str, float]]:
    """The lowest of all rounds, which take turns."""
    best: dict[str, dict[str, float]] = {}
    for number in range(rounds):
        for kind, make in kinds().items():
            subject = f"{kind}.{number}"
            async with make(server) as mq:
                took = {"send_us": await produce(mq, subject, messages)}
                took["consume_us"] = await consume(mq, subject, messages)
            known = best.setdefault(kind, took)
            best[kind] = {name: round(min(value, known[name]), 1) for name, value in took.items()}
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description="What spans cost a program.")
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        command = [
            sys.executable,
            "-m",
            "tidemill_broker",
            "up",
            "--data",
            folder,
            "--port",
            "0",
            "--http-port",
            "0",
        ]
        broker = stack.enter_context(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        )
        stack.callback(broker.terminate)
        assert broker.stdout is not None
        ready = READY.fullmatch(broker.stdout.readline())
        assert ready is not None
        print(json.dumps(asyncio.run(measure(ready[1].decode(), options.messages, options.rounds))))


if __name__ == "__main__":
    main()
