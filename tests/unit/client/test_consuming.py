"""What ``consume`` promises."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from tidemill import ClientClosed, ClientSettings, Refused
from tidemill_wire.commands import Pull


async def take(messages, count):
    taken = []
    async for message in messages:
        taken.append(message)
        if len(taken) == count:
            return taken
    return taken


async def test_a_message_arrives_with_all_that_belongs_to_it(serve):
    async with serve() as place, place.client() as mq:
        receipt = await mq.send("a", b"body", key="k", tags={"vip"}, properties={"n": 1})
        async with mq.consume("a", group="g") as messages:
            message = await anext(messages)
            assert (message.subject, message.sequence, message.body) == ("a", 0, b"body")
            assert (message.key, message.tags, message.properties) == ("k", {"vip"}, {"n": 1})
            assert (message.id, message.attempts) == (receipt.id, 0)
            assert message.stored_at.tzinfo is UTC
            assert abs(message.created_at - message.stored_at).total_seconds() < 10
            assert "sequence=0" in repr(message)


async def test_a_message_without_extras_has_none(serve):
    async with serve() as place, place.client() as mq:
        await asyncio.gather(mq.send("a", b"1"), mq.send("a", b"2", key="k", tags={"t"}, properties={"n": 1}))
        async with mq.consume("a", group="g") as messages:
            first, second = await take(messages, 2)
            assert (first.key, first.tags, first.properties) == (None, frozenset(), {})
            assert (second.key, second.tags, second.properties) == ("k", {"t"}, {"n": 1})


async def test_advancing_acks_the_message_before_and_leaving_acks_the_last(serve):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"%d" % number for number in range(1000)])
        async with mq.consume("a", group="g") as messages:
            taken = await take(messages, 700)
        assert [message.body for message in taken] == [b"%d" % number for number in range(700)]
        assert place.group().acked == 700
        async with mq.consume("a", group="g") as messages:
            rest = await take(messages, 300)
        assert sorted(message.sequence for message in rest) == list(range(700, 1000))
        assert place.group().acked == 1000


async def test_a_whole_batch_is_acked_on_advance(serve):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"%d" % number for number in range(300)])
        await mq.send_many("a", [b"last"])
        got = []
        async with mq.consume("a", group="g") as messages:
            async for batch in messages.batches():
                assert len(batch) == len(batch.bodies) == len(batch.ids) == len(batch.keys)
                assert [message.body for message in batch] == batch.bodies
                assert batch[-1].sequence == batch.first_sequence + len(batch) - 1
                got += batch.bodies
                if got[-1] == b"last":
                    break
        assert got == [b"%d" % number for number in range(300)] + [b"last"]
        assert place.group().acked == 301


async def test_several_subjects_are_consumed_together(serve):
    async with serve() as place, place.client() as mq:
        await mq.send_each([("a", b"1"), ("b", b"2"), ("c", b"3")])
        async with mq.consume(["a", "b"], group="g") as messages:
            assert {message.subject for message in await take(messages, 2)} == {"a", "b"}


async def test_two_consumers_of_a_group_share_and_two_groups_do_not(serve):
    async with serve() as place, place.client(settings=ClientSettings(prefetch_messages=1)) as mq:
        await mq.send_many("a", [b"%d" % number for number in range(10)])
        async with mq.consume("a", group="g") as one, mq.consume("a", group="g") as two:
            shared: list[int] = []

            async def handle(messages):
                async for message in messages:
                    shared.append(message.sequence)
                    if len(shared) == 10:
                        return

            await asyncio.wait(
                [asyncio.ensure_future(handle(one)), asyncio.ensure_future(handle(two))],
                return_when=asyncio.FIRST_COMPLETED,
            )
        async with mq.consume("a", group="other") as messages:
            assert len(await take(messages, 10)) == 10
        assert sorted(shared) == list(range(10))


@pytest.mark.parametrize(
    "start, first",
    [("earliest", b"old"), ("latest", b"new"), (0, b"old"), (datetime(2100, 1, 1, tzinfo=UTC), b"new")],
)
async def test_a_new_group_begins_where_it_is_told(serve, start, first, until):
    async with serve() as place, place.client() as mq:
        await mq.send("a", b"old")
        async with mq.consume("a", group="g", start=start) as messages:
            next_one = asyncio.ensure_future(anext(messages))
            await until(lambda: ("a", "g") in place.broker.groups)
            await mq.send("a", b"new")
            assert (await next_one).body == first


@pytest.mark.parametrize(
    "arguments, error",
    [
        (("a b", "g", "earliest", None), Refused),
        (((), "g", "earliest", None), Refused),
        (("a", "", "earliest", None), Refused),
        (("a", "g", "sometime", None), ValueError),
        (("a", "g", datetime(2026, 1, 1), None), ValueError),  # noqa: DTZ001
        (("a", "g", "earliest", "na me"), Refused),
    ],
)
async def test_a_wrong_subscription_is_refused_at_once(serve, arguments, error):
    subjects, group, start, name = arguments
    async with serve() as place, place.client() as mq:
        with pytest.raises(error):
            mq.consume(subjects, group=group, start=start, name=name)


async def test_after_a_lost_connection_the_same_consumer_goes_on(serve):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"%d" % number for number in range(100)])
        seen = []
        async with mq.consume("a", group="g") as messages:
            async for message in messages:
                seen.append(message.sequence)
                if len(seen) == 10:
                    place.drop()
                if len(set(seen)) == 100:
                    break
            assert list(place.group().members) == [messages.name]
        assert set(seen) == set(range(100))


async def test_the_first_pull_of_a_connection_says_what_is_held_and_the_others_say_nothing(serve, until):
    """What was acked is not held any more; what waits here is, beside the message in hand."""
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"%d" % number for number in range(20)])

        def named():
            pulls = [said for said in place.broker.said if isinstance(said, Pull)]
            return [(number, said) for number, said in enumerate(pulls) if said.held is not None]

        async with mq.consume("a", group="g") as messages:
            taken = await take(messages, 5)  # who asks for the next one has handled the one before
            await until(lambda: place.group().acked == 4)
            await taken[-1].extend()  # its answer comes behind theirs: those are heard of, too
            low = taken[0]._delivery.pull_sequence
            place.drop()
            await until(lambda: len(named()) > 1)
            (number, first), (later, again) = named()[:2]
            assert (number, list(first.held), first.fresh) == (0, [], True)
            assert later > 1
            assert (list(again.held), again.fresh) == ([low + 4, low + 19], False)


async def test_a_pull_that_is_refused_fails_the_consumer(serve):
    async with serve() as place, place.client() as mq:

        def refuse(peer, correlation, _command):
            peer.fail(correlation, "unknown_subject", "no such thing")

        place.broker.pull = refuse
        async with mq.consume("a", group="g") as messages:
            with pytest.raises(Refused, match="unknown_subject"):
                await anext(messages)


async def test_the_window_grows_for_a_fast_handler(serve):
    async with serve() as place:
        async with place.client(settings=ClientSettings(batch_bytes=10_000)) as mq:
            await mq.send_many("a", [b"x" * 100] * 20_000)
            async with mq.consume("a", group="g") as messages:
                await take(messages, 20_000)
        asked = [said.messages_max for said in place.broker.said if isinstance(said, Pull)]
        assert asked[0] == 256
        assert max(asked) > 1000


async def test_a_name_is_remembered_and_never_shared(serve, tmp_path):
    settings = ClientSettings(state_dir=tmp_path)
    async with serve() as place, place.client(settings=settings) as mq:
        async with mq.consume("a", group="g") as one, mq.consume("a", group="g") as two:
            names = [one.name, two.name]
        async with mq.consume("a", group="g") as again:
            assert again.name == names[0]
        async with mq.consume("a", group="g", name="mine") as given:
            assert given.name == "mine"
    assert names[0] != names[1]


async def test_closing_the_client_closes_its_consumers(serve):
    async with serve() as place:
        mq = place.client()
        await mq.send("a", b"0")
        messages = await mq.consume("a", group="g").__aenter__()
        message = await anext(messages)
        await mq.close()
        with pytest.raises(StopAsyncIteration):
            await anext(messages)
        assert place.group().acked == 1
        assert message.body == b"0"
        with pytest.raises(ClientClosed):
            mq.consume("a", group="g")


async def test_a_consumer_that_waits_ends_when_the_client_is_closed(serve):
    async with serve() as place:
        mq = place.client()
        messages = await mq.consume("a", group="g").__aenter__()
        waiting = asyncio.ensure_future(take(messages, 1))
        await asyncio.sleep(0)
        await mq.close()
        assert await waiting == []


async def test_what_is_taken_is_settled_by_hand_and_in_any_order(serve, until):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"%d" % number for number in range(3)])
        async with mq.consume("a", group="g") as messages:
            first, second, third = [await messages.take() for _ in range(3)]
            await third.ack()
            await first.nack(delay=3600)
            assert place.group().acked == 1
            second.release()
            again = await messages.take()
            assert (again.sequence, again.attempts) == (1, 0)
            await again.ack()
        assert place.group().acked == 2


async def test_a_consumer_that_stops_gives_back_what_was_not_begun_and_keeps_the_rest(serve, until):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"%d" % number for number in range(10)])
        async with mq.consume("a", group="g") as messages:
            taken = [await messages.take() for _ in range(2)]
            messages.stop()
            await until(lambda: len(place.group().due) == 8)
            with pytest.raises(StopAsyncIteration):
                await messages.take()
            await taken[0].ack()
        assert place.group().acked == 1
        assert sorted(place.group().due) == [(number, 0) for number in range(1, 10)]


async def test_a_closed_client_leaves_no_timer_of_its_connections(serve):
    """One that went on would say something over a connection that is gone."""
    async with serve() as place:
        async with place.client() as mq:
            await mq.send("a", b"1")
            async with mq.consume("a", group="g") as messages:
                await anext(messages)
        timers = asyncio.get_running_loop()._scheduled
        assert [timer for timer in timers if not timer.cancelled() and "_tick" in repr(timer)] == []


async def test_leaving_a_full_inbox_hands_back_each_message_once(serve, caplog):
    async with serve() as place, place.client() as mq:
        for number in range(40):
            await mq.send("a", b"%d" % number)
        async with mq.consume("a", group="g") as messages:
            await take(messages, 2)
        async with mq.consume("a", group="g") as messages:
            rest = await take(messages, 38)
    assert sorted(int(message.body) for message in rest) == list(range(2, 40))
    assert [record.message for record in caplog.records if "refused" in record.message] == []


async def gone_through(messages, begun, gate):
    async for message in messages:
        begun.append(message.body)
        await gate.wait()


async def test_several_tasks_cannot_share_a_consumer(serve, until):
    """Whoever asks second would wait for ever, or ack by its asking what the first one has in its hands."""
    async with serve() as place, place.client() as mq:
        async with mq.consume("a", group="g") as messages:
            begun, gate = [], asyncio.Event()
            first = asyncio.ensure_future(gone_through(messages, begun, gate))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match=r"another task waits .* one loop per consumer"):
                await anext(messages)
            with pytest.raises(RuntimeError, match="another task waits"):
                await messages.take()
            await mq.send_many("a", [b"0", b"1"])
            await until(lambda: begun)
            with pytest.raises(RuntimeError, match="in its hands: one loop per consumer"):
                await anext(messages)
            assert place.group().acked == 0
            gate.set()
            await until(lambda: len(begun) == 2)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
        assert begun == [b"0", b"1"]


@pytest.mark.parametrize("ends", ["cancelled", "raises", "goes on"])
async def test_what_another_task_did_not_handle_is_not_acked_when_the_block_is_left(serve, until, ends):
    gate = asyncio.Event()
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"0", b"1"])

        async def work(messages, begun):
            async for message in messages:
                begun.append(message.body)
                await gate.wait()
                raise KeyError("no such order")

        async with mq.consume("a", group="g") as messages:
            begun = []
            task = asyncio.ensure_future(work(messages, begun))
            await until(lambda: begun)
            if ends == "raises":
                gate.set()
            elif ends == "cancelled":
                task.cancel()
            if ends != "goes on":
                await asyncio.wait([task])
        gate.set()
        await asyncio.gather(task, return_exceptions=True)
        assert place.group().acked == 0


async def test_a_task_that_follows_one_that_was_cancelled_does_not_ack_its_message(serve, until):
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"0", b"1"])
        async with mq.consume("a", group="g") as messages:
            begun = []
            first = asyncio.ensure_future(gone_through(messages, begun, asyncio.Event()))
            await until(lambda: begun)
            first.cancel()
            await asyncio.wait([first])
            async with asyncio.timeout(30):
                seen = {(await anext(messages)).body for _ in range(2)}
            assert seen == {b"0", b"1"}
        assert place.group().acked == 2


async def test_each_message_may_be_asked_for_in_a_task_of_its_own(serve):
    """As ``asyncio.wait_for`` did before Python 3.12."""
    async with serve() as place, place.client() as mq:
        await mq.send_many("a", [b"%d" % number for number in range(5)])
        async with mq.consume("a", group="g") as messages:
            seen = [(await anext(messages)).body]
            seen += [(await asyncio.ensure_future(messages.__anext__())).body for _ in range(4)]
        assert seen == [b"%d" % number for number in range(5)]
        assert place.group().acked == 5


async def test_what_a_consumer_is_asked_before_it_is_entered_is_told_in_a_sentence(serve):
    async with serve() as place, place.client() as mq:
        messages = mq.consume("a", group="g")
        for ask in (lambda: messages.name, messages.stop):
            with pytest.raises(ClientClosed, match="inside of `async with`"):
                ask()
        with pytest.raises(ClientClosed, match="inside of `async with`"):
            await anext(messages)
