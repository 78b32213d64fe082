"""Whoever asks how many consumers a group should have at about the same time shares one look."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidemill_operator.doors.advising import SHARED_SECONDS, Advisor, Group, Unasked
from tidemill_operator.scaling import Wanted

MASTER = {
    "group": "g0", "master": "g0-0", "retired": False, "problem": "",
    "brokers": [{"name": "g0-0", "addresses": {"control": "b:7401"}}],
}  # fmt: skip
ROW = {"subject": "orders", "lag": 40, "in_flight": 2, "failed": 0, "dead": 0, "acked": 7, "consumers": 3}


class Queue:
    """A QueueCluster that answers when it is let, and counts who asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.now_s = 100.0
        self.away = False
        self.let = asyncio.Event()
        self.let.set()
        self.advisor = Advisor(self.find, lambda: self.now_s)

    async def find(self, namespace: str, cluster: str) -> Any:
        return self.ask if cluster == "prod" else None

    async def ask(self, server: str, path: str) -> Any:
        self.asked.append(path)
        await self.let.wait()
        self.now_s += 0.1
        if self.away:
            raise ConnectionRefusedError("connection refused")
        return [MASTER] if not server else [{**ROW, "group": f"till-{number}"} for number in range(20)]

    async def replicas(self, number: int = 0) -> int:
        return (
            await self.advisor.advise(Group("shop", "prod", "orders", f"till-{number}"), Wanted())
        ).replicas


def test_all_groups_of_a_cluster_share_a_look_that_is_under_way() -> None:
    async def scenario() -> None:
        queue = Queue()
        queue.let.clear()
        asking = asyncio.gather(*(queue.replicas(number) for number in range(20)))
        await asyncio.sleep(0)
        queue.let.set()
        assert await asking == [3] * 20
        assert queue.asked == ["/v1/brokers", "/v1/groups"]

    asyncio.run(scenario())


def test_a_look_is_good_for_a_second_from_its_beginning() -> None:
    async def scenario() -> None:
        queue = Queue()
        await queue.replicas()
        queue.now_s += SHARED_SECONDS - 0.3
        await queue.replicas(1)
        assert len(queue.asked) == 2
        queue.now_s += 0.2
        await queue.replicas(1)
        assert len(queue.asked) == 4

    asyncio.run(scenario())


def test_a_failure_is_shared_by_those_who_waited_for_it_and_by_nobody_later() -> None:
    async def scenario() -> None:
        queue = Queue()
        queue.away = True
        queue.let.clear()
        asking = asyncio.gather(*(queue.replicas(number) for number in range(20)), return_exceptions=True)
        await asyncio.sleep(0)
        queue.let.set()
        assert {str(one) for one in await asking} == {"meta does not answer /v1/brokers: connection refused"}
        assert queue.asked == ["/v1/brokers"]
        queue.away = False
        queue.now_s += 0.01
        assert await queue.replicas() == 3

    asyncio.run(scenario())


def test_who_hangs_up_in_the_middle_of_a_look_leaves_the_others_one_of_their_own() -> None:
    async def scenario() -> None:
        queue = Queue()
        queue.let.clear()
        first, second = asyncio.ensure_future(queue.replicas()), asyncio.ensure_future(queue.replicas(1))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        queue.let.set()
        assert await second == 3

    asyncio.run(scenario())


def test_a_cluster_that_is_not_there_is_said() -> None:
    async def scenario() -> None:
        with pytest.raises(Unasked, match="there is no QueueCluster other in shop that has a meta"):
            await Queue().advisor.advise(Group("shop", "other", "orders", "till-0"), Wanted())

    asyncio.run(scenario())
