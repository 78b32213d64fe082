"""Batches, commands and streams as hypothesis makes them."""

from __future__ import annotations

import string
from dataclasses import replace
from typing import TypeVar

from hypothesis import strategies as st

from tidemill_wire import limits
from tidemill_wire.batch import Flags, Origin, message_id
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Content
from tidemill_wire.commands import (
    Ack,
    Command,
    Done,
    Extend,
    Failed,
    Goodbye,
    Grant,
    Hello,
    Mode,
    Nack,
    Ping,
    Pull,
    Pulled,
    Purge,
    Redrive,
    Release,
    SendBatches,
    Sent,
    Welcome,
)
from tidemill_wire.filters import EVERYTHING
from tidemill_wire.kinds import Place
from tidemill_wire.ranges import apart
from tidemill_wire.steering import Seek, Sought, Suspend
from tidemill_wire.timing import Cancel, Changed, ListTimers, Reschedule, Show, Target, TimerRow, Waiting
from tidemill_wire.yielding import Yield

T = TypeVar("T")

U16, U32, U64 = (st.integers(0, (1 << bits) - 1) for bits in (16, 32, 64))
I32, I64 = (st.integers(-(1 << bits), (1 << bits) - 1) for bits in (31, 63))
POSITIVE = st.integers(0, (1 << 63) - 1)
NAMES = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=100)
PARTITIONS = NAMES | st.builds("%dead%{}%{}".format, NAMES, NAMES)
CONSUMERS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=200)
TEXTS = st.text(max_size=30)  # without surrogates: hypothesis leaves them out
KEYS = st.none() | TEXTS
BODIES = st.binary(max_size=60) | st.integers(0, 3000).map(lambda size: b"tide" * size)


@st.composite
def origins(draw: st.DrawFn) -> Origin:
    return Origin(
        draw(TEXTS).encode()[: limits.PARTITION_NAME_BYTES_MAX],
        draw(U64),
        draw(U64),
        draw(st.binary(min_size=16, max_size=16)),
        draw(I64),
        draw(st.sampled_from(Codec)),
        Flags(draw(st.integers(0, 31))),
        draw(st.integers(0, 7)),
    )


@st.composite
def contents(draw: st.DrawFn, count_max: int = 12) -> Content:
    count = draw(st.integers(1, count_max))

    def column(values: st.SearchStrategy[T]) -> list[T] | None:
        return draw(st.none() | st.lists(values, min_size=count, max_size=count))

    return Content(
        bodies=draw(st.lists(BODIES, min_size=count, max_size=count)),
        keys=column(KEYS),
        tags=column(st.lists(TEXTS, max_size=limits.TAGS_MAX)),
        order_keys=column(KEYS),
        properties=column(st.binary(max_size=40)),
        created_deltas=column(I32),
        deliver_deltas=column(I64),
        attempts=column(I32),
        origins=column(TEXTS),
        timer_keys=column(KEYS),
    )


RANGES = st.lists(st.tuples(POSITIVE, POSITIVE).map(sorted), max_size=5).map(
    lambda pairs: apart([number for pair in pairs for number in pair])
)
SETTLED = (NAMES, CONSUMERS, PARTITIONS, RANGES)


@st.composite
def sents(draw: st.DrawFn) -> Sent:
    firsts = draw(st.lists(I64, max_size=5))
    index = st.integers(0, max(0, len(firsts) - 1))
    refused = draw(st.lists(st.tuples(index, U32, TEXTS), max_size=len(firsts)))
    return Sent(firsts, refused)


def number(most: int, least: int = 0) -> st.SearchStrategy[int]:
    return st.integers(least, most)


