"""Limits fit each other: what one side may say, the other side's bounds let in."""

from __future__ import annotations

import pytest

from tidemill_wire import limits
from tidemill_wire.commands import (
    Ack,
    Command,
    Done,
    Failed,
    Goodbye,
    Grant,
    Hello,
    Nack,
    Pull,
    Pulled,
    Sent,
    Welcome,
    encode_command,
    parse_command,
)
from tidemill_wire.frame import FRAME_HEADER_BYTES, LARGE_BYTES, FrameDecoder

HUGE = 2**63 - 1
WIDE = "\U0001f30a"  # four bytes in UTF-8
SUBJECTS = ["s" * (limits.SUBJECT_NAME_MAX - 4) + f"{index:04}" for index in range(limits.PULL_SUBJECTS_MAX)]
RANGES = [HUGE] * (2 * limits.RANGES_MAX)
SETTLED = ("g" * limits.GROUP_NAME_MAX, "c" * limits.CONSUMER_NAME_MAX, SUBJECTS[0], RANGES)
LARGEST: dict[str, Command] = {
    "ack": Ack(*SETTLED),
    "nack": Nack(*SETTLED, limits.NACK_DELAY_MS_MAX, WIDE * limits.DETAIL_CHARS_MAX),
    "done": Done(RANGES),
    "error": Failed(2**32 - 1, WIDE * limits.DETAIL_CHARS_MAX),
    "goodbye": Goodbye(WIDE * limits.DETAIL_CHARS_MAX),
    "pull": Pull(
        SETTLED[0],
        SETTLED[1],
        SUBJECTS,
        limits.PULL_MESSAGES_MAX,
        limits.PULL_BYTES_MAX,
        limits.PULL_WAIT_MS_MAX,
        HUGE,
        [HUGE] * (2 * limits.HELD_RANGES_MAX),
    ),
    "pulled": Pulled([Grant(SUBJECTS[0], *[HUGE] * 5)] * limits.GRANTS_MAX, limits.LEASE_MS_MAX),
    "sent": Sent([-1] * 100_000, [(9, 10, "why " * 10)] * 1_000),
    "hello": Hello(1, 2**32 - 1, WIDE * 200),
    "welcome": Welcome(2**32 - 1, WIDE * 300, 2**32 - 1),
}


@pytest.mark.parametrize("name", LARGEST)
def test_largest_command_of_each_kind_is_understood(name: str) -> None:
    [frame] = FrameDecoder().feed(encode_command(LARGEST[name], 1))

    assert type(parse_command(frame)) is type(LARGEST[name])


@pytest.mark.parametrize("name", ["hello", "welcome", "error"])
def test_whatever_may_come_first_fits_the_first_frame(name: str) -> None:
    assert len(encode_command(LARGEST[name], 1)) - FRAME_HEADER_BYTES <= limits.HELLO_BYTES_MAX < LARGE_BYTES


def test_every_limit_is_a_positive_number() -> None:
    bounds = {name: value for name, value in vars(limits).items() if name.isupper()}

    assert len(bounds) > 40
    assert all(type(value) is int and value > 0 for value in bounds.values())


def test_messages_fit_batches_and_batches_fit_frames() -> None:
    single_message_overhead = 104 + 256 + 2 * 16 + 8 + 8

    assert limits.MESSAGE_BYTES_MAX + limits.PROPERTIES_BYTES_MAX <= limits.BATCH_BYTES_MAX
    assert limits.MESSAGE_BYTES_MAX + single_message_overhead <= limits.BATCH_BYTES_MAX
    assert limits.BATCH_BYTES_MAX + limits.CONTROL_BYTES_MAX <= limits.FRAME_BYTES_MAX
    assert limits.FRAME_BYTES_MAX < 2**31
    assert limits.BATCH_MESSAGES_MAX <= limits.PULL_MESSAGES_MAX
    assert limits.TAG_BYTES_MAX * limits.TAGS_MAX < limits.PROPERTIES_BYTES_MAX


def test_times_follow_each_other() -> None:
    assert limits.HELLO_MS < limits.SLOW_FRAME_MS < limits.LEASE_MS_DEFAULT
    assert limits.CONSUMER_GONE_MS < limits.LEASE_MS_DEFAULT < limits.LEASE_MS_MAX
    assert limits.PULL_WAIT_MS_DEFAULT < limits.LEASE_MS_DEFAULT
