"""Redis streams through redis-py: pipelines of 500 in, a consumer group with XACK out."""

from __future__ import annotations

import driving
import redis

TOPIC = driving.text("topic")
BATCH = 500


def connect() -> redis.Redis:
    return redis.Redis(port=driving.number("port"))


async def produce() -> None:
    client = connect()

    def send() -> int:
        pipeline = client.pipeline(transaction=False)
        for body in driving.chunk(BATCH):
            pipeline.xadd(TOPIC, {b"d": body})
        pipeline.execute()
        return BATCH

    driving.in_turns(send)


async def consume() -> None:
    client = connect()
    client.xgroup_create(TOPIC, "python", "0")
    meter = driving.Meter()
    while True:
        entries = found(client.xreadgroup("python", "one", {TOPIC: ">"}, count=BATCH, block=500))
        if entries:
            client.xack(TOPIC, "python", *[entry[0] for entry in entries])
            meter.took(len(entries))


def found(answer: object) -> list[list[object]]:
    """The entries of the one stream; the shape of the answer depends on the version of protocol and client."""
    if isinstance(answer, dict):
        answer = list(answer.items())
    if not isinstance(answer, list) or not answer:
        return []
    entries = answer[0][1]
    return (
        entries[0]
        if entries and isinstance(entries[0], list) and isinstance(entries[0][0], (list, tuple))
        else entries
    )


async def sync() -> None:
    client = connect()

    async def send(body: bytes) -> None:
        client.xadd(TOPIC, {b"d": body})

    await driving.one_at_a_time(send)


driving.main({"produce": produce, "consume": consume, "sync": sync})
