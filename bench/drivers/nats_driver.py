"""NATS JetStream through nats-py."""

from __future__ import annotations

from collections.abc import Awaitable

import driving
import nats
from nats.errors import TimeoutError as NothingYet
from nats.js import JetStreamContext

TOPIC = driving.text("topic")


async def connect() -> JetStreamContext:
    client = await nats.connect("nats://127.0.0.1:" + driving.text("port"), pending_size=64 << 20)
    stream = client.jetstream(publish_async_max_pending=driving.number("window", 4000))
    if driving.text("mode") != "consume":
        await stream.add_stream(name="S_" + TOPIC, subjects=[TOPIC], storage="file")
    return stream


async def produce() -> None:
    stream = await connect()

    async def send(body: bytes) -> Awaitable[object]:
        answer: Awaitable[object] = await stream.publish_async(TOPIC, body)
        return answer

    await driving.window_of(send, driving.number("window", 4000))


async def consume() -> None:
    stream = await connect()
    subscription = await stream.pull_subscribe(TOPIC, durable="python")
    meter = driving.Meter()
    while True:
        try:
            messages = await subscription.fetch(500, timeout=2)
        except NothingYet:
            continue
        for message in messages:
            await message.ack()
        meter.took(len(messages))


async def sync() -> None:
    stream = await connect()
    await driving.one_at_a_time(lambda body: stream.publish(TOPIC, body))


driving.main({"produce": produce, "consume": consume, "sync": sync})
