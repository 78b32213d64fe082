"""One connection: silence is noticed whatever else goes on, and every question is answered once."""

from __future__ import annotations

import asyncio

import pytest

from samples.lanes import turns
from tidemill import Address, ClientSettings
from tidemill.errors import ConnectionLost, Unavailable
from tidemill.link import SILENT_TICKS_MAX, Answer, Link
from tidemill_wire.commands import Done, Goodbye, Ping, encode_command
from tidemill_wire.connection import Connection, Received, Role
from tidemill_wire.limits import CORRELATIONS_MAX

SETTINGS = ClientSettings(dead_peer_s=3600.0)
"""No timer of it fires in a test: ``tick`` is called instead."""


class Wire(asyncio.Transport):
    """Keeps what the link says; a broker that answers what it is told to. Nothing is ever full."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._broker = Connection(Role.SERVER)
        self.heard: list[Received] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.heard += [event for event in self._broker.feed(bytes(data)) if isinstance(event, Received)]

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def say(self, data: bytes) -> None:
        self._link.get_buffer(len(data))[: len(data)] = data
        self._link.buffer_updated(len(data))

    def welcome(self) -> None:
        self.say(self._broker.welcome("b", 0))

    def pings(self) -> list[int]:
        return [event.correlation for event in self.heard if isinstance(event.command, Ping)]


async def full_link() -> tuple[Link, Wire, list[Answer]]:
    """An open link on which as many questions wait as may."""
    link = Link(Address("g0", "127.0.0.1", 1), SETTINGS)
    wire = Wire(link)
    link.connection_made(wire)
    wire.welcome()
    assert link.opened.done()
    answers: list[Answer] = []
    for _ in range(CORRELATIONS_MAX):
        link.ask(Goodbye("any question"), answers.append)
    with pytest.raises(Unavailable, match="too_many_requests"):
        link.ask(Ping(), answers.append)
    assert wire.pings() == []
    return link, wire, answers


async def test_a_broker_that_answers_none_of_many_questions_is_left_when_it_stays_silent():
    """The ping finds no room among the questions, for it is they that are not answered."""
    link, wire, answers = await full_link()
    link._tick()  # the WELCOME was heard
    for _ in range(SILENT_TICKS_MAX):
        assert not link.lost.done()
        link._tick()

    assert len(wire.pings()) == 1
    assert isinstance(link.lost.result(), ConnectionLost)
    assert len(answers) == CORRELATIONS_MAX
    assert wire.closed


async def test_a_broker_that_answers_the_ping_is_kept_though_no_question_is_answered():
    link, wire, answers = await full_link()
    link._tick()
    answered = 0
    for _ in range(3 * SILENT_TICKS_MAX):
        link._tick()
        for correlation in wire.pings()[answered:]:
            wire.say(encode_command(Done(), correlation))
            answered += 1

    assert not link.lost.done()
    assert answered > 1
    assert answers == []
    link.close()


async def test_a_link_with_many_open_questions_parts_in_order():
    """The goodbye is heard, and then it is closed: nothing is raised at whoever only wants to leave."""
    link, wire, _ = await full_link()
    parting = asyncio.ensure_future(link.part("the end"))
    await turns()
    [correlation] = wire.pings()
    wire.say(encode_command(Done(), correlation))
    await parting

    assert wire.heard[-2].command == Goodbye("the end")
    assert wire.closed
