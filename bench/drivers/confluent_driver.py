"""Kafka through confluent-kafka: librdkafka, a client in C with a Python face."""

from __future__ import annotations

import driving
from confluent_kafka import Consumer, KafkaError, Message, Producer

TOPIC = driving.text("topic")
SERVER = {"bootstrap.servers": "127.0.0.1:" + driving.text("port")}


def producer(linger_ms: int) -> Producer:
    return Producer(
        {
            **SERVER,
            "acks": "1",
            "linger.ms": linger_ms,
            "batch.size": 262_144,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 524_288,
        }
    )


async def produce() -> None:
    client = producer(5)
    measurement = driving.Measurement()
    window = driving.number("window", 10_000)
    unanswered = 0

    def run(topic: str, limit: float) -> int:
        nonlocal unanswered
        sent = 0
        end = driving.clock() + limit
        while sent & 63 or driving.clock() < end:
            began = driving.clock()

            def answered(_error: KafkaError | None, _message: Message, began: float = began) -> None:
                nonlocal unanswered
                unanswered -= 1
                measurement.note(began)

            while unanswered >= window:
                client.poll(0.01)
            client.produce(topic, driving.BODIES[sent & 63], on_delivery=answered)
            unanswered += 1
            sent += 1
            if sent & 63 == 0:
                client.poll(0)
        client.flush()
        return sent

    run(TOPIC + "-warm", driving.seconds("warm"))
    measurement.begin()
    measurement.finish(run(TOPIC, driving.seconds("secs")))


async def consume() -> None:
    consumer = Consumer(
        {
            **SERVER,
            "group.id": "confluent-" + TOPIC,
            "auto.offset.reset": "earliest",
            "queued.min.messages": 100_000,
            "fetch.message.max.bytes": 4_194_304,
        }
    )
    consumer.subscribe([TOPIC])
    meter = driving.Meter()
    while True:
        # The body is asked for, because it only becomes a Python object then.
        meter.took(
            sum(1 for message in consumer.consume(1000, 0.5) if not message.error() and message.value())
        )


async def sync() -> None:
    client = producer(0)

    async def send(body: bytes) -> None:
        answered: list[bool] = []
        client.produce(TOPIC, body, on_delivery=lambda _error, _message: answered.append(True))
        while not answered:
            client.poll(1)

    await driving.one_at_a_time(send)


driving.main({"produce": produce, "consume": consume, "sync": sync})
