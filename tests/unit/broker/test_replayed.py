"""Messages out of an archive for one group: given to it and to no other, once, as new, over restarts and power cuts."""

from __future__ import annotations

import pytest

from samples.brokers import CREATED_MS, SUBJECT, Rig
from samples.graves import GRAVE, acks, hasty_rig
from tidemill_broker.graves import waiting
from tidemill_wire.batch import Flags, Origin
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Content, build_batch, split_batches
from tidemill_wire.commands import Pulled, SendBatches, Sent
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.fields import again_for

BODIES = [b"one" * 200, b"two" * 200]


def replayed(number: int = 1, group: str = "g", codec: Codec = Codec.NONE) -> bytearray:
    origin = Origin(
        again_for(SUBJECT, group).encode(),
        77,
        number,
        number.to_bytes(16, "big"),
        CREATED_MS,
        codec,
        Flags.REPLAYED,
    )
    return build_batch(origin, Content(BODIES, ["k", None], origins=["there-1", "there-2"]))


def send(rig: Rig, batch: bytearray) -> Sent:
    answer = rig.ask(SendBatches(batch))
    assert isinstance(answer, Sent), answer
    return answer


@pytest.fixture
def rig() -> Rig:
    """Two groups consume, and have handled what was there."""
    rig = hasty_rig()
    rig.send(b"mine")
    for group in ("g", "other"):
        for command in acks(rig.pull(10, group=group)):
            rig.ask(command)
    return rig


def bodies_of(answer: Pulled) -> list[bytes]:
    return [body for batch in split_batches(answer.batches) for body in batch.bodies()]


@pytest.mark.parametrize("codec", list(Codec))
def test_its_group_is_given_it_as_new_and_no_other_group_is(rig: Rig, codec: Codec) -> None:
    assert not send(rig, replayed(codec=codec)).refused
    assert not set(BODIES) & set(bodies_of(rig.pull(10, group="other")))
    answer = rig.pull(10)

    [grant] = answer.grants
    assert (grant.subject, grant.attempts, grant.count) == (GRAVE, 0, 2)
    [batch] = split_batches(answer.batches)
    batch.check()
    assert (batch.bodies(), batch.keys(), batch.origins()) == (BODIES, ["k", ""], ["there-1", "there-2"])
    assert batch.flags == Flags.REPLAYED


def test_what_is_said_again_is_stored_and_given_once(rig: Rig) -> None:
    first = send(rig, replayed()).first_sequences
    for command in acks(rig.pull(10)):
        rig.ask(command)
    assert list(send(rig, replayed()).first_sequences) == list(first)
    assert bodies_of(rig.pull(10)) == []

    for number in range(2, 12):
        send(rig, replayed(number))
    assert not send(rig, replayed()).refused  # older than those whose place is remembered
    assert len(bodies_of(rig.pull(100))) == 20


@pytest.mark.parametrize("how", ["restart", "power_cut"])
def test_a_start_takes_it_for_no_burial_and_gives_it_again_when_it_was_not_acked(rig: Rig, how: str) -> None:
    send(rig, replayed())
    for _ in range(20):
        rig.wait(100)
    assert len(bodies_of(rig.pull(10))) == 2
    getattr(rig, how)()
    rig.wait(60_000)

    assert bodies_of(rig.pull(10, peer=1)) == BODIES
    assert not set(BODIES) & set(bodies_of(rig.pull(10, group="other")))
    state = rig.broker.state
    group = state.group_of(SUBJECT, "g")
    assert group is not None
    assert waiting(state, group) == 0


def test_a_group_that_is_not_there_is_said_so(rig: Rig) -> None:
    answer = send(rig, replayed(group="nobody"))

    assert [row[1] for row in answer.refused] == [KIND_BY_NAME["not_found"].number]
