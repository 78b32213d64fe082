"""A peer within the process: the same turn, the same disk, the same refusals as a connection; nothing is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from samples.brokers import SUBJECT, batch_of
from samples.services import Indoors
from sim.weather import Weather
from tidemill_broker.settings import BrokerSettings
from tidemill_host.local import LocalPeer
from tidemill_wire.commands import Ack, Command, Ping, Pull, Pulled, SendBatches, Sent
from tidemill_wire.errors import Refused, Unavailable

Make = Callable[..., Indoors]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Indoors] = []

    def one(weather: Weather | None = None, settings: BrokerSettings | None = None) -> Indoors:
        made.append(Indoors(weather or Weather(), settings))
        return made[-1]

    yield one
    for indoors in made:
        indoors.close()


def ask(indoors: Indoors, peer: LocalPeer, command: Command) -> asyncio.Future[Command]:
    return indoors.call(lambda: peer.ask(command))


def peer_in(indoors: Indoors, unclaimed: Callable[[Command], object] = lambda _: None) -> LocalPeer:
    return indoors.call(lambda: LocalPeer(indoors.service.server, unclaimed))


def pull(wait_ms: int = 0) -> Pull:
    return Pull("g", "c", [SUBJECT], 10, 1 << 20, wait_ms)


def test_what_goes_in_comes_out_with_its_bytes(make: Make) -> None:
    indoors = make()
    peer = peer_in(indoors)
    sent = ask(indoors, peer, SendBatches(batch_of(b"tide")))
    indoors.pass_time(1)
    pulled = ask(indoors, peer, pull())
    indoors.pass_time(1)
    answer = pulled.result()

    assert sent.result() == Sent([0], [])
    assert isinstance(answer, Pulled)
    assert b"tide" in bytes(answer.batches)
    assert peer.waiting == 0


def test_answer_waits_for_the_disk_as_one_to_a_connection_does(make: Make) -> None:
    indoors = make(settings=BrokerSettings(durability="high"))
    peer = peer_in(indoors)
    sent = ask(indoors, peer, SendBatches(batch_of(b"tide")))
    assert not sent.done()
    indoors.pass_time(1)
    assert sent.result() == Sent([0], [])
    indoors.disk.power_cut()
    durable = b"".join(bytes(inode.durable) for inode in indoors.disk.names.cached.values())
    assert b"tide" in durable


def test_refusal_is_raised_where_it_is_awaited(make: Make) -> None:
    indoors = make()
    answer = ask(indoors, peer_in(indoors), Ack("g", "c", SUBJECT, [0, 0]))
    indoors.pass_time(1)

    with pytest.raises(Refused, match="holds nothing"):
        answer.result()


def test_answer_whose_asker_has_gone_is_handed_on(make: Make) -> None:
    indoors = make()
    unclaimed: list[Command] = []
    peer = peer_in(indoors, unclaimed.append)
    waiting = ask(indoors, peer, pull(wait_ms=10_000))
    indoors.pass_time(1)
    indoors.call(waiting.cancel)
    assert peer.waiting == 1
    ask(indoors, peer, SendBatches(batch_of(b"tide")))
    indoors.pass_time(1)

    [answer] = unclaimed
    assert isinstance(answer, Pulled)
    assert answer.grants[0].count == 1
    assert peer.waiting == 0


def test_cold_bytes_come_from_the_lane(make: Make) -> None:
    indoors = make(Weather(cold_reads=1.0, short_io=0.3))
    peer = peer_in(indoors)
    ask(indoors, peer, SendBatches(batch_of(b"cold" * 1000)))
    indoors.pass_time(1)
    pulled = ask(indoors, peer, pull())
    indoors.pass_time(1)
    answer = pulled.result()

    assert isinstance(answer, Pulled)
    assert b"cold" * 1000 in bytes(answer.batches)
    assert indoors.service.server.statistics.cold_reads == 1


def test_bytes_that_the_disk_does_not_give_fail_the_question_and_not_the_peer(make: Make) -> None:
    indoors = make(Weather(cold_reads=1.0))
    peer = peer_in(indoors)
    ask(indoors, peer, SendBatches(batch_of(b"cold" * 1000)))
    indoors.pass_time(1)
    del indoors.disk.names.cached[f"message/{0:020}.log"].cached[2000:]
    pulled = ask(indoors, peer, pull())
    indoors.pass_time(1)
    alive = ask(indoors, peer, Ping())
    indoors.pass_time(1)

    with pytest.raises(Unavailable, match="read_failed"):
        pulled.result()
    assert alive.result() is not None


def test_bytes_that_the_disk_refuses_are_left_out_and_the_question_is_answered(make: Make) -> None:
    """And the next question, too: nobody asks for them again for ever."""
    indoors = make(Weather(cold_reads=1.0))
    peer = peer_in(indoors)
    for number in range(2):
        ask(indoors, peer, SendBatches(batch_of(b"cold" * 1000, sequence=number)))
    indoors.pass_time(1)
    indoors.disk.refuse(f"message/{0:020}.log", 2000)
    pulled = ask(indoors, peer, pull())
    indoors.pass_time(1)
    again = ask(indoors, peer, pull())
    indoors.pass_time(1)

    first, second = pulled.result(), again.result()
    assert isinstance(first, Pulled)
    assert isinstance(second, Pulled)
    assert [grant.first_sequence for grant in first.grants] == [1]
    assert second.grants == []
    assert indoors.service.server.statistics.refused == {}


def test_everybody_who_waits_is_told_when_the_broker_stops(make: Make) -> None:
    indoors = make()
    peer = peer_in(indoors)
    waiting = ask(indoors, peer, pull(wait_ms=10_000))
    indoors.pass_time(1)
    indoors.call(lambda: indoors.service.server.close("the broker stops"))
    late = ask(indoors, peer, Ping())

    for answer in (waiting, late):
        with pytest.raises(Unavailable, match="the broker stops"):
            answer.result()
    assert indoors.service.server.connections == {}


def test_closed_peer_is_gone_for_the_machine(make: Make) -> None:
    indoors = make()
    peer = peer_in(indoors)
    ask(indoors, peer, pull())
    indoors.pass_time(1)
    [consumer] = indoors.service.broker.state.consumers.values()
    assert consumer.peer == peer.number
    indoors.call(peer.close)
    indoors.pass_time(1)

    assert consumer.peer == 0
    assert indoors.service.server.connections == {}
