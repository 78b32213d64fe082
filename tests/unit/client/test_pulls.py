"""For how long a pull of what was allotted waits; and what comes after one that a quota kept back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from samples.brokers import batch_of
from tidemill import ClientSettings
from tidemill.allotment import Allotment, Share
from tidemill.errors import Unavailable
from tidemill.inbox import Inbox
from tidemill.puller import ALLOTTED_WAIT_MS, Identity, Puller
from tidemill.subscription import Subscription
from tidemill.tenure import Moment
from tidemill_wire.batch import stamp
from tidemill_wire.commands import Command, Grant, Pull, Pulled


class Line:
    """A connection that keeps what is asked, and answers nothing by itself."""

    def __init__(self) -> None:
        self.pulls: list[Pull] = []
        self.answers: list[Callable[[Any], None]] = []

    def cork(self) -> None: ...

    def uncork(self) -> None: ...

    def ask(self, command: Command, on_answer: Callable[[Any], None]) -> None:
        assert isinstance(command, Pull)
        self.pulls.append(command)
        self.answers.append(on_answer)


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


async def test_a_pull_that_a_quota_kept_back_is_asked_again_after_its_wait_however_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is wrong with the broker, and it has waited itself: to wait longer each time would leave room unused. It
    is said once, until something is given; and what is held stays held.
    """
    line, puller = pulling()
    for number in range(1, 21):
        line.answers[-1](FULL)
        assert len(line.pulls) == number, "not before the wait is over"
        assert puller._pause is not None
        assert puller._pause.when() - asyncio.get_running_loop().time() <= FULL.wait_ms / 1000
        puller._pause.cancel()
        puller._go_on()
        assert len(line.pulls) == number + 1
    assert [one.message for one in caplog.records].count(SAID) == 1
    batch = batch_of(b"x", subject="a", producer=1, sequence=1)
    stamp(batch, 0, len(batch), 0, 0, 1, 1)
    line.answers[-1](Pulled([Grant("a", 7, 0, 1, 0, 1)], 60_000, memoryview(batch)))
    (held,) = puller.settler.outstanding
    line.answers[-1](FULL)
    assert [one.message for one in caplog.records].count(SAID) == 2
    assert list(puller.settler.outstanding) == [held]
    assert puller._renewal is not None, "its lease is kept"
    for timer in (puller._renewal, puller._pause):
        timer.cancel()


FULL = Unavailable("over_quota", "the quota of token:shop is used up", 2)
SAID = f"consumer_over_quota ann: {FULL.detail}"


def pulling() -> tuple[Any, Puller]:
    identity = Identity(Subscription(("a",), "g", 0, None), "ann")
    puller = Puller(identity, ClientSettings(), Inbox(1000, 1000), nowhere)
    line: Any = Line()
    puller._up(line)
    return line, puller
