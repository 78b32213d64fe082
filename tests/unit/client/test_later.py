"""When a message is due, and what is said of a client that has nobody to give it to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from tidemill import ClientClosed, Refused
from tidemill.later import due_at
from tidemill.testing import Client
from tidemill_wire.limits import DELAY_MS_MAX

NOW_MS = 1_800_000_000_000
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)


@pytest.mark.parametrize(
    ("delay", "at", "due_ms"),
    [
        (None, None, None),
        (0, None, NOW_MS),
        (1.5, None, NOW_MS + 1500),
        (timedelta(minutes=90), None, NOW_MS + 5_400_000),
        (None, NOW + timedelta(days=1), NOW_MS + 86_400_000),
        (None, NOW.astimezone(timezone(timedelta(hours=8))), NOW_MS),
        (None, NOW - timedelta(hours=1), NOW_MS - 3_600_000),
        (DELAY_MS_MAX / 1000, None, NOW_MS + DELAY_MS_MAX),
    ],
)
def test_a_time_is_a_delay_or_a_moment(
    delay: float | timedelta | None, at: datetime | None, due_ms: int | None
) -> None:
    assert due_at(delay, at, NOW_MS) == due_ms


@pytest.mark.parametrize(
    ("delay", "at", "sentence"),
    [
        (1, NOW, "give one of them"),
        (-0.1, None, "is not within 0 and 63158400"),
        (DELAY_MS_MAX / 1000 + 1, None, "is not within 0 and 63158400"),
        (None, NOW.replace(tzinfo=None), "has no time zone"),
    ],
)
def test_what_is_no_time_is_said_so(delay: float | None, at: datetime | None, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        due_at(delay, at, NOW_MS)


def test_a_moment_too_far_ahead_is_refused_with_the_limit() -> None:
    with pytest.raises(Refused, match="800 days ahead, 731 are the limit"):
        due_at(None, NOW + timedelta(days=800), NOW_MS)


async def test_a_timer_key_is_of_messages_for_later_and_within_its_limit() -> None:
    async with Client() as mq:
        with pytest.raises(ValueError, match="give a delay or at"):
            await mq.send("orders", b"now", timer_key="order-17")
        for timer_key, sentence in (("", "is empty"), ("k" * 1025, "1025 bytes, 1024 are the limit")):
            with pytest.raises(Refused, match=sentence):
                await mq.send("orders", b"later", delay=1, timer_key=timer_key)


async def test_a_closed_client_takes_nothing_for_later() -> None:
    async with Client() as mq:
        await mq.send("orders", b"now")
    with pytest.raises(ClientClosed):
        await mq.send("orders", b"later", delay=1)
