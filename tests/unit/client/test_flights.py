"""Numbers of batches that were refused, and how much may leave beside them."""

from __future__ import annotations

import random

import pytest

from tidemill.backoff import Backoff
from tidemill.flights import Flights
from tidemill.gather import Gather, Signature
from tidemill.parcel import Parcel, Partition
from tidemill_wire.batch import read_header
from tidemill_wire.codec import Codec
from tidemill_wire.limits import PRODUCER_BATCHES_REMEMBERED


class Nobody:
    """Waits, and is told."""

    def stored(self, place, part) -> None: ...

    def failed(self, error) -> None: ...


@pytest.fixture
def gather() -> Gather:
    return Gather(Signature(7, Codec.NONE, lambda: 0), 1)


@pytest.fixture
def flights() -> Flights:
    chance = random.Random(0)
    return Flights(Backoff(0.1, 0.1, chance), chance)


def sealed(gather: Gather, partition: Partition, count: int) -> list[Parcel]:
    """Batches of one message each."""
    batches: list[Parcel] = []
    for _ in range(count):
        gather.add(partition, b"x", None, Nobody(), 1.0)
        batches += gather.take()
    return batches


@pytest.mark.parametrize("passed", range(PRODUCER_BATCHES_REMEMBERED + 2))
@pytest.mark.parametrize("doubtful", [True, False])
def test_what_is_in_doubt_keeps_its_number_as_long_as_brokers_know_it(
    gather: Gather, flights: Flights, passed: int, *, doubtful: bool
) -> None:
    partition = Partition("a")
    first, *later = sealed(gather, partition, 1 + passed)
    first.doubtful = doubtful
    for batch in later:
        batch.stored(0)
    flights.refuse(first, 0.0)

    again = flights.again(1.0)

    assert again is first
    keeps = not passed or (doubtful and passed < PRODUCER_BATCHES_REMEMBERED)
    assert first.number == (1 if keeps else 2 + passed)
    assert read_header(first.data).producer_sequence == first.number


def test_with_order_keys_it_gets_a_new_one(gather: Gather, flights: Flights) -> None:
    partition = Partition("a")
    first, second = sealed(gather, partition, 2)
    partition.ordered = first.doubtful = True
    second.stored(0)
    flights.refuse(first, 0.0)
    again = flights.again(1.0)
    assert again is not None
    assert again.number == 3


@pytest.mark.parametrize("passed", range(PRODUCER_BATCHES_REMEMBERED))
def test_those_that_have_passed_it_count_as_on_their_way(
    gather: Gather, flights: Flights, passed: int
) -> None:
    """Else it might be refused once more, while more pass it than a broker remembers: it would count as stored."""
    partition, other = Partition("a"), Partition("b")
    first, *later = sealed(gather, partition, 1 + passed)
    first.doubtful = True
    for batch in later:
        batch.stored(0)
    flights.refuse(first, 0.0)
    flights.depart(sealed(gather, other, 1))
    again = flights.again(1.0)
    assert again is not None
    flights.depart([again], again.passed)
    behind = 0
    while not flights.full:
        flights.depart(sealed(gather, partition, 1))
        behind += 1
    assert passed + behind <= PRODUCER_BATCHES_REMEMBERED - 1
    assert behind or passed >= PRODUCER_BATCHES_REMEMBERED - 2
