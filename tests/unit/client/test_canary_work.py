"""Which broker groups a canary looks at, and a patrol at work on a broker in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from tidemill.canary.canary import Canary
from tidemill.canary.options import CanarySettings
from tidemill.canary.patrol import Patrol
from tidemill.canary.probes import Body
from tidemill.errors import BrokerUnreachable, Refused
from tidemill.servers import Servers
from tidemill.testing import Client, MemoryBroker

PATIENCE_S = 30.0
QUICK = CanarySettings(interval_s=0.01, later_every_s=0, patience_s=0.5, look_s=0.01)


class Meta:
    """What a canary asks of meta, and what it is answered."""

    def __init__(self, *groups: dict[str, Any]) -> None:
        self.groups = list(groups)
        self.routes: dict[str, list[str]] = {}
        self.declared: list[Any] = []
        self.allows = True
        self.away = False
        self.delays: list[dict[str, Any]] = []

    def open_port(self, _host: str, _port: int) -> Meta:
        return self

    async def get(self, path: str, timeout_s: float = 0.0) -> Any:
        if self.away:
            raise BrokerUnreachable("meta is away")
        if path == "/v1/brokers":
            return self.groups
        if path == "/v1/routes":
            return {"brokers": [], "delays": self.delays}
        subject = path.split("/")[3]
        if subject not in self.routes:
            raise Refused("unknown_subject", subject)
        return {"partitions": [{"group": group} for group in self.routes[subject]]}

    async def post(self, path: str, body: object, timeout_s: float = 0.0) -> Any:
        assert path == "/v1/declarations"
        if not self.allows:
            raise Refused("forbidden", "no grant")
        assert isinstance(body, dict)
        self.declared.append(body)
        spec = body["spec"]
        if body["kind"] == "Subject":
            self.routes[spec["subjectName"]] = spec["placement"]["brokerGroups"]
        return {}

    def lines(self, path: str, body: object, silence_s: float) -> AsyncGenerator[Any]:
        raise NotImplementedError


@asynccontextmanager
async def looking(meta: Meta, settings: CanarySettings = QUICK) -> AsyncIterator[Canary]:
    async with Client() as mq, asyncio.TaskGroup() as tasks:
        canary = Canary(mq, Servers([("meta", 7401)], meta.open_port), settings)
        keeping = tasks.create_task(canary._keep(tasks))
        yield canary
        keeping.cancel()
        for run in canary._runs.values():
            run.cancel()


async def until(holds: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110  # a judge tells nobody
            await asyncio.sleep(0)


def group(name: str, **more: Any) -> dict[str, Any]:
    return {"group": name, "draining": False, "retired": False, **more}


def problem(canary: Canary, name: str) -> str:
    found = next((one for one in canary.to_map()["groups"] if one["group"] == name), {"problem": ""})
    return str(found["problem"])


async def test_each_broker_group_gets_its_subject_and_probes() -> None:
    meta = Meta(group("g0"), group("g1"), group("gone", retired=True))
    async with looking(meta) as canary:
        await until(lambda: [one.judge.now.tally.seen > 2 for one in canary.patrols.values()] == [True, True])
        assert sorted(canary.patrols) == ["g0", "g1"]
        assert canary.to_map()["problem"] == canary.hindered == ""
    kinds = sorted((one["kind"], one["spec"]["subjectName"]) for one in meta.declared)
    assert kinds == [
        ("ConsumerGroup", "tidemill.canary.g0"),
        ("ConsumerGroup", "tidemill.canary.g1"),
        ("Subject", "tidemill.canary.g0"),
        ("Subject", "tidemill.canary.g1"),
    ]


async def test_probes_for_later_are_sent_when_there_is_somebody_to_take_them() -> None:
    """A queue without a delay service has no fault for that."""
    meta = Meta(group("g0"))
    async with looking(meta, replace(QUICK, later_every_s=0.01, later_s=0.01)) as canary:
        await until(lambda: canary.patrols and canary.patrols["g0"].judge.now.tally.seen > 5)
        judge = canary.patrols["g0"].judge
        assert judge.later.tally.sent == 0
        meta.delays = [{"group": "later"}]
        await until(lambda: judge.later.tally.seen > 2)
        meta.delays = []
        sent = judge.later.tally.sent
        await until(lambda: judge.later.tally.sent > sent + 5)
        assert problem(canary, "g0") == ""


async def test_what_is_drained_gets_nothing_more_and_what_is_gone_is_left() -> None:
    meta = Meta(group("g0"))
    async with looking(meta) as canary:
        await until(lambda: canary.patrols and canary.patrols["g0"].judge.now.tally.seen > 2)
        meta.groups = [group("g0", draining=True)]
        await until(lambda: "drained" in problem(canary, "g0"))
        assert canary.hindered == ""
        judge = canary.patrols["g0"].judge
        await until(lambda: judge.now.tally.seen == judge.now.tally.sent)
        patrol = canary.patrols["g0"]
        assert judge.silent_ms(patrol.now_ms() + 600_000) == 0
        meta.groups = [group("g0")]
        await until(lambda: problem(canary, "g0") == "")
        assert judge.silent_ms(patrol.now_ms() + 600_000) >= 600_000
        meta.groups = []
        await until(lambda: not canary.patrols)
        assert canary.hindered == "there is no broker group yet"


async def test_a_subject_that_lies_elsewhere_is_not_sent_to_until_it_is_declared_anew() -> None:
    meta = Meta(group("g0"))
    meta.routes["tidemill.canary.g0"] = ["g0", "g1"]
    async with looking(meta) as canary:
        await until(lambda: "lies on g0, g1" in problem(canary, "g0"))
        assert canary.patrols["g0"].judge.now.tally.sent == 0
        del meta.routes["tidemill.canary.g0"]
        await until(lambda: canary.patrols["g0"].judge.now.tally.seen > 2)
        assert problem(canary, "g0") == ""


async def test_who_may_not_declare_says_so_until_somebody_else_did() -> None:
    meta = Meta(group("g0"))
    meta.allows = False
    async with looking(meta) as canary:
        await until(lambda: "forbidden" in problem(canary, "g0"))
        assert canary.hindered.startswith("g0: ")
        meta.routes["tidemill.canary.g0"] = ["g0"]
        await until(lambda: canary.patrols["g0"].judge.now.tally.seen > 2)
        assert problem(canary, "g0") == canary.hindered == ""


async def test_without_meta_it_goes_on_as_it_was() -> None:
    meta = Meta(group("g0"))
    async with looking(meta) as canary:
        await until(lambda: canary.patrols and canary.patrols["g0"].judge.now.tally.seen > 2)
        meta.away = True
        await until(lambda: canary.to_map()["problem"] == "meta is away")
        seen = canary.patrols["g0"].judge.now.tally.seen
        await until(lambda: canary.patrols["g0"].judge.now.tally.seen > seen + 2)
        assert problem(canary, "g0") == canary.hindered == ""


@pytest.mark.parametrize(
    "name, expects",
    [("canary", True), ("another", False)],
    ids=["of-its-name", "of-another-name"],
)
@pytest.mark.parametrize("ahead_ms", [60_000, -3_600_000], ids=["clock-ahead", "clock-behind"])
async def test_another_canary_is_noticed_when_it_has_the_same_name(
    name: str, expects: bool, ahead_ms: int
) -> None:
    broker = MemoryBroker()
    async with Client(broker) as mq, asyncio.TaskGroup() as tasks:
        patrol = Patrol(mq, "tidemill.canary.g0", QUICK)
        run = tasks.create_task(patrol.run())
        await until(lambda: patrol.judge.now.tally.seen > 2)
        sent_ms = mq.settings.now_ms() + ahead_ms
        await mq.send("tidemill.canary.g0", Body(name, "f" * 16, False, 1, sent_ms).to_bytes())
        await mq.send("tidemill.canary.g0", b"somebody else's")
        seen = patrol.judge.now.tally.seen
        await until(lambda: patrol.judge.now.tally.seen > seen + 2)
        assert patrol.judge.is_crowded(patrol.now_ms()) is expects
        run.cancel()


async def test_what_an_earlier_run_left_is_no_other_canary() -> None:
    broker = MemoryBroker()
    async with Client(broker) as mq, asyncio.TaskGroup() as tasks:
        before_ms = mq.settings.now_ms() - 1_000
        for number in range(5):
            left = Body("canary", "f" * 16, False, number, before_ms).to_bytes()
            await mq.send("tidemill.canary.g0", left, order_key="canary")
        patrol = Patrol(mq, "tidemill.canary.g0", QUICK)
        run = tasks.create_task(patrol.run())
        await until(lambda: patrol.judge.now.tally.seen > 2)
        due = Body("canary", "f" * 16, True, 6, before_ms).to_bytes()
        await mq.send("tidemill.canary.g0", due)
        seen = patrol.judge.now.tally.seen
        await until(lambda: patrol.judge.now.tally.seen > seen + 2)
        assert not patrol.judge.is_crowded(patrol.now_ms())
        run.cancel()
