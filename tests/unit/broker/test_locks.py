"""Groups in order: one consumer at a time, an exact hand-over, failures in place; and groups of broadcast consumers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, TINY, Rig, pulls
from tidemill_broker.group_settings import BROADCAST, ORDERED, GroupSettings
from tidemill_wire.commands import Ack, Command, Done, Extend, Goodbye, Nack, Pull, Pulled, Release
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.kinds import Mode

WAIT_MS = 5000
GONE_MS = 10_000
LEASE_MS = 60_000
SILENCE_MS = 100_000
SETTINGS = replace(
    TINY, lease_ms=LEASE_MS, consumer_gone_ms=GONE_MS, broadcast_silence_ms=SILENCE_MS, segment_bytes=1 << 20
)


def exclusive(consumer: str, messages: int = 100, wait_ms: int = WAIT_MS) -> Pull:
    return Pull("g", consumer, [SUBJECT], messages, 1 << 20, wait_ms, mode=Mode.EXCLUSIVE)


def broadcast(consumer: str, wait_ms: int = WAIT_MS) -> Pull:
    return Pull(f"g.{consumer}", consumer, [SUBJECT], 100, 1 << 20, wait_ms, mode=Mode.BROADCAST, base="g")


def keep(rig: Rig, held: list[int], times: int) -> None:
    """Nearly the whole lease passes, and it is extended, until the lock is over."""
    for _ in range(times):
        rig.wait(GONE_MS - 1000)
        assert rig.ask(Extend("g", "a", SUBJECT, held)) == Done([])
    assert rig.now_ms > rig.broker.state.groups[1].lock_ms


def sequences(pulled: Command | None) -> list[int]:
    assert isinstance(pulled, Pulled), pulled
    return [one.first_sequence + index for one in pulled.grants for index in range(one.count)]


@pytest.fixture
def rig() -> Rig:
    """Ten messages; ``a`` over the first connection has the lock and holds three, ``b`` over the second waits."""
    made = Rig(SETTINGS)
    made.connect()
    made.fill(10)
    return made


@pytest.fixture
def held(rig: Rig) -> list[int]:
    return pulls(rig.ask(exclusive("a", 3)))  # type: ignore[arg-type]


@pytest.fixture
def waiting(rig: Rig, held: list[int]) -> int:
    assert rig.ask(exclusive("b", wait_ms=60_000), peer=2) is None  # it outlasts every lease
    return rig.correlation


def test_one_consumer_is_served_and_the_other_waits(rig: Rig, waiting: int) -> None:
    assert sequences(rig.ask(exclusive("a", 3))) == [3, 4, 5]
    assert waiting not in rig.answers


def test_who_says_goodbye_hands_over_at_once(rig: Rig, held: list[int], waiting: int) -> None:
    first, last = held
    rig.ask(Ack("g", "a", SUBJECT, [first, first]))
    rig.ask(Release("g", "a", SUBJECT, [first + 1, last]))
    rig.ask(Goodbye("done"))

    assert sequences(rig.answers[waiting]) == [1, 2, *range(3, 10)]


def test_lock_that_is_over_is_handed_over_only_when_the_leases_have_ended(
    rig: Rig, held: list[int], waiting: int
) -> None:
    keep(rig, held, 3)
    rig.wait(GONE_MS - 1)
    assert waiting not in rig.answers
    rig.wait(1)

    assert sequences(rig.answers[waiting]) == list(range(10))
    assert rig.ask(Ack("g", "a", SUBJECT, held)) == Done(held)


def test_lock_that_is_over_is_handed_over_when_the_last_message_is_settled(
    rig: Rig, held: list[int], waiting: int
) -> None:
    keep(rig, held, 2)
    first, last = held
    rig.ask(Ack("g", "a", SUBJECT, [first, last - 1]))
    assert waiting not in rig.answers

    rig.ask(Ack("g", "a", SUBJECT, [last, last]))

    assert sequences(rig.answers[waiting]) == list(range(3, 10))
    assert sequences(rig.ask(exclusive("a", wait_ms=0))) == []


def test_idle_owner_that_stops_pulling_loses_the_lock_in_time(
    rig: Rig, held: list[int], waiting: int
) -> None:
    rig.ask(Ack("g", "a", SUBJECT, held))
    rig.wait(WAIT_MS + GONE_MS - 1)
    assert waiting not in rig.answers
    rig.wait(1)

    assert sequences(rig.answers[waiting]) == list(range(3, 10))


def test_pulls_keep_the_lock(rig: Rig, held: list[int], waiting: int) -> None:
    rig.ask(Ack("g", "a", SUBJECT, held))
    for _ in range(5):
        rig.wait(GONE_MS - 1)
        given = rig.ask(exclusive("a", 1))
        rig.ask(Ack("g", "a", SUBJECT, pulls(given)))  # type: ignore[arg-type]

    assert waiting not in rig.answers


def test_owner_whose_connection_ends_is_waited_for(rig: Rig, held: list[int], waiting: int) -> None:
    rig.disconnect(rig.peers[0])
    rig.wait(GONE_MS - 1)
    assert waiting not in rig.answers
    rig.wait(1)

    assert sequences(rig.answers[waiting]) == list(range(10))


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_lock_survives_a_restart(rig: Rig, held: list[int], with_checkpoint: bool) -> None:
    if with_checkpoint:
        rig.broker.keeping.checkpoint(rig.now_ms)
        rig.pump()
    rig.restart()
    rig.connect()

    assert sequences(rig.ask(exclusive("b", wait_ms=0), peer=2)) == []
    assert sequences(rig.ask(exclusive("a", 2))) == [0, 1], "over a new connection it begins anew"


def test_nobody_but_the_owner_is_served_soon_after_a_start(rig: Rig, held: list[int]) -> None:
    """A power cut may have made the broker forget leases that it had given."""
    rig.ask(Ack("g", "a", SUBJECT, held))
    rig.wait(WAIT_MS + GONE_MS)
    rig.restart()
    rig.connect()
    assert rig.ask(exclusive("b", wait_ms=60_000), peer=2) is None
    waiting = rig.correlation
    rig.wait(GONE_MS - 1)
    assert waiting not in rig.answers
    rig.wait(1)

    assert sequences(rig.answers[waiting]) == list(range(3, 10))


def test_new_lock_is_on_the_disk_before_its_first_message_leaves(rig: Rig) -> None:
    rig.holds_syncs = True
    assert rig.ask(exclusive("a")) is None
    assert rig.broker.state.groups[1].cursor == 0
    waiting = rig.correlation
    rig.sync()
    rig.pump()

    assert sequences(rig.answers[waiting]) == list(range(10))


def test_lease_of_a_group_in_order_is_no_longer_than_a_consumer_may_be_away(rig: Rig) -> None:
    given = rig.ask(exclusive("a"))

    assert isinstance(given, Pulled)
    assert given.lease_ms == GONE_MS
    assert rig.pull(group="shared").lease_ms == LEASE_MS


def test_failed_message_comes_again_before_anything_newer(rig: Rig, held: list[int]) -> None:
    rig.ask(exclusive("a", 3))
    second = held[0] + 1
    rig.ask(Nack("g", "a", SUBJECT, [second, second], 700))

    assert sequences(rig.ask(exclusive("a", wait_ms=0))) == []
    rig.wait(700)
    again = rig.ask(exclusive("a"))
    assert isinstance(again, Pulled)
    assert sequences(again) == list(range(1, 10))
    assert [grant.attempts for grant in again.grants if grant.first_sequence == 1] == [1]
    assert rig.broker.state.groups[1].in_flight == 10


def test_answer_says_that_the_group_is_in_order(rig: Rig) -> None:
    given = rig.ask(exclusive("a"))

    assert isinstance(given, Pulled)
    assert given.ordered
    assert not rig.pull(group="shared").ordered


def test_two_waiting_groups_in_order_cost_no_turns(rig: Rig, waiting: int) -> None:
    rig.ask(Nack("g", "a", SUBJECT, [1, 1], 0))
    rig.wait(WAIT_MS + GONE_MS)
    rig.broker.ticked(rig.now_ms)
    rig.pump()

    assert rig.wake_at_ms > rig.now_ms + 10


def test_group_is_consumed_in_one_way(rig: Rig, held: list[int]) -> None:
    wrong = KIND_BY_NAME["wrong_consumption"].number
    rig.pull(group="shared")

    assert rig.refused(replace(exclusive("a"), group="shared")) == wrong
    assert rig.refused(replace(broadcast("a"), group="g")) == wrong
    assert sequences(rig.pull(consumer="a")) == list(range(3, 10)), "a pull that says nothing takes its turn"


def test_broadcast_reaches_each_consumer(rig: Rig) -> None:
    assert sequences(rig.ask(broadcast("a"))) == list(range(10))
    assert sequences(rig.ask(broadcast("b"), peer=2)) == list(range(10))
    assert set(rig.broker.state.partitions[1].groups) == {"g.a", "g.b"}


def test_group_that_was_declared_as_broadcast_is_no_group_to_consume(rig: Rig) -> None:
    partition = rig.broker.state.partitions[1]
    settings = GroupSettings(lease_ms=1234, consumption=BROADCAST)
    rig.broker.members.declare_group(partition, "g", (0, 0), settings, rig.now_ms)
    rig.pump()

    assert rig.refused(Pull("g", "a", [SUBJECT], 1, 1, 0)) == KIND_BY_NAME["wrong_consumption"].number
    given = rig.ask(broadcast("a"))
    assert isinstance(given, Pulled)
    assert given.lease_ms == 1234


def test_broadcast_consumer_that_comes_back_in_time_goes_on(rig: Rig) -> None:
    rig.ask(Ack("g.a", "a", SUBJECT, pulls(rig.ask(broadcast("a")))))  # type: ignore[arg-type]
    rig.ask(Goodbye("done"))
    rig.disconnect(rig.peers[0])
    rig.wait(SILENCE_MS - 1)
    rig.connect()

    assert rig.ask(broadcast("a"), peer=3) is None
    rig.wait(SILENCE_MS)
    assert "g.a" in rig.broker.state.partitions[1].groups


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_broadcast_group_that_stays_silent_is_forgotten_and_pins_nothing(
    rig: Rig, with_checkpoint: bool
) -> None:
    rig.ask(broadcast("a"))
    rig.disconnect(rig.peers[0])
    rig.wait(GONE_MS)
    assert rig.broker.state.groups[1].failed_count() == 10
    if with_checkpoint:
        rig.broker.keeping.checkpoint(rig.now_ms)
        rig.pump()
    rig.restart()
    rig.wait(SILENCE_MS)

    assert rig.broker.state.groups == {}
    assert rig.broker.state.partitions[1].groups == {}
    rig.restart()
    assert rig.broker.state.groups == {}
    assert sequences(rig.ask(broadcast("b"))) == list(range(10))
    assert list(rig.broker.state.groups) == [2], "numbers are not used again"


def test_group_takes_as_many_consumers_as_it_may_have(rig: Rig) -> None:
    partition = rig.broker.state.partitions[1]
    rig.broker.members.declare_group(partition, "g", (0, 0), GroupSettings(consumers_max=2), rig.now_ms)
    rig.pull(1, consumer="a")
    rig.pull(1, consumer="b", peer=2)
    third = Pull("g", "c", [SUBJECT], 1, 1 << 20, 0)
    assert rig.refused(third) == KIND_BY_NAME["too_many_consumers"].number

    rig.ask(Goodbye("done"), peer=2)
    rig.disconnect(rig.peers[1])

    assert sequences(rig.ask(third)) != []
    assert GroupSettings(consumption=ORDERED).consumers_max > 2