GRANTS = st.builds(Grant, TEXTS, POSITIVE, POSITIVE, POSITIVE, POSITIVE, POSITIVE)
IDENTITIES = st.builds(message_id, st.binary(min_size=16, max_size=16), number(limits.BATCH_MESSAGES_MAX - 1))
TARGETS = st.builds(lambda identity: Target(id=identity), IDENTITIES) | st.builds(
    lambda subject, key: Target(subject=subject, timer_key=key), NAMES, st.text(min_size=1, max_size=30)
)
TIMER_ROWS = st.builds(
    TimerRow, IDENTITIES, NAMES, TEXTS, I64, POSITIVE, POSITIVE, st.none() | st.binary(max_size=40)
)
COMMANDS: st.SearchStrategy[Command] = st.one_of(
    st.builds(Hello, number(2**32 - 1, 1), number(2**32 - 1, 1), TEXTS),
    st.builds(Welcome, number(2**32 - 1, 1), TEXTS, U32),
    st.builds(Failed, U32, TEXTS),
    st.builds(Done, RANGES, POSITIVE),
    st.builds(Ping),
    st.builds(Goodbye, TEXTS),
    st.builds(SendBatches, st.binary(min_size=1, max_size=300).map(bytearray)),
    sents(),
    st.builds(
        Pull,
        NAMES,
        CONSUMERS,
        st.lists(NAMES, min_size=1, max_size=4),
        number(limits.PULL_MESSAGES_MAX, 1),
        number(limits.PULL_BYTES_MAX, 1),
        number(limits.PULL_WAIT_MS_MAX),
        number(2**63 - 1, -2),
        st.none() | RANGES,
        st.booleans(),
        st.booleans(),
        st.sampled_from(Mode),
        st.just("") | NAMES,
        st.just(EVERYTHING),
        POSITIVE,
        st.lists(POSITIVE, min_size=4, max_size=4),
    ).map(
        lambda pull: replace(
            pull,
            fresh=pull.fresh and pull.held is not None,
            allocations=tuple(pull.allocations[: len(pull.subjects)]) if pull.once else (),
        )
    ),
    st.builds(
        Pulled,
        st.lists(GRANTS, max_size=4),
        number(limits.LEASE_MS_MAX),
        st.binary(max_size=200).map(memoryview),
        st.booleans(),
    ),
    st.builds(Cancel, TARGETS),
    st.builds(Reschedule, TARGETS, POSITIVE),
    st.builds(Show, TARGETS),
    st.builds(ListTimers, NAMES, TEXTS, POSITIVE, POSITIVE, TEXTS, number(limits.TIMERS_PAGE_MAX, 1)),
    st.builds(Changed, POSITIVE, POSITIVE),
    st.builds(Waiting, st.lists(TIMER_ROWS, max_size=3), TEXTS),
    st.builds(Ack, *SETTLED, number(limits.DOOMED_MS)),
    st.builds(Nack, *SETTLED, number(limits.NACK_DELAY_MS_MAX, -1), TEXTS, TEXTS, TEXTS, st.booleans()),
    st.builds(Extend, *SETTLED),
    st.builds(Release, *SETTLED),
    st.builds(Redrive, NAMES, NAMES, RANGES),
    st.builds(Purge, NAMES, NAMES, RANGES),
    st.builds(Seek, NAMES, NAMES, st.sampled_from(Place), POSITIVE, st.booleans()),
    st.builds(Sought, *[POSITIVE] * 6),
    st.builds(Suspend, NAMES, NAMES, st.booleans()),
    st.builds(Yield, NAMES, NAMES, st.lists(NAMES, min_size=1, max_size=20)),
)


@st.composite
def pieces(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    """The stream cut at any places, also into single bytes, and with empty pieces."""
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@st.composite
def mutations(draw: st.DrawFn, original: bytes) -> bytes:
    """Valid bytes with a few of them changed, cut out, doubled or made large."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.integers(0, 4)):
            case 0:
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case 1:
                del data[at : at + draw(st.integers(1, 16))]
            case 2:
                data[at:at] = data[at : at + draw(st.integers(1, 16))]
            case 3:
                data[at & ~3 : (at & ~3) + 4] = draw(U32).to_bytes(4, "little")
            case _:
                data[at:at] = draw(st.binary(max_size=8))
    return bytes(data)
