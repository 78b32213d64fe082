"""Consumers without a connection: they live while they hold a lease, are bounded, and hand back what nobody took."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from samples.brokers import SUBJECT, batch_of
from samples.services import Indoors
from tidemill_broker.doors.gateway import Gateway
from tidemill_broker.doors.gateway_consumers import PREFIX, HttpConsumer, HttpConsumers
from tidemill_broker.settings import BrokerSettings
from tidemill_wire import limits
from tidemill_wire.commands import Pull, Pulled, SendBatches
from tidemill_wire.errors import Unavailable

LEASE_S = 60
IDLE_S = limits.HTTP_CONSUMER_IDLE_MS / 1000


@pytest.fixture
def indoors() -> Iterator[Indoors]:
    one = Indoors(settings=BrokerSettings(durability="low", consumer_gone_ms=1000))
    yield one
    one.close()


@pytest.fixture
def consumers(indoors: Indoors) -> HttpConsumers:
    return HttpConsumers(indoors.service.server, indoors.service.turn.now_ms)


def pull(name: str, wait_ms: int = 0) -> Pull:
    return Pull("g", PREFIX + name, [SUBJECT], 10, 1 << 20, wait_ms)


def give(indoors: Indoors, consumers: HttpConsumers, name: str) -> HttpConsumer:
    """One message in its hands."""
    consumer = indoors.call(lambda: consumers.use("g", name))
    indoors.call(lambda: consumer.peer.ask(SendBatches(batch_of(b"tide", sequence=consumer.used_ms))))
    answer = indoors.call(lambda: consumer.peer.ask(pull(name, 1000)))
    indoors.pass_time(1)
    pulled = answer.result()
    assert isinstance(pulled, Pulled)
    assert len(pulled.grants) == 1
    indoors.call(lambda: consumers.granted(consumer, 1, pulled.lease_ms))
    return consumer


def sweep(indoors: Indoors, consumers: HttpConsumers) -> int:
    indoors.call(consumers.sweep)
    return len(consumers)


def group_of(indoors: Indoors) -> Any:
    return indoors.service.broker.state.group_of(SUBJECT, "g")


def test_name_without_lease_is_forgotten_when_it_was_idle_for_long(
    indoors: Indoors, consumers: HttpConsumers
) -> None:
    indoors.call(lambda: consumers.use("g", "ann"))
    indoors.pass_time(IDLE_S - 1)
    assert sweep(indoors, consumers) == 1
    indoors.pass_time(2)
    assert sweep(indoors, consumers) == 0
    assert indoors.service.server.connections == {}


def test_name_that_holds_a_lease_lives_until_it_ends(indoors: Indoors, consumers: HttpConsumers) -> None:
    give(indoors, consumers, "ann")
    indoors.pass_time(LEASE_S - 5)
    assert sweep(indoors, consumers) == 1
    assert group_of(indoors).in_flight == 1
    indoors.pass_time(10)
    assert sweep(indoors, consumers) == 0
    assert (group_of(indoors).in_flight, group_of(indoors).failed_count()) == (0, 1)


def test_name_whose_messages_are_settled_needs_no_life(indoors: Indoors, consumers: HttpConsumers) -> None:
    give(indoors, consumers, "ann")
    consumers.settled("g", "ann", 1)
    indoors.pass_time(IDLE_S + 1)
    assert sweep(indoors, consumers) == 0


def test_extended_lease_keeps_the_name_alive(indoors: Indoors, consumers: HttpConsumers) -> None:
    give(indoors, consumers, "ann")
    indoors.pass_time(LEASE_S - 5)
    consumers.extended("g", "ann")
    indoors.pass_time(20)
    assert sweep(indoors, consumers) == 1


def test_room_is_made_by_who_was_idle_for_longest(indoors: Indoors, consumers: HttpConsumers) -> None:
    consumers.most = 2
    give(indoors, consumers, "holder")
    idle = indoors.call(lambda: consumers.use("g", "idle"))
    indoors.call(lambda: consumers.use("g", "new"))

    assert len(consumers) == 2
    assert idle.peer.number not in indoors.service.server.connections
    assert group_of(indoors).in_flight == 1


def test_nobody_who_holds_a_lease_or_waits_is_pushed_out(indoors: Indoors, consumers: HttpConsumers) -> None:
    consumers.most = 2
    give(indoors, consumers, "holder")
    waiting = indoors.call(lambda: consumers.use("g", "waiting"))
    answer = indoors.call(lambda: waiting.peer.ask(pull("waiting", 5000)))

    with pytest.raises(Unavailable, match="too_many_connections"):
        indoors.call(lambda: consumers.use("g", "new"))
    indoors.pass_time(6)
    assert isinstance(answer.result(), Pulled)
    assert indoors.call(lambda: consumers.use("g", "new")).name == "new"


def test_messages_for_a_poll_that_left_are_handed_back_without_an_attempt(
    indoors: Indoors, consumers: HttpConsumers
) -> None:
    consumer = indoors.call(lambda: consumers.use("g", "ann"))
    answer = indoors.call(lambda: consumer.peer.ask(pull("ann", 50_000)))
    indoors.pass_time(1)
    indoors.call(answer.cancel)
    indoors.call(lambda: consumer.peer.ask(SendBatches(batch_of(b"tide"))))
    indoors.pass_time(1)
    failure = group_of(indoors).next_failure()

    assert group_of(indoors).in_flight == 0
    assert failure.attempts == 0


def test_leases_of_the_life_before_are_kept_alive(indoors: Indoors, consumers: HttpConsumers) -> None:
    give(indoors, consumers, "ann")
    indoors.restart()
    gateway = indoors.call(lambda: Gateway(indoors.service))
    indoors.call(gateway.start)
    indoors.pass_time(20)
    assert (len(gateway.consumers), group_of(indoors).in_flight) == (1, 1)
    indoors.pass_time(LEASE_S)
    assert (len(gateway.consumers), group_of(indoors).in_flight) == (0, 0)
    indoors.call(gateway.close)


def test_leases_of_the_life_before_are_lost_without_a_gateway(
    indoors: Indoors, consumers: HttpConsumers
) -> None:
    """What the test before this one would see if nobody kept them alive."""
    give(indoors, consumers, "ann")
    indoors.restart()
    indoors.pass_time(20)
    assert group_of(indoors).in_flight == 0
