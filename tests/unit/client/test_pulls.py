"""For how long a pull of what was allotted waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidemill import ClientSettings
from tidemill.allotment import Allotment
from tidemill.inbox import Inbox
from tidemill.puller import ALLOTTED_WAIT_MS, Identity, Puller, Share
from tidemill.subscription import Subscription
from tidemill.tenure import Moment
from tidemill_wire.commands import Command, Pull


class Line:
    """A connection that keeps what is asked, and answers nothing."""

    def __init__(self) -> None:
        self.pulls: list[Pull] = []

    def cork(self) -> None: ...

    def uncork(self) -> None: ...

    def ask(self, command: Command, on_answer: Callable[[Any], None]) -> None:
        assert on_answer
        assert isinstance(command, Pull)
        self.pulls.append(command)


async def nowhere() -> Any:
    raise AssertionError("nobody dials")


@pytest.mark.parametrize(
    "allots, wanted_ms, waits_ms",
    [(None, 15_000, 15_000), (False, 15_000, 15_000), (True, 15_000, ALLOTTED_WAIT_MS), (True, 100, 100)],
)
async def test_a_pull_of_what_was_allotted_waits_for_a_moment_only(
    allots: bool | None, wanted_ms: int, waits_ms: int
) -> None:
    """What is allotted next is named by the next pull. Where nobody allots anything, none has to be quick."""
    settings = ClientSettings(pull_wait_ms=wanted_ms)
    identity = Identity(Subscription(("a",), "g", 0, None), "ann")
    puller = Puller(identity, settings, Inbox(1000, 1000), nowhere)
    if allots is not None:
        allotment = Allotment(lambda: Moment(0.0, 0.0))
        puller.share = Share("g0", allotment, lambda: None)
        if allots:
            row = {"subject": "a", "allocation": 3, "partitions": ["g0/a"], "authorised_ms": 9000}
            allotment.answered(Moment(0.0, 0.0), row)
    line: Any = Line()

    puller._up(line)

    assert [pull.wait_ms for pull in line.pulls] == [waits_ms]
