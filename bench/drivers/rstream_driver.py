"""RabbitMQ streams through rstream, the asyncio client."""

from __future__ import annotations

import asyncio

import driving
from rstream import Consumer, ConsumerOffsetSpecification, OffsetType, Producer

TOPIC = driving.text("topic")
BATCH = 500
LOGIN = {"username": "guest", "password": "guest"}


async def produce() -> None:
    port = driving.number("port")
    producer = Producer("127.0.0.1", port=port, default_batch_publishing_delay=0.01, **LOGIN)
    await producer.start()
    await producer.create_stream(TOPIC)
    await producer.create_stream(TOPIC + "-warm")
    window = driving.number("window", 10_000)
    confirmed = 0
    more_confirmed = asyncio.Event()

    def confirm(_status: object) -> None:
        nonlocal confirmed
        confirmed += 1
        more_confirmed.set()

    async def run(topic: str, limit: float) -> int:
        nonlocal confirmed
        sent = confirmed = 0
        end = driving.clock() + limit
        while driving.clock() < end:
            while sent - confirmed > window:
                more_confirmed.clear()
                await more_confirmed.wait()
            await producer.send_batch(topic, driving.chunk(BATCH), on_publish_confirm=confirm)
            sent += BATCH
        while confirmed < sent:
            more_confirmed.clear()
            await more_confirmed.wait()
        return sent

    await run(TOPIC + "-warm", driving.seconds("warm"))
    measurement = driving.Measurement()
    measurement.begin()
    measurement.finish(await run(TOPIC, driving.seconds("secs")))


async def consume() -> None:
    consumer = Consumer("127.0.0.1", port=driving.number("port"), **LOGIN)
    await consumer.start()
    meter = driving.Meter()

    async def took(_message: bytes, _context: object) -> None:
        meter.took(1)

    start = ConsumerOffsetSpecification(OffsetType.FIRST, None)
    await consumer.subscribe(TOPIC, took, offset_specification=start, decoder=None, initial_credit=50)
    await consumer.run()


driving.main({"produce": produce, "consume": consume})
