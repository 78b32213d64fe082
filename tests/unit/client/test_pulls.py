"""What a consumer to which partitions are allotted says, and when: its pulls, and its heartbeats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from samples.realms import Realm
from tidemill import Client, ClientSettings
from tidemill.allotment import Allotment
from tidemill.inbox import Inbox
from tidemill.member import Member
from tidemill.puller import ALLOTTED_WAIT_MS, Identity, Puller, Share
from tidemill.subscription import Subscription
from tidemill.tenure import Moment
from tidemill_wire.commands import Command, Pull
from tidemill_wire.kinds import Mode


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
    [(False, 15_000, 15_000), (True, 15_000, ALLOTTED_WAIT_MS), (True, 100, 100)],
)
async def test_a_pull_of_what_was_allotted_waits_for_a_moment_only(
    allots: bool, wanted_ms: int, waits_ms: int
) -> None:
    """What is allotted next is named by the next pull."""
    settings = ClientSettings(pull_wait_ms=wanted_ms)
    identity = Identity(Subscription(("a",), "g", 0, None), "ann")
    puller = Puller(identity, settings, Inbox(1000, 1000), nowhere)
    if allots:
        puller.share = Share("g0", Allotment(lambda: Moment(0.0, 0.0)), lambda: None)
    line: Any = Line()

    puller._up(line)

    assert [pull.wait_ms for pull in line.pulls] == [waits_ms]


async def test_what_is_allotted_anew_is_asked_for_at_once_and_not_with_the_next_heartbeat(until: Any) -> None:
    realm = Realm(creates=("g0",), beat_ms=3_600_000)
    realm.serve("g0", 1)
    allotment = Allotment(lambda: Moment(0.0, 0.0))
    async with Client("m1:7401", settings=ClientSettings(open_port=realm.open_port)) as mq:
        router = mq._router
        router.begin()
        await router.refresh()
        router.join(who := object(), Member(("a",), "g", "ann", Mode.KEYED, allotment))
        await until(lambda: realm.heard == [{"subject": "a", "group": "g"}])
        await until(lambda: realm.beats)
        told = len(realm.beats)
        realm.allot("a", "g")
        await until(lambda: len(realm.beats) > told)
        router.leave(who)
