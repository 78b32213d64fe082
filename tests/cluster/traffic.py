"""What a pod of programs does: ``python -c <this file> WAY SUBJECT AMOUNT``, with the image of all services.

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
FLOWS = Path("/tmp/flows")
"""Tells the pod's probe that messages flow."""
SILENCE_SECONDS = 120.0


async def produce(subject: str, messages: int) -> dict[str, float]:
    """As fast as it goes."""
    async with Client() as queue:
        began = time.monotonic()
        for first in range(0, messages, CHUNK):
            last = min(first + CHUNK, messages)
            await queue.send_many(subject, [b"%d" % number for number in range(first, last)])
        took = time.monotonic() - began
        await queue.send(subject, f"all {messages}")
    return {"sent": messages, "seconds": took}


async def consume(subject: str, _: int) -> dict[str, float]:
    """Until all that were sent are here; or nothing comes any more, and some are lost."""
    seen: set[int] = set()
    given, wanted, began = 0, -1, 0.0
    async with Client() as queue, queue.consume(subject, group="billing") as messages:
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


WAYS = {"produce": produce, "consume": consume}

if __name__ == "__main__":
    way, subject_name, amount = sys.argv[1:]
    print(json.dumps(asyncio.run(WAYS[way](subject_name, int(amount)))), flush=True)
