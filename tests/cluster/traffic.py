"""What a pod of programs does: ``python -c <this file> WAY SUBJECT AMOUNT GROUP``, with the image of all services.

A message's body is its number. The last one is not a number: it says how many there were, so that who consumes knows
when to end. What was seen is written as one JSON object, the only line.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from tidemill import Client

CHUNK = 1_000
END = Path("/tmp/end")  # in a pod of its own
"""`kubectl exec` touches it."""
FLOWS = Path("/tmp/flows")
"""Tells the pod's probe that messages flow."""
SILENCE_SECONDS = 240.0
STALL_SECONDS = 0.3
"""Longer ones are told one by one: when, by the clock, and how long."""
SLOW_SECONDS, SLOWEST = 1.0, 5
"""How many sends took so long; and of the slowest when they were answered, and after how long."""


async def produce(subject: str, messages: int, _: str) -> dict[str, float]:
    """As fast as it goes."""
    async with Client() as queue:
        began = time.monotonic()
        for first in range(0, messages, CHUNK):
            last = min(first + CHUNK, messages)
            await queue.send_many(subject, [b"%d" % number for number in range(first, last)])
        took = time.monotonic() - began
        await queue.send(subject, f"all {messages}")
    return {"sent": messages, "seconds": took}


async def stream(subject: str, a_second: int, _: str) -> dict[str, object]:
    """So many a second, until it is told to end. A send waits for none before it."""
    longest_send = longest_gap = 0.0
    answered = time.monotonic()
    stalls: list[tuple[float, float]] = []
    slow: list[tuple[float, float]] = []

    async def send(number: int) -> None:
        nonlocal longest_send, longest_gap, answered
        began = time.monotonic()
        await queue.send(subject, b"%d" % number)
        now = time.monotonic()
        longest_send, longest_gap = max(longest_send, now - began), max(longest_gap, now - answered)
        if now - answered > STALL_SECONDS:
            stalls.append((round(time.time(), 1), round(now - answered, 2)))
        if now - began > SLOW_SECONDS:
            slow.append((round(time.time(), 1), round(now - began, 2)))
        answered = now

    async with Client() as queue:
        await send(0)
        FLOWS.touch()
        stalls.clear()
        slow.clear()
        number, began, longest_send, longest_gap = 1, time.monotonic(), 0.0, 0.0
        async with asyncio.TaskGroup() as sends:
            while not END.exists():
                await wait_until(began + number / a_second)
                sends.create_task(send(number))
                number += 1
        took = time.monotonic() - began
        await queue.send(subject, f"all {number}")
    return {
        "sent": number,
        "seconds": took,
        "longest_send": longest_send,
        "longest_gap": longest_gap,
        "stalls": stalls,
        "slow": len(slow),
        "slowest": sorted(slow, key=lambda one: -one[1])[:SLOWEST],
    }


async def wait_until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.monotonic()))


async def consume(subject: str, _: int, group: str) -> dict[str, float]:
    """Until all that were sent are here; or nothing comes any more, and some are lost."""
    seen: set[int] = set()
    given, wanted, began = 0, -1, 0.0
    async with Client() as queue, queue.consume(subject, group=group) as messages:
        try:
            while wanted < 0 or len(seen) < wanted:
                async with asyncio.timeout(SILENCE_SECONDS):
                    message = await anext(messages)
                if not began:
                    began = time.monotonic()
                    FLOWS.touch()
                body = bytes(message.body)
                if body.startswith(b"all "):
                    wanted = int(body[4:])
                else:
                    seen.add(int(body))
                    given += 1
        except TimeoutError:
            pass  # what is missing is in the answer
    took = time.monotonic() - began
    return {"wanted": wanted, "seen": len(seen), "again": given - len(seen), "seconds": took}


WAYS = {"produce": produce, "stream": stream, "consume": consume}

if __name__ == "__main__":
    way, subject_name, amount, group_name = sys.argv[1:]
    print(json.dumps(asyncio.run(WAYS[way](subject_name, int(amount), group_name))), flush=True)
