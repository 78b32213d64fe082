"""A client heeds the wait that it is told, within its one call; and says in doubt what is in doubt."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tidemill import ClientSettings, OutcomeUnknown, Refused, Unavailable, blocking, testing
from tidemill.memory import MemoryBroker
from tidemill_wire.columns import Batch
from tidemill_wire.commands import Failed, SendBatches, encode_command
from tidemill_wire.connection import Connection
from tidemill_wire.errors import KIND_BY_NAME, WireError

WAIT_MS = 120


class Slow:
    """Refuses the first batches of each subject with a wait, and notes when each came."""

    def __init__(self, times, wait_ms=WAIT_MS, only=""):
        self.times = times
        self.wait_ms = wait_ms
        self.only = only
        self.came = []
        self.counts = Counter()

    def __call__(self, subject):
        if self.only and subject != self.only:
            return None
        self.came.append(asyncio.get_running_loop().time())
        self.counts[subject] += 1
        if self.counts[subject] > self.times:
            return None
        return Unavailable("over_quota", f"the quota of subject {subject} is used up", self.wait_ms)


def bodies_of(place, subject):
    found = place.broker.subjects.get(subject)
    return [] if found is None else [body for batch in found.batches for body in Batch(batch).bodies()]


async def test_a_send_waits_as_long_as_it_is_told_and_is_stored_by_the_same_call(serve):
    async with serve() as place, place.client() as mq:
        slow = place.broker.refuse_batch = Slow(3)
        await mq.send("a", b"x")
        assert bodies_of(place, "a") == [b"x"]
        gaps = [later - earlier for earlier, later in zip(slow.came, slow.came[1:], strict=False)]
        assert len(gaps) == 3
        assert min(gaps) >= WAIT_MS / 1000 - 0.01


async def test_messages_wait_in_their_order_and_none_is_lost(serve):
    async with serve() as place, place.client() as mq:
        place.broker.refuse_batch = Slow(4, wait_ms=20)
        bodies = [b"%d" % number for number in range(300)]
        await asyncio.gather(*(mq.send("a", body, order_key="k") for body in bodies))
        assert bodies_of(place, "a") == bodies


async def test_who_waits_for_one_subject_sends_to_others_meanwhile(serve):
    """The broker is well: nothing else is slower, and the lane is not avoided."""
    async with serve() as place, place.client() as mq:
        place.broker.refuse_batch = Slow(1, wait_ms=5_000, only="a")
        waiting = asyncio.ensure_future(mq.send("a", b"waits"))
        for number in range(20):
            await mq.send("b", b"%d" % number)
        assert not waiting.done()
        assert mq._producer.anywhere._steadiness.steady
        waiting.cancel()


async def test_time_that_runs_out_is_told_at_once_in_a_plain_sentence(serve):
    settings = ClientSettings(send_timeout_s=0.5)
    async with serve() as place, place.client(settings=settings) as mq:
        slow = place.broker.refuse_batch = Slow(9, wait_ms=600_000)
        with pytest.raises(
            Unavailable, match=r"the quota of subject a is used up.*wait for as long"
        ) as caught:
            await mq.send("a", b"x")
        assert caught.value.kind.name == "over_quota"
        assert caught.value.wait_ms == 600_000
        assert len(slow.came) == 1
        place.broker.refuse_batch = lambda _subject: None
        await mq.send("a", b"y")
        assert bodies_of(place, "a") == [b"y"]


def test_a_blocking_client_waits_too():
    broker = MemoryBroker()
    broker.refuse_batch = slow = Slow(2, wait_ms=30)
    with blocking.Client(make=lambda: testing.Client(broker)) as mq:
        assert mq.send("a", b"x").sequence == 0
    assert len(slow.came) == 3


# -- in doubt ---------------------------------------------------------------------------------------------------------


class Losing:
    """Stores the first SEND and loses the answer; then whatever was granted is gone."""

    def __init__(self, place, error: WireError | None):
        self.place = place
        self.error = error
        self.lost = 0
        self.handle = place.broker.handle
        place.broker.handle = self

    def __call__(self, peer, correlation, command):
        if isinstance(command, SendBatches) and not self.lost:
            self.lost += 1
            self.place.broker.store(command.batches)
            self.place.broker.refuse_batch = lambda _subject: self.error
            peer.transport.abort()
            return
        self.handle(peer, correlation, command)


FORBIDDEN = Refused("forbidden", "token:shop was not granted Send on 'a'")


@pytest.mark.parametrize("ordered", [False, True])
async def test_what_was_sent_before_its_grant_went_is_told_as_in_doubt(serve, ordered):
    """It is stored, here; that it was refused would be a lie."""
    async with serve() as place, place.client() as mq:
        Losing(place, FORBIDDEN)
        with pytest.raises(OutcomeUnknown, match=r"may be stored, or not.*was not granted"):
            await mq.send("a", b"x", order_key="k" if ordered else None)
        assert bodies_of(place, "a") == [b"x"]
        with pytest.raises(Refused, match="forbidden"):
            await mq.send("a", b"y", order_key="k" if ordered else None)
        assert bodies_of(place, "a") == [b"x"]


async def test_what_is_refused_for_the_first_time_is_told_as_refused(serve):
    async with serve() as place, place.client() as mq:
        place.broker.refuse_batch = lambda _subject: FORBIDDEN
        with pytest.raises(Refused, match="forbidden"):
            await mq.send("a", b"x")


async def test_any_other_refusal_is_of_what_is_not_stored(serve):
    """For whoever says it has looked before."""
    async with serve() as place, place.client() as mq:
        Losing(place, Refused("message_too_large", "too large"))
        with pytest.raises(Refused, match="message_too_large"):
            await mq.send("a", b"x")


async def test_what_is_in_doubt_and_told_to_wait_is_stored_once(serve):
    async with serve() as place, place.client() as mq:
        losing = Losing(place, None)
        receipt = await mq.send("a", b"x")
        assert losing.lost
        assert receipt.sequence == 0
        assert bodies_of(place, "a") == [b"x"]


async def test_what_is_in_doubt_stays_in_doubt_when_no_connection_is_let_in_any_more(serve, monkeypatch):
    """Whoever refuses a connection has not looked, whatever the reason."""
    refusal = Failed(KIND_BY_NAME["unsupported_version"].number, "this broker speaks 9")
    async with serve() as place, place.client() as mq:
        await mq.send("a", b"before")
        monkeypatch.setattr(Connection, "welcome", lambda *_: encode_command(refusal, 0))
        Losing(place, None)
        with pytest.raises(OutcomeUnknown, match=r"may be stored, or not.*this broker speaks 9"):
            await mq.send("a", b"x")
        with pytest.raises(Refused, match="this broker speaks 9"):
            await mq.send("a", b"y")
        assert bodies_of(place, "a") == [b"before", b"x"]
