"""Which messages are meant is said in one way, and what is wrong with it before anything is asked."""

from __future__ import annotations

import pytest

from tidemill import ClientClosed, Refused
from tidemill.testing import Client
from tidemill.timers import target_of
from tidemill_wire.timing import Target

IDENTITY = "000102030405060708090a0b0c0d0e0f-3"


def test_a_message_is_meant_by_its_id_or_by_subject_and_timer_key() -> None:
    assert target_of(IDENTITY, None, None) == Target(id=IDENTITY)
    assert target_of(None, "reminder", "order-17") == Target(subject="reminder", timer_key="order-17")


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ((IDENTITY, "reminder", None), "give one of them"),
        ((None, "reminder", None), "say which messages"),
        ((None, None, "order-17"), "say which messages"),
        (("order-17", None, None), "is no message id"),
    ],
)
def test_what_means_nothing_is_said_so(
    target: tuple[str | None, str | None, str | None], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        target_of(*target)


def test_names_out_of_their_limits_are_refused() -> None:
    with pytest.raises(Refused, match="is no subject name"):
        target_of(None, "%x", "order-17")
    with pytest.raises(Refused, match="is empty"):
        target_of(None, "reminder", "")


async def test_a_time_must_be_given_and_a_client_that_is_open() -> None:
    async with Client() as mq:
        with pytest.raises(ValueError, match="give a delay or at"):
            await mq.reschedule(IDENTITY)
    with pytest.raises(ClientClosed):
        await mq.cancel(IDENTITY)
