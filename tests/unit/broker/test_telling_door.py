"""The door at which archives ask for actions, behind a real HTTP port: what it tells, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from samples.action_lakes import served
from samples.brokers import SUBJECT, TINY, Rig, pulls
from samples.storms import OTHER, Storm, stormy
from tidemill_spark.calling import Port
from tidemill_wire import limits
from tidemill_wire.commands import Ack


async def ask(server: str, path: str) -> tuple[int, Any]:
    status, _, body = await asyncio.to_thread(Port.ask, server, f"/v1/actions{path}")
    return status, json.loads(body)


async def everything(server: str, subjects: str = "") -> list[dict[str, Any]]:
    _, log = await ask(server, "")
    rows: list[dict[str, Any]] = []
    at = log["first"]
    while at < log["next"]:
        status, said = await ask(server, f"/records?from={at}{subjects}")
        assert (status, said["unnamed"]) == (200, 0)
        assert said["next"] > at
        rows += said["records"]
        at = said["next"]
    return rows


async def test_log_is_told_whole_in_however_small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    storm = stormy(11)
    async with served(storm.rig) as server:
        whole = await everything(server)
        monkeypatch.setattr(limits, "ACTIONS_BYTES_MAX", 300)
        parts = await everything(server)
        of_one = await everything(server, f"&subject={SUBJECT}")
        of_both = await everything(server, f"&subject=order.p*&subject={SUBJECT}")

    assert whole == parts == of_both
    assert of_one == [row for row in whole if row["subject"] == SUBJECT]
    assert 0 < len(of_one) < len(whole)
    assert {row["subject"] for row in whole} == {SUBJECT, OTHER}


async def test_nothing_is_told_that_a_power_cut_may_take() -> None:
    rig = Rig()
    rig.send(b"m")
    given = pulls(rig.pull())
    rig.wait(600)
    rig.holds_syncs = True
    rig.ask(Ack("g", "c", SUBJECT, given))
    logs = rig.broker.logs
    assert logs.synced_action_position < logs.actions.end
    async with served(rig) as server:
        _, log = await ask(server, "")
        rows = await everything(server)
        _, behind = await ask(server, f"/records?from={log['next']}")

    assert log["next"] == logs.synced_action_position
    assert "acked" not in {row["action"] for row in rows}
    assert (behind["records"], behind["next"]) == ([], log["next"])


async def test_place_that_is_none_and_one_that_is_gone_are_refused_with_what_to_do() -> None:
    storm = Storm(7, replace(TINY, action_segment_bytes=256, retention_interval_ms=100, checkpoint_pause_ms=50,
                             checkpoint_events=10))  # fmt: skip
    while storm.rig.broker.logs.actions.start == 0:
        storm.blow(50)
    first = storm.rig.broker.logs.actions.start
    async with served(storm.rig) as server:
        gone, said = await ask(server, "/records?from=0")
        middle, why = await ask(server, f"/records?from={first + 4}")
        unknown, _ = await ask(server, "/records?form=0")
        pattern, _ = await ask(server, "/records?subject=a%20b*")
        _, log = await ask(server, "")

    assert (gone, said["first"]) == (410, first)
    assert (middle, why["error"]["code"]) == (400, "malformed_request")
    assert (unknown, pattern) == (400, 400)
    assert (log["first"], log["since"] > 0) == (first, True)


async def test_log_without_a_record_begins_nowhere() -> None:
    rig = Rig()
    async with served(rig) as server:
        status, log = await ask(server, "")

    assert status == 200
    assert log["first"] <= log["next"]
