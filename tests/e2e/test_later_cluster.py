"""Messages for later in a real cluster: a delay group whose masters are killed, and what comes of what they had."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from e2e.clusters import Cluster
from e2e.queues import run_command, wait_until
from tidemill import Client, ClientSettings

pytestmark = pytest.mark.e2e

SETTINGS = ClientSettings(send_timeout_s=30, backoff_max_s=0.2)
KILLS = 3
EACH = 60
SPREAD_S = 8.0
"""Messages of one round come due over so long: before a master is killed, and while nobody leads."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster", 1, 1, options=("--delays", "1")).start()
    yield made
    made.close()


@pytest.fixture
def wide(tmp_path: Path) -> Iterator[Cluster]:
    """Two broker groups, and a delay group of one."""
    made = Cluster(tmp_path / "cluster", 2, 0, options=("--delays", "1")).start()
    yield made
    made.close()


def delays_of(cluster: Cluster) -> dict[str, Any]:
    """The delay group as meta sees it; one without a master while nobody says."""
    with suppress(OSError, urllib.error.URLError, ValueError, IndexError):
        found: dict[str, Any] = cluster.get("/v1/delays")[0]
        return found
    return {"master": "", "in_sync": [], "epoch": 0, "brokers": []}


def wait_led(cluster: Cluster, epoch: int = 1) -> dict[str, Any]:
    """Until the delay group has a master of that epoch or a later one, and its slave is in sync."""

    def led() -> bool:
        group = delays_of(cluster)
        return bool(group["master"]) and group["epoch"] >= epoch and len(group["in_sync"]) == 2

    wait_until("the delay group is whole", led, 60)
    return delays_of(cluster)


