"""A broker of a cluster hands what is for later to a delay group; what becomes of it when that one does not answer."""

from __future__ import annotations

import asyncio

import pytest

from samples.brokers import batch_of
from tidemill_broker.doors.delaying import DelayGroups, Place, names_of, places_of
from tidemill_host.refusals import HttpRefused
from tidemill_wire.batch import SINGLES_FROM
from tidemill_wire.commands import Command, Failed, Hello, Sent, encode_command
from tidemill_wire.connection import Connection, Received, Role
from tidemill_wire.errors import KIND_BY_NAME, WireError
from tidemill_wire.timing import Cancel, Changed, Target

NOT_MASTER = Failed(KIND_BY_NAME["not_master"].number, "another one leads")
GONE: Place = ("127.0.0.1", 1)
"""Nobody listens there."""


class Master:
    """Listens, and answers as it was told to; with nothing, it closes the connection."""

    def __init__(self, *answers: Command | None) -> None:
        self._answers = list(answers)
        self.asked = self.connected = 0

    async def __aenter__(self) -> Place:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return host, port

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected += 1
        wire = Connection(Role.SERVER)
        while data := await reader.read(65536):
            for event in wire.feed(data):
                assert isinstance(event, Received)
                if isinstance(event.command, Hello):
                    writer.write(wire.welcome("delay-0", 1))
                    continue
                self.asked += 1
                answer = self._answers.pop(0)
                if answer is None:
                    writer.close()
                    return
                writer.write(encode_command(answer, event.correlation))
        writer.close()


def groups(**places: Place) -> DelayGroups:
    class Told(DelayGroups):
        async def _masters(self) -> dict[str, Place]:
            return places

        async def _all_named(self) -> list[str]:
            return known.pop(0)

    known = [[*places, "away"], []]
    return Told("g0-0", [])


class Telling:
    """An answer of meta that takes a while."""

    def __init__(self) -> None:
        self.asked, self.told = asyncio.Event(), asyncio.Event()


def waiting(**places: Place) -> tuple[DelayGroups, list[Telling]]:
    """Delay groups, and the first answers of meta."""
    telling = [Telling(), Telling()]
    coming = iter(telling)

    class Slow(DelayGroups):
        async def _masters(self) -> dict[str, Place]:
            one = next(coming, telling[-1])
            one.asked.set()
            await one.told.wait()
            return places

    return Slow("g0-0", []), telling


def batch(producer: int = 5) -> bytearray:
    return batch_of(b"tide", producer=producer, sequence=1)


async def test_one_connection_takes_one_batch_after_the_other() -> None:
    master = Master(Sent([0]), Sent([1]))
    async with master as there:
        delays = groups(delay=there)
        answers = [await delays.take(batch()) for _ in range(2)]
        delays.close()

    assert [list(answer.first_sequences) for answer in answers] == [[0], [1]]
    assert master.connected == 1


async def test_who_is_not_answered_is_told_that_nobody_knows_and_it_is_not_sent_again() -> None:
    master = Master(None, Sent([0]))
    async with master as there:
        delays = groups(delay=there)
        with pytest.raises(HttpRefused, match="it may have the messages, or not") as refused:
            await delays.take(batch())
        assert (refused.value.status, refused.value.code, master.asked) == (503, "no_delay_service", 1)
        assert list((await delays.take(batch())).first_sequences) == [0], "over another connection"
        delays.close()


async def test_who_leads_no_more_is_not_asked_over_that_connection_again() -> None:
    master = Master(NOT_MASTER, Sent([0]))
    async with master as there:
        delays = groups(delay=there)
        with pytest.raises(WireError, match="another one leads"):
            await delays.take(batch())
        await delays.take(batch())
        delays.close()

    assert master.connected == 2


async def test_a_request_with_a_key_goes_to_its_own_delay_group_and_waits_for_that_one() -> None:
    master = Master(*(Sent([0]) for _ in range(2)))
    async with master as there:
        delays = groups(a=GONE, b=there)
        await delays.take(batch(SINGLES_FROM + 1))
        with pytest.raises(HttpRefused, match="no delay service is there"):
            await delays.take(batch(SINGLES_FROM))
        delays.close()
        delays = groups(a=GONE, b=there)
        await delays.take(batch(4))  # any of them, when it has none
        delays.close()

    assert master.asked == 2


async def test_no_delay_group_is_a_refusal_that_may_be_tried_again() -> None:
    with pytest.raises(HttpRefused, match="no delay service is there") as refused:
        await groups().take(batch())
    assert refused.value.retryable


async def test_what_waits_for_a_connection_is_not_overtaken_by_what_came_later() -> None:
    """Their numbers are one row: what is far behind later ones counts as stored."""
    master = Master(*(Sent([place]) for place in range(7)))
    async with master as there:
        delays, telling = waiting(delay=there)
        first = asyncio.ensure_future(delays.take(batch()))
        await telling[0].asked.wait()
        later = [asyncio.ensure_future(delays.take(batch())) for _ in range(6)]
        telling[1].told.set()  # who asks now would be answered at once
        for _ in range(100):
            await asyncio.sleep(0)
        telling[0].told.set()
        answers = await asyncio.gather(first, *later)
        delays.close()

    assert [list(answer.first_sequences) for answer in answers] == [[place] for place in range(7)]
    assert master.connected == 1


async def test_that_no_delay_group_is_there_is_told_to_all_who_waited_for_it() -> None:
    delays, telling = waiting()
    waiters = [asyncio.ensure_future(delays.take(batch())) for _ in range(3)]
    await telling[0].asked.wait()
    for one in telling:
        one.told.set()
    answers = await asyncio.gather(*waiters, return_exceptions=True)
    assert [type(answer) for answer in answers] == [HttpRefused] * 3
    assert not telling[1].asked.is_set()

    with pytest.raises(HttpRefused, match="no delay service is there"):
        await delays.take(batch())
    assert telling[1].asked.is_set(), "who comes later asks for itself"


async def test_questions_go_to_each_delay_group_and_one_that_nobody_leads_is_not_passed_over() -> None:
    question = Cancel(Target(subject="s", timer_key="k"))
    master = Master(Changed(1, 0), None)
    async with master as there:
        delays = groups(a=there)
        assert await delays.groups() == ["a", "away"]
        assert await delays.groups() == ["a", "away"], "as before, while no meta answers"
        assert await delays.ask("a", question) == Changed(1, 0)
        with pytest.raises(HttpRefused, match="away cannot be reached, and may have") as refused:
            await delays.ask("away", question)
        assert (refused.value.status, refused.value.code) == (503, "no_delay_service")
        with pytest.raises(HttpRefused, match="may have done it, or not"):
            await delays.ask("a", question)
        delays.close()


def test_delay_groups_are_named_whoever_leads_them() -> None:
    assert names_of([{"group": "b", "master": ""}, {"group": "a", "master": "a-0"}], "h:1") == ["a", "b"]
    with pytest.raises(ValueError, match="is this meta"):
        names_of({"delays": []}, "h:1")


def test_a_master_without_a_host_is_where_meta_is() -> None:
    rows = [{"group": "a", "host": None, "port": 1}, {"group": "b", "host": "h", "port": 2}]
    assert places_of({"delays": rows}, "[::1]:7401") == {"a": ("::1", 1), "b": ("h", 2)}


@pytest.mark.parametrize("answer", [None, {}, {"delays": [{"group": "a"}]}])
def test_an_answer_that_is_none_of_metas_is_an_error(answer: object) -> None:
    with pytest.raises(ValueError, match="is this meta"):
        places_of(answer, "h:1")
