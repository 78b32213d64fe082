"""Kafka through aiokafka, the asyncio client."""

from __future__ import annotations

import driving
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

TOPIC = driving.text("topic")
SERVER = "127.0.0.1:" + driving.text("port")


async def producer(linger_ms: int) -> AIOKafkaProducer:
    client = AIOKafkaProducer(bootstrap_servers=SERVER, acks=1, linger_ms=linger_ms, max_batch_size=262_144)
    await client.start()
    return client


async def produce() -> None:
    client = await producer(5)
    await driving.window_of(lambda body: client.send(TOPIC, body), driving.number("window", 10_000))


async def consume() -> None:
    consumer = AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=SERVER,
        group_id="aiokafka-" + TOPIC,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=4_194_304,
    )
    await consumer.start()
    meter = driving.Meter()
    while True:
        found = await consumer.getmany(timeout_ms=500, max_records=5000)
        meter.took(sum(len(records) for records in found.values()))


async def sync() -> None:
    client = await producer(0)
    await driving.one_at_a_time(lambda body: client.send_and_wait(TOPIC, body))


driving.main({"produce": produce, "consume": consume, "sync": sync})