def wait_delivered(cluster: Cluster, group: dict[str, Any], count: int) -> None:
    """Until its master has brought so many to the broker."""
    [control] = [one["addresses"]["control"] for one in group["brokers"] if one["name"] == group["master"]]

    def delivered() -> bool:
        with urllib.request.urlopen(f"http://{control}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        return float(re.findall(r"^tidemill_delay_delivered_total (\S+)$", text, re.MULTILINE)[0]) >= count

    wait_until("some were delivered", delivered, 30)


def numbers_of(one: dict[str, Any]) -> dict[str, float]:
    """What a delay service says of its part in its group."""
    with urllib.request.urlopen(f"http://{one['addresses']['control']}/metrics", timeout=5) as answer:
        found = re.findall(r"^tidemill_delay_replication_(.+) (\S+)$", answer.read().decode(), re.MULTILINE)
    return {name: float(value) for name, value in found}


async def test_masters_of_a_delay_group_are_killed_while_messages_come_due_and_none_is_lost_or_early_or_twice(
    cluster: Cluster,
) -> None:
    due: dict[bytes, float] = {}
    seen: dict[bytes, list[float]] = {}
    masters: list[str] = []
    async with Client(cluster.server, settings=SETTINGS) as mq:
        for life in range(KILLS):
            group = await asyncio.to_thread(wait_led, cluster, life + 1)
            masters.append(group["master"])
            now = time.time()
            round_of = {
                b"%d.%d" % (life, index): now + 0.5 + SPREAD_S * index / EACH for index in range(EACH)
            }
            due |= round_of
            await asyncio.gather(
                *(mq.send("later", body, at=datetime.fromtimestamp(at, UTC)) for body, at in round_of.items())
            )
            await asyncio.to_thread(wait_delivered, cluster, group, 3)  # others are on their way
            os.kill(cluster.children()[masters[-1]], signal.SIGKILL)
        async with mq.consume("later", group="g") as messages:
            async for message in messages:
                seen.setdefault(message.body, []).append(message.stored_at.timestamp())
                await message.ack()
                if len(seen) == len(due):
                    break

    assert len(set(masters)) == 2
    assert {body: len(times) for body, times in seen.items() if len(times) > 1} == {}
    early = {body: due[body] - times[0] for body, times in seen.items() if times[0] < due[body] - 0.002}
    assert early == {}, "by the clock of this machine"


def test_a_cluster_says_how_its_delay_group_stands_and_hands_it_over(cluster: Cluster) -> None:
    before = wait_led(cluster)
    wait_until(
        "all of them know who is in sync",
        lambda: all(numbers_of(one)["in_sync"] == 2 for one in before["brokers"]),
    )
    roles = {one["name"]: numbers_of(one) for one in before["brokers"]}
    for name, found in roles.items():
        assert found[f'role{{role="{"master" if name == before["master"] else "slave"}"}}'] == 1
        assert (found["epoch"], found["replicas"], found["in_sync"]) == (before["epoch"], 2, 2)
    other = next(name for name in roles if name != before["master"])
    assert f'slave_lag_bytes{{slave="{other}",log="message"}}' in roles[before["master"]]
    told = run_command("status", server=cluster.server)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "delay-0" in told.stdout
    assert "delay-1" in told.stdout

    cluster.post("/v1/groups/delay/handover", {"to": other})
    wait_until("the other one leads", lambda: delays_of(cluster)["master"] == other, 30)
    sent = run_command("send", "later", "tide", "--delay", "1s", server=cluster.server)
    assert sent.returncode == 0, sent.stderr
    got = run_command(
        "consume", "later", "--group", "g", "--from", "earliest", "--count", "1", server=cluster.server
    )
    assert "tide" in got.stdout
    [place] = cluster.get("/v1/routes")["delays"]
    assert place["name"] == other


async def test_a_timer_is_found_moved_and_cancelled_by_the_master_that_comes_next(cluster: Cluster) -> None:
    before = await asyncio.to_thread(wait_led, cluster)
    other = next(name for name in before["in_sync"] if name != before["master"])
    async with Client(cluster.server, settings=SETTINGS) as mq:
        for number in range(3):
            await mq.send("later", b"%d" % number, delay=3600, timer_key=f"order-{number}")
        assert (await mq.cancel(subject="later", timer_key="order-0")).changed == 1
        await asyncio.to_thread(cluster.post, "/v1/groups/delay/handover", {"to": other})
        await asyncio.to_thread(
            wait_until, "the other one leads", lambda: delays_of(cluster)["master"] == other, 30
        )

        assert (await mq.reschedule(subject="later", timer_key="order-1", delay=0.5)).changed == 1
        assert (await mq.cancel(subject="later", timer_key="order-2")).changed == 1
        assert (await mq.cancel(subject="later", timer_key="order-0")).changed == 0
        async with mq.consume("later", group="g") as messages:
            message = await anext(messages)
            await message.ack()
        while [timer.timer_key async for timer in mq.timers("later", until=datetime.now(UTC))]:
            pass  # the broker has it, and its answer is on its way
        left = [timer.timer_key async for timer in mq.timers("later")]

    assert message.body == b"1"
    assert left == []


async def test_order_keys_that_move_while_their_messages_wait_are_followed_and_each_comes_once(
    wide: Cluster,
) -> None:
    keys = [f"o-{number}" for number in range(40)]
    async with Client(wide.server, settings=SETTINGS) as mq:
        await mq.send("moves", b"now", order_key="o-0")
        due = datetime.fromtimestamp(time.time() + 10, UTC)
        sends = [mq.send("moves", key.encode(), at=due, order_key=key) for key in keys[::2]]
        await asyncio.gather(
            *sends, *(mq.send("moves", key.encode(), at=due, dedup_key=key) for key in keys[1::2])
        )
        route = wide.get("/v1/subjects/moves/route")
        more = len(route["partitions"]) + 2
        after = await asyncio.to_thread(wide.expand, "moves", partitions=more)
        assert len(after) == more
        came: list[tuple[bytes, str | None]] = []
        async with mq.consume("moves", group="g") as messages:
            async for message in messages:
                came.append((message.body, message.order_key))
                await message.ack()
                if len(set(came)) == len(keys) + 1:
                    break

    assert sorted(came) == sorted([(b"now", "o-0"), *((key.encode(), key) for key in keys)])


def over_http(cluster: Cluster, group: str, value: object, key: str) -> dict[str, Any]:
    """The message that a broker group is sent, as it answers."""
    [control] = [one["control"] for one in cluster.get("/v1/routes")["brokers"] if one["group"] == group]
    head = (
        {"Content-Type": "application/json", "Idempotency-Key": key}
        if key
        else {"Content-Type": "application/json"}
    )
    url = f"http://{control}/v1/subjects/http/messages"
    request = urllib.request.Request(url, json.dumps(value).encode(), head)
    with urllib.request.urlopen(request, timeout=30) as answer:
        [row] = json.loads(answer.read())["messages"]
    return dict(row)


def asked(cluster: Cluster, group: str, path: str, value: object = None) -> dict[str, Any]:
    """What a broker group answers, an error too."""
    [control] = [one["control"] for one in cluster.get("/v1/routes")["brokers"] if one["group"] == group]
    body = None if value is None else json.dumps(value).encode()
    request = urllib.request.Request(f"http://{control}{path}", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return dict(json.loads(answer.read()))
    except urllib.error.HTTPError as error:
        return dict(json.loads(error.read()))


def test_timers_over_http_are_those_of_the_cluster_whichever_broker_is_asked(wide: Cluster) -> None:
    timers = "/v1/subjects/http/timers"
    kept = [
        over_http(wide, group, {"text": group, "delay": "1h", "timer_key": group}, "")
        for group in ("g0", "g1")
    ]
    report = {"text": "daily", "cron": "@daily", "timer_key": "report"}
    series = over_http(wide, "g0", report, "k-1")
    assert over_http(wide, "g1", report, "k-1")["id"] == series["id"]

    page = asked(wide, "g1", f"{timers}?recurring=true")
    assert [row["id"] for row in page["timers"]] == [series["id"]]
    assert asked(wide, "g1", f"/v1/timers/{kept[0]['id']}")["timer_key"] == "g0"
    assert asked(wide, "g0", f"{timers}/cancel", {"timer_key": "g1"}) == {"changed": 1, "gone": 0}
    assert asked(wide, "g1", f"{timers}/reschedule", {"timer_key": "g0", "delay": "2h"})["changed"] == 1
    os.kill(wide.children()["delay-0"], signal.SIGKILL)
    said = asked(wide, "g0", f"{timers}/cancel", {"timer_key": "report"})
    assert said.get("error", {}).get("code", "no_delay_service") == "no_delay_service"

    def cancelled() -> bool:
        return "error" not in asked(wide, "g0", f"{timers}/cancel", {"timer_key": "report"})

    wait_until("the delay service answers again", cancelled, 60)
    assert [row["timer_key"] for row in asked(wide, "g1", timers)["timers"]] == ["g0"]


async def test_messages_for_later_over_http_are_kept_by_a_delay_group_whichever_broker_is_asked(
    wide: Cluster,
) -> None:
    def send(group: str, text: str, key: str = "") -> str:
        row = over_http(wide, group, {"text": text, "delay": "1s"}, key)
        due[row["id"]] = datetime.fromisoformat(row["due"])
        return str(row["id"])

    due: dict[str, datetime] = {}
    sent = [send(group, group) for group in ("g0", "g1", "g0")]
    keyed = [send("g0", "once", "k-1"), send("g0", "once", "k-1")]
    os.kill(
        wide.children()["delay-0"], signal.SIGKILL
    )  # the connection is lost, and another one is there again
    again: list[str] = []

    def takes() -> bool:
        with suppress(urllib.error.HTTPError):
            again.append(send("g1", "again", "k-2"))
        return bool(again)

    wait_until("the delay service takes messages again", takes, 60)
    came: dict[str, datetime] = {}
    async with Client(wide.server, settings=SETTINGS) as mq, mq.consume("http", group="g") as messages:
        async for message in messages:
            assert message.id not in came
            came[message.id] = message.stored_at
            await message.ack()
            if len(came) == 5:
                break

    assert keyed[0] == keyed[1]
    assert came.keys() == {*sent, keyed[0], again[0]}
    assert all(came[one] >= due[one] - timedelta(milliseconds=2) for one in came)
