"""RabbitMQ classic queues through pika's blocking connection.

It can wait for the confirm of one message only, so `produce` sends without waiting, and flatters RabbitMQ.
"""

from __future__ import annotations

import driving
import pika

TOPIC = driving.text("topic")
DURABLE = pika.BasicProperties(delivery_mode=2)


def channel() -> pika.adapters.blocking_connection.BlockingChannel:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", driving.number("port")))
    opened = connection.channel()
    opened.queue_declare(TOPIC, durable=True, arguments={"x-queue-type": "classic"})
    return opened


async def produce() -> None:
    opened = channel()

    def send() -> int:
        for body in driving.BODIES:
            opened.basic_publish("", TOPIC, body, DURABLE)
        return len(driving.BODIES)

    driving.in_turns(send)


async def consume() -> None:
    opened = channel()
    opened.basic_qos(prefetch_count=1000)
    meter = driving.Meter()
    for count, (method, _properties, _body) in enumerate(opened.consume(TOPIC), 1):
        if count % 100 == 0:
            opened.basic_ack(method.delivery_tag, multiple=True)
        meter.took(1)


async def sync() -> None:
    opened = channel()
    opened.confirm_delivery()

    async def send(body: bytes) -> None:
        opened.basic_publish("", TOPIC, body, DURABLE)

    await driving.one_at_a_time(send)


driving.main({"produce": produce, "consume": consume, "sync": sync})
