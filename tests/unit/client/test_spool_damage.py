"""A spool on a disk that loses bits, has no room, or cannot be had: what can be sent is sent, and all of it is said."""

from __future__ import annotations

import asyncio
import errno
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from tidemill import ClientSettings
from tidemill.encode import encode_single
from tidemill.errors import SpoolUnusable
from tidemill.spool import RECORD, Spool
from tidemill_wire.columns import Batch

SETTINGS = ClientSettings(spool_after_s=0.01, backoff_base_s=0.01, backoff_max_s=0.05)


def batch(number: int) -> bytes:
    return encode_single(b"a".ljust(8, b"\0"), 1, (7, number, bytes(16), 0), b"%d" % number)


def bodies_of(place, subject):
    return [body for stored in place.broker.subjects[subject].batches for body in Batch(stored).bodies()]


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def records(numbers) -> list[bytes]:
    return [RECORD.pack(len(one), crc32c(one)) + one for one in map(batch, numbers)]


def test_of_a_spool_with_damage_in_it_all_else_is_sent(tmp_path):
    """One flipped bit, in a body or in a sum, also of records side by side: what is behind it comes, in its order."""
    path = tmp_path / "spool"
    sizes = [len(one) for one in records(range(6))]
    for bad in ([0], [1], [1, 2], [1, 3], [0, 1, 2, 4]):
        spool = Spool(path, 10_000)
        spool.append([batch(number) for number in range(6)])
        spool.close()
        for number in bad:
            flip(path, 24 + sum(sizes[:number]) + (7 if number % 2 else sizes[number] - 1))
        damaged = [path.read_bytes()[24 + sum(sizes[:number]) :][: sizes[number]] for number in bad]
        spool = Spool(path, 10_000)
        assert (spool.damaged, spool.cut) == (len(bad), 0)
        found = []
        while not spool.empty:
            batches, position = spool.read(10_000)
            found += batches
            spool.sent(position)
        assert found == [batch(number) for number in range(6) if number not in bad]
        spool.append([batch(7)])
        assert spool.read(10_000)[0] == [batch(7)]
        spool.sent(spool.read(10_000)[1])
        spool.close()
        aside = tmp_path / "spool.damaged"
        assert aside.read_bytes() == b"".join(damaged)
        aside.unlink()


def test_damage_before_what_was_sent_is_nobodys_business(tmp_path):
    path = tmp_path / "spool"
    spool = Spool(path, 10_000)
    spool.append([batch(number) for number in range(3)])
    spool.sent(spool.read(1)[1])
    spool.close()
    flip(path, 24)  # the length of the first record: nobody could go on behind it
    spool = Spool(path, 10_000)
    assert (spool.damaged, spool.cut) == (0, 0)
    assert spool.read(10_000)[0] == [batch(1), batch(2)]
    spool.close()


def test_what_is_cut_is_kept_aside(tmp_path):
    """A length that went bad: where the next record begins nobody knows."""
    path = tmp_path / "spool"
    spool = Spool(path, 10_000)
    spool.append([batch(number) for number in range(3)])
    spool.close()
    first, second, third = records(range(3))
    flip(path, 24 + len(first) + 2)  # 64 KiB more
    tail = path.read_bytes()[24 + len(first) :]
    spool = Spool(path, 10_000)
    assert (spool.damaged, spool.cut) == (0, len(second) + len(third))
    assert spool.read(10_000)[0] == [batch(0)]
    spool.close()
    assert (tmp_path / "spool.damaged").read_bytes() == tail


async def test_damage_is_said_and_what_was_set_aside_is_no_spool_of_a_group(serve, tmp_path, caplog, until):
    path = tmp_path / "spool"
    async with serve() as place:
        await place.stop()
        async with place.client(settings=SETTINGS, spool=path) as mq:
            for number in range(3):
                await mq.send("a", b"body %d" % number)
        flip(path, path.read_bytes().index(b"body 1"))
        (tmp_path / "spool.to.elsewhere.damaged").write_bytes(b"what was no record")
        await place.start()
        async with place.client(settings=SETTINGS, spool=path) as mq:
            await mq.send("a", b"3")
            assert mq._spools._spoolers[""].damaged == 1
        assert bodies_of(place, "a") == [b"body 0", b"body 2", b"3"]
    said = [one.getMessage() for one in caplog.records if "spool_damaged" in one.getMessage()]
    assert len(said) == 1
    assert "1 batches went bad" in said[0]
    assert str(path) + ".damaged" in said[0]


async def test_a_spool_that_cannot_be_opened_is_told_in_a_sentence(serve, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    async with serve() as place:
        mq = place.client(spool=tmp_path / "file" / "spool")
        with pytest.raises(SpoolUnusable, match=r"cannot be opened \(.+\): look at its folder"):
            await mq.send("a", b"0")
        await mq.close()


async def test_a_spool_in_use_is_told_without_a_limit_that_is_none(serve, tmp_path):
    async with serve() as place, place.client(spool=tmp_path / "spool"):
        with pytest.raises(SpoolUnusable, match=r"give each its own$") as caught:
            async with place.client(spool=tmp_path / "spool"):
                pass
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


async def test_a_disk_that_stays_full_is_said_once(serve, tmp_path, caplog, until, monkeypatch):
    tries = []

    def full(_spool, batches):
        tries.append(batches)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Spool, "append", full)
    settings = replace(SETTINGS, send_timeout_s=30.0)
    async with serve() as place:
        await place.stop()
        async with place.client(settings=settings, spool=tmp_path / "spool") as mq:
            send = asyncio.ensure_future(mq.send("a", b"0"))
            await until(lambda: len(tries) >= 3)
            monkeypatch.undo()
            assert (await send).spooled
        await place.start()
    assert [one.getMessage().split()[0] for one in caplog.records].count("spool_failed") == 1
