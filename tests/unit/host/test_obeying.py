"""A beat does not wait for what cannot be answered before meta has heard the next one."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from tidemill_host.local import LocalPeer
from tidemill_host.obeying import Obeying
from tidemill_wire.commands import Command
from tidemill_wire.errors import Unavailable
from tidemill_wire.fencing import Fence, Fenced, FenceRow

ORDERS = Fence([FenceRow("orders", 3, ((0, 512),))])
BILLS = Fence([FenceRow("bills", 1, ())])
CLOSED = Fenced([("orders", 3)], [])


class Machine:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[Command, asyncio.Future[Command]]] = []

    def ask(self, command: Command) -> asyncio.Future[Command]:
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self.asked.append((command, future))
        return future


async def test_a_fence_that_is_not_committed_holds_up_no_beat_and_is_asked_once() -> None:
    machine = Machine()
    obeying = Obeying(cast("LocalPeer", machine))

    assert await obeying.ask(ORDERS, 0.001) is None
    assert await obeying.ask(ORDERS, 0.001) is None
    assert [command for command, _ in machine.asked] == [ORDERS]

    machine.asked[0][1].set_result(CLOSED)
    assert await obeying.ask(ORDERS, 0.001) == CLOSED


async def test_what_is_answered_late_is_no_answer_to_another_fence() -> None:
    machine = Machine()
    obeying = Obeying(cast("LocalPeer", machine))
    assert await obeying.ask(ORDERS, 0.001) is None
    machine.asked[0][1].set_result(CLOSED)

    assert await obeying.ask(BILLS, 0.001) is None

    assert [command for command, _ in machine.asked] == [ORDERS, BILLS]


async def test_a_refusal_is_heard_and_the_next_beat_asks_anew() -> None:
    machine = Machine()
    obeying = Obeying(cast("LocalPeer", machine))
    assert await obeying.ask(ORDERS, 0.001) is None
    machine.asked[0][1].set_exception(Unavailable("not_master", "another one leads"))

    with pytest.raises(Unavailable, match="not_master"):
        await obeying.ask(ORDERS, 0.001)

    assert await obeying.ask(ORDERS, 0.001) is None
    assert len(machine.asked) == 2
