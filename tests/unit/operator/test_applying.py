"""Events: what was said is not said again while anybody can read it, and is said again afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from samples.kubernetes import manifest
from tidemill_operator.doors.api import Api, Refused
from tidemill_operator.doors.apply import SAID_MS, Applier
from tidemill_operator.doors.metrics import Metrics
from tidemill_operator.marks import micro_timestamp
from tidemill_operator.steps import Event

NOW_MS = 1_800_000_000_000
ROLLING = Event("RollingPod", "g0-1 is replaced: it has an old template")


class Server:
    """Keeps events as the API server does: one of a name, for an hour."""

    def __init__(self) -> None:
        self.at_ms = NOW_MS
        self.kept: dict[str, int] = {}
        self.posts = 0

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self.posts += 1
        name = body["metadata"]["name"]
        if self.at_ms - self.kept.get(name, -SAID_MS) < SAID_MS:
            raise Refused("POST", path, 409, "there is one of that name", 0.0)
        self.kept[name] = self.at_ms
        return {}


@pytest.fixture
def server() -> Server:
    return Server()


def applier(server: Server) -> Applier:
    return Applier(cast("Api", server), Metrics(), "operator-1")


async def say(made: Applier, server: Server, event: Event = ROLLING) -> None:
    group = manifest("BrokerGroup", "g0", {}, uid="u")
    await made.say(group, event, micro_timestamp(server.at_ms))


async def test_each_rollout_of_another_day_is_told(server: Server) -> None:
    made = applier(server)

    for _ in range(5):
        await say(made, server)
        server.at_ms += 24 * SAID_MS

    assert len(server.kept) == 1
    assert (server.posts, server.at_ms - server.kept.popitem()[1]) == (5, 24 * SAID_MS)


async def test_what_was_said_within_the_hour_is_not_sent_again(server: Server) -> None:
    made = applier(server)

    for _ in range(10):
        await say(made, server)
        server.at_ms += SAID_MS // 11
    assert server.posts == 1

    server.at_ms = NOW_MS + SAID_MS
    await say(made, server)
    assert server.posts == 2


async def test_the_next_life_of_the_operator_says_nothing_twice(server: Server) -> None:
    await say(applier(server), server)

    made = applier(server)
    await say(made, server)
    await say(made, server)

    assert server.posts == 2, "it was refused once, and that is remembered"
    assert server.kept == {next(iter(server.kept)): NOW_MS}


async def test_those_that_are_young_are_remembered_while_old_ones_go(server: Server) -> None:
    made = applier(server)
    await say(made, server)
    server.at_ms += SAID_MS - 1
    young = Event("Rejected", "another one")
    await say(made, server, young)
    server.at_ms += 1
    await say(made, server)
    await say(made, server, young)

    assert server.posts == 3
