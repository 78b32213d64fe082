"""What of a spool is in doubt when it is denied: all that was written and not answered, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from tidemill import ClientSettings
from tidemill.encode import encode_single
from tidemill.errors import ConnectionLost, Refused, TidemillError, Unavailable
from tidemill.spool import RECORD
from tidemill.spool_doubts import SpoolDoubts
from tidemill_wire.columns import Batch

SETTINGS = ClientSettings(spool_after_s=0.01, backoff_base_s=0.01, backoff_max_s=0.05)
DENIED = Refused("forbidden", "token:shop was not granted Send on 'a'")
FULL = Unavailable("over_quota", "the quota of subject a is used up")
LARGE = Refused("message_too_large", "it is")


def batch(number: int) -> bytes:
    return encode_single(b"a".ljust(8, b"\0"), 1, (7, number, bytes(16), 0), b"%d" % number)


FIRST, SECOND = batch(1), batch(2)


@pytest.mark.parametrize("error", [DENIED, Refused("unauthenticated", "the token is none, or was revoked")])
def test_what_was_written_and_not_answered_is_in_doubt_when_it_is_denied(error: Refused) -> None:
    doubts = SpoolDoubts()
    doubts.unanswered([FIRST])
    assert doubts.leave(FIRST, 24, error)
    assert not doubts.leave(SECOND, 24, error), "it was written nowhere"


@pytest.mark.parametrize("error", [LARGE, ConnectionLost("gone"), FULL])
def test_who_refuses_otherwise_has_looked(error: TidemillError) -> None:
    doubts = SpoolDoubts()
    doubts.unanswered([FIRST])
    assert not doubts.leave(FIRST, 24, error)


def test_what_was_looked_for_since_is_not_in_doubt() -> None:
    doubts = SpoolDoubts()
    doubts.unanswered([FIRST, SECOND])
    doubts.answered([FIRST, SECOND], {0: FULL, 1: DENIED})
    assert [doubts.leave(one, 24, DENIED) for one in (FIRST, SECOND)] == [False, True]
    doubts.gone([FIRST, SECOND])
    assert not doubts.leave(SECOND, 24, DENIED)


def test_what_an_earlier_process_left_may_have_been_written_by_it() -> None:
    doubts = SpoolDoubts()
    doubts.left(100)
    assert [doubts.leave(FIRST, at, DENIED) for at in (24, 99, 100)] == [True, True, False]
    doubts.left(0)
    assert not doubts.leave(FIRST, 24, DENIED)


def aside(folder, kind):
    """The bodies in a file of what was set aside."""
    path, bodies = folder / f"spool{kind}", []
    data = path.read_bytes() if path.exists() else b""
    while data:
        length, _ = RECORD.unpack_from(data)
        bodies += Batch(data[RECORD.size : RECORD.size + length]).bodies()
        data = data[RECORD.size + length :]
    return bodies


async def test_a_spooled_batch_whose_answer_was_lost_and_that_is_then_denied_is_in_doubt(
    serve, tmp_path, until, caplog
):
    """And the one that was never sent is refused, in the same file and by the same words."""
    async with serve() as place:
        await place.stop()
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
            assert (await mq.send("a", b"sent")).spooled
            place.broker.silent = True
            await place.start()
            await until(lambda: place.broker.subjects.get("a"))
            await place.stop()
            assert (await mq.send("b", b"not sent")).spooled
            place.broker.silent = False
            place.broker.refuse_batch = lambda name: Refused("forbidden", f"no Send on {name}")
            await place.start()
            await until(lambda: (tmp_path / "spool").stat().st_size == 24)
        assert bodies_of(place, "a") == [b"sent"]
        assert (aside(tmp_path, ".doubted"), aside(tmp_path, ".refused")) == ([b"sent"], [b"not sent"])
    said = [
        one.message.partition(" ")[0] for one in caplog.records if one.message.startswith("spooled_batch")
    ]
    assert said == ["spooled_batch_in_doubt", "spooled_batch_refused"]


async def test_so_is_one_that_was_in_flight_before_it_was_spooled(serve, tmp_path, until):
    async with serve() as place, place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
        await mq.send("a", b"0")
        place.broker.silent = True
        sending = asyncio.ensure_future(mq.send("a", b"sent"))
        await until(lambda: bodies_of(place, "a") == [b"0", b"sent"])
        await place.stop()
        assert (await sending).spooled
        place.broker.silent = False
        place.broker.refuse_batch = lambda name: Refused("forbidden", f"no Send on {name}")
        await place.start()
        await until(lambda: (tmp_path / "spool").stat().st_size == 24)
    assert (aside(tmp_path, ".doubted"), aside(tmp_path, ".refused")) == ([b"sent"], [])


async def test_so_is_what_an_earlier_process_left(serve, tmp_path, until):
    async with serve() as place:
        await place.stop()
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
            assert (await mq.send("a", b"left")).spooled
        place.broker.refuse_batch = lambda name: Refused("forbidden", f"no Send on {name}")
        await place.start()
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool"):
            await until(lambda: (tmp_path / "spool").stat().st_size == 24)
    assert (aside(tmp_path, ".doubted"), aside(tmp_path, ".refused")) == ([b"left"], [])


def bodies_of(place, subject):
    return [body for stored in place.broker.subjects[subject].batches for body in Batch(stored).bodies()]
