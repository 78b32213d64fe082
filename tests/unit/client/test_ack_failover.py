"""What becomes of acks while no broker can be reached: they are kept in the spool, and told when one is back."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from tidemill import ClientSettings, Refused
from tidemill.ack_file import LockedFile
from tidemill.ack_spool import AGE_MS_MAX, MAGIC, AckSpool, Place
from tidemill.worker import Worker
from tidemill_wire.commands import Ack, Goodbye, Nack, Pull, Release

SETTINGS = ClientSettings(
    spool_after_s=0.01, backoff_base_s=0.01, backoff_max_s=0.05, close_timeout_s=1000.0, routes_poll_s=0.05
)


def kept_in(folder):
    """Place and fate of what a spool holds that nobody has open."""
    path = folder / "spool.acks"
    spool = AckSpool(LockedFile(path), str(path), 1 << 20)
    found = [(kept.place, kept.fate) for kept in spool.kept.values()]
    spool.close()
    return found


def acks_of(place):
    return [said for said in place.broker.said if isinstance(said, Ack)]


async def left_behind(place, folder, count=3, settings=SETTINGS, name="c", settle=None):
    """A client took ``count`` messages, lost its broker, settled them, and ended."""
    place.broker.patient = True
    async with place.client(settings=settings, spool=folder / "spool") as mq:
        await mq.send_many("a", [b"%d" % number for number in range(count)])
        async with mq.consume("a", group="g", name=name) as messages:
            batch = await anext(messages.batches())
            await place.stop()
            assert await (settle(batch) if settle else batch.ack()) is False
        return mq.spooled_acks


async def test_an_ack_that_cannot_be_told_is_kept_and_told_when_the_broker_is_back(serve, tmp_path, until):
    async with serve() as place, place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
        place.broker.patient = True
        await mq.send_many("a", [b"0", b"1", b"2"])
        async with mq.consume("a", group="g", name="c") as messages:
            batch = await anext(messages.batches())
            assert await batch[0].ack() is True
            await place.stop()
            assert await batch[1].ack() is False
            assert await batch[2].nack(delay=0, reason="not now") is False
            assert mq.spooled_acks == {
                "waiting": 2, "spooled": 2, "told": 0, "too_late": 0, "dropped": 0, "unkept": 0,
            }  # fmt: skip
            place.broker.said.clear()
            await place.start()
            await until(lambda: not mq.spooled_acks["waiting"])
            assert place.group().acked == 2
            told = [said for said in place.broker.said if isinstance(said, Ack | Nack | Pull)]
            assert [type(said) for said in told[:3]] == [Ack, Nack, Pull], (
                "in their order, before the first pull"
            )
            again = await anext(messages)
            assert (again.sequence, again.attempts) == (2, 1)
        assert mq.spooled_acks["told"] == 2
        assert messages.statistics["lost"] == 0
    assert (tmp_path / "spool.acks").read_bytes() == MAGIC


async def test_acks_outlive_their_process_and_are_told_under_the_name_they_were_given_out_to(
    serve, tmp_path, until
):
    async with serve() as place:
        left = await left_behind(place, tmp_path)
        assert left["waiting"] == 3
        assert kept_in(tmp_path) == [(Place("g0", "g", "c"), Ack("g", "c", "a", [0, 2]))]
        await place.start()
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
            await until(lambda: place.group().acked == 3)  # nobody consumes here
            await until(lambda: not mq.spooled_acks["waiting"])
            assert mq.spooled_acks["told"] == 3
            await mq.send("a", b"3")
            async with mq.consume("a", group="g", name="d") as messages:
                assert (await anext(messages)).sequence == 3
        assert kept_in(tmp_path) == []
        assert len(acks_of(place)) == 2, "nothing was told twice"


async def test_a_consumer_of_the_same_name_says_them_before_it_pulls(serve, tmp_path):
    async with serve() as place:
        await left_behind(place, tmp_path)
        place.broker.said.clear()
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
            async with mq.consume("a", group="g", name="c") as messages:
                await place.start()
                await mq.send("a", b"3")
                assert (await anext(messages)).sequence == 3
            assert mq.spooled_acks["told"] == 3
        order = [said for said in place.broker.said if isinstance(said, Ack | Pull)]
        acked = order.index(Ack("g", "c", "a", [0, 2]))
        pulls = [said for said in order[:acked] if isinstance(said, Pull)]
        assert all(list(pull.held or ()) == [0, 2] for pull in pulls)
        assert kept_in(tmp_path) == []


async def test_a_first_pull_names_what_is_kept_and_not_told(serve, tmp_path, until):
    """The answer is outstanding: the broker must not take the messages back."""
    async with serve() as place:
        await left_behind(place, tmp_path)
        place.broker.said.clear()
        settle = place.broker.settle
        place.broker.settle = lambda command: (_ for _ in ()).throw(AssertionError(command))
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
            async with mq.consume("a", group="g", name="c"):
                await asyncio.sleep(0)
                place.broker.settle = settle
                await place.start()
                await until(lambda: any(isinstance(said, Pull) for said in place.broker.said))
                first = next(said for said in place.broker.said if isinstance(said, Pull))
                assert list(first.held) == [0, 2]
                assert first.fresh


async def test_a_failure_is_kept_with_its_reason_and_what_is_left_of_its_delay(serve, tmp_path, until):
    now_ms = 1_000_000

    def clock() -> int:
        return now_ms

    settings = replace(SETTINGS, now_ms=clock)

    async def fail(batch):
        return await batch.nack(delay=30, error=ValueError("no amount"))

    async with serve() as place:
        await left_behind(place, tmp_path, 2, settings, settle=fail)
        now_ms += 29_990
        await place.start()
        place.broker.said.clear()
        async with place.client(settings=settings, spool=tmp_path / "spool"):
            await until(lambda: any(isinstance(said, Nack) for said in place.broker.said))
        nack = next(said for said in place.broker.said if isinstance(said, Nack))
        assert (nack.ranges, nack.delay_ms, nack.reason, nack.error) == (
            [0, 1], 10, "ValueError: no amount", "ValueError",
        )  # fmt: skip


async def test_what_was_not_begun_is_handed_back_out_of_the_spool(serve, tmp_path, until):
    async with serve() as place:
        place.broker.patient = True
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
            await mq.send_many("a", [b"%d" % number for number in range(4)])
            async with mq.consume("a", group="g", name="c") as messages:
                async for message in messages:
                    if message.sequence == 1:
                        break
                await place.stop()
        assert {type(fate) for _, fate in kept_in(tmp_path)} == {Ack, Release}
        await place.start()
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool"):
            await until(lambda: place.group().acked == 2 and len(place.group().due) == 2)
        assert [attempts for _, attempts in place.group().due] == [0, 0]


async def test_what_comes_too_late_is_counted_and_comes_again(serve, tmp_path, until):
    async with serve() as place:
        await left_behind(place, tmp_path)
        group = place.group()
        group.due.extend(group.members["c"].leases.values())
        group.members["c"].leases.clear()  # the lease has ended
        await place.start()
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
            await until(lambda: not mq.spooled_acks["waiting"])
            assert (mq.spooled_acks["told"], mq.spooled_acks["too_late"]) == (0, 3)
            async with mq.consume("a", group="g", name="c") as messages:
                assert (await anext(messages)).sequence == 0
        assert (tmp_path / "spool.acks").read_bytes() == MAGIC


async def test_what_no_broker_took_in_a_day_is_dropped_counted_and_logged(serve, tmp_path, caplog):
    now_ms = 1_000_000

    def clock() -> int:
        return now_ms

    settings = replace(SETTINGS, now_ms=clock)
    async with serve() as place:
        await left_behind(place, tmp_path, settings=settings)
        now_ms += AGE_MS_MAX + 1
        with caplog.at_level(logging.ERROR, "tidemill"):
            async with place.client(settings=settings, spool=tmp_path / "spool") as mq:
                assert (mq.spooled_acks["waiting"], mq.spooled_acks["dropped"]) == (0, 3)
        assert "messages=3: no broker took them in a day" in caplog.text
        assert kept_in(tmp_path) == []
        await place.start()


async def test_a_full_spool_is_said_once_and_acks_wait_in_memory(serve, tmp_path, caplog, until):
    settings = replace(SETTINGS, spool_bytes_max=150)
    async with serve() as place, place.client(settings=settings, spool=tmp_path / "spool") as mq:
        place.broker.patient = True
        await mq.send_many("a", [b"0", b"1", b"2"])
        async with mq.consume("a", group="g", name="c") as messages:
            batch = await anext(messages.batches())
            await place.stop()
            assert await batch[0].ack() is False
            ack = asyncio.ensure_future(batch[1].ack())
            await until(lambda: mq.spooled_acks["unkept"] >= 2)  # it is tried again
            assert not ack.done()
            await place.start()
            assert await ack is True
    assert caplog.text.count("is full: raise spool_bytes_max") == 1


async def test_a_consumer_that_leaves_does_not_wait_for_a_broker_that_is_away(serve, tmp_path):
    """``close_timeout_s`` is longer than the deadline of a test."""
    async with serve() as place:
        place.broker.patient = True
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
            await mq.send("a", b"0")
            async with mq.consume("a", group="g") as messages:
                await anext(messages)
                await place.stop()
        (place_of, fate), *_ = kept_in(tmp_path)
        assert place_of.consumer == messages.name == fate.consumer
        await place.start()


async def test_the_courier_of_a_consumer_that_left_tells_while_the_client_goes_on(serve, tmp_path, until):
    async with serve() as place, place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
        place.broker.patient = True
        await mq.send("a", b"0")
        async with mq.consume("a", group="g", name="c") as messages:
            await anext(messages)
            await place.stop()
        assert mq.spooled_acks["waiting"] == 1
        await place.start()
        await until(lambda: not mq.spooled_acks["waiting"])
        assert place.group().acked == 1
        await until(lambda: sum(isinstance(said, Goodbye) for said in place.broker.said) == 1)


async def test_a_courier_with_much_to_tell_hands_over_what_it_has_not_said(serve, tmp_path):
    """A consumer that begins under a name with many acks in the file: each is told once."""
    async with serve() as place:
        place.broker.patient = True
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
            await mq.send_many("a", [b"x"] * 256)
            async with mq.consume("a", group="g", name="c") as messages:
                batch = await anext(messages.batches())
                await place.stop()
                answers = [asyncio.ensure_future(batch[index].ack()) for index in range(0, 256, 2)]
                assert not any(await asyncio.gather(*answers))
        await place.start()
        place.broker.said.clear()
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
            async with mq.consume("a", group="g", name="c") as messages:
                await mq.send("a", b"last")
                while (await anext(messages)).sequence != 256:
                    pass
            assert mq.spooled_acks["too_late"] == 0
            assert mq.spooled_acks["told"] == 256
            assert messages.statistics["lost"] == 0


async def test_a_consumer_whose_acks_nobody_takes_says_no_goodbye_so_its_leases_live_on(
    serve, tmp_path, until
):
    """The broker is there and cannot write. A goodbye would end the leases before the acks are told."""
    settings = replace(SETTINGS, close_timeout_s=0.05)
    async with serve() as place:
        place.broker.patient = place.broker.busy = True
        async with place.client(settings=settings, spool=tmp_path / "spool") as mq:
            await mq.send("a", b"0")
            async with mq.consume("a", group="g", name="c") as messages:
                await anext(messages)
            assert mq.spooled_acks["waiting"] == 1
            assert not place.group().due
            place.broker.busy = False
            await until(lambda: not mq.spooled_acks["waiting"])
        assert place.group().acked == 1
        assert mq.spooled_acks["too_late"] == 0


async def test_at_most_once_has_nothing_to_keep(serve, tmp_path):
    async with serve() as place:
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
            await mq.send("a", b"0")
            async with mq.consume("a", group="g", at_most_once=True) as messages:
                await anext(messages)
                await place.stop()
        assert kept_in(tmp_path) == []
        await place.start()


async def test_two_clients_cannot_have_one_spool_of_acks(serve, tmp_path):
    async with serve() as place, place.client(spool=tmp_path / "spool") as mq:
        await mq.send("a", b"0")
        (tmp_path / "other.acks").symlink_to(tmp_path / "spool.acks")
        with pytest.raises(Refused, match=r"other\.acks is in use by another process"):
            async with place.client(spool=tmp_path / "other"):
                pass


async def test_a_worker_that_ends_in_an_outage_keeps_its_acks_and_calls_none_of_them_acked(
    serve, tmp_path, until
):
    settings = replace(SETTINGS, close_timeout_s=5.0)
    worker = Worker(settings=settings)
    handled, acked, outage = [], [], asyncio.Event()

    @worker.on("a", group="g", concurrency=10)
    async def handle(message):
        await outage.wait()
        handled.append(message.sequence)
        if message.sequence == 2:
            raise ValueError("no amount")

    @worker.acked
    def note(message, context):
        acked.append(message.sequence)

    async with serve() as place:
        place.broker.patient = True
        async with place.client(settings=settings, spool=tmp_path / "spool") as mq:
            await mq.send_many("a", [b"%d" % number for number in range(4)])
            serving = asyncio.ensure_future(worker.serve(mq))
            await until(lambda: worker.statistics().total.in_progress == 4)
            await place.stop()
            outage.set()
            worker.stop()
            assert await serving == 0, "it drained, long before its deadline"
            assert sorted(handled) == [0, 1, 2, 3]
            assert acked == []
            assert worker.statistics().total.spooled == 4
            assert mq.spooled_acks["waiting"] == 4
        await place.start()
        async with place.client(settings=settings, spool=tmp_path / "spool") as mq:
            await until(lambda: not mq.spooled_acks["waiting"])
            assert mq.spooled_acks["told"] == 4
        assert place.group().acked == 3
        assert [attempts for _, attempts in place.group().due] == [1]


async def test_the_page_of_a_worker_says_what_waits_in_the_spool(serve, tmp_path):
    worker = Worker(settings=SETTINGS)
    worker.on("a", group="g")(print)
    async with serve() as place:
        await left_behind(place, tmp_path)
        async with place.client(settings=SETTINGS, spool=tmp_path / "spool") as mq:
            serving = asyncio.ensure_future(worker.serve(mq))
            await asyncio.sleep(0)
            page = worker.statistics().prometheus()
            assert "tidemill_spool_acks_waiting 3\n" in page
            assert "# TYPE tidemill_spool_acks_told_total counter\n" in page
            worker.stop()
            await serving
        await place.start()


async def test_each_of_several_worker_processes_has_a_spool_of_its_own(serve, tmp_path):
    async with serve():
        for number, name in enumerate(("spool", "spool.1", "spool.2")):
            worker = Worker("localhost:1", settings=replace(SETTINGS, spool_path=tmp_path / "spool"))
            worker.number(number)
            worker.on("a", group="g")(print)
            worker.on_startup(worker.stop)
            assert await worker.serve() == 0
            assert (tmp_path / f"{name}.acks").exists()
            assert (tmp_path / name).exists()
    assert len(list(tmp_path.iterdir())) == 6
