"""What people say at meta reaches the brokers of a running cluster: declarations, and what is read-only."""

from __future__ import annotations

import asyncio
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from e2e.clusters import Cluster
from e2e.conftest import MakeQueue
from e2e.metas import Meta
from e2e.queues import wait_until
from tidemill import Client, ClientSettings, Unavailable

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 30.0
HASTY = ClientSettings(send_timeout_s=1.0)
BROKERS_BEAT_S = 1.0
SILENCE_SECONDS = 5.0
"""After which a broker is dead; meta that begins listens for as long before it says so."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two broker groups of one broker each; every test has subjects of its own."""
    made = Cluster(tmp_path_factory.mktemp("told") / "cluster", 2, 0)
    try:
        yield made.start()
    finally:
        made.close()


def declaration(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "tidemill.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def at_brokers(cluster: Cluster, what: str, subject: str) -> list[dict[str, Any]]:
    """What each broker itself says of a subject, or of its groups."""
    field = "name" if what == "subjects" else "subject"
    found: list[dict[str, Any]] = []
    for broker in cluster.get("/v1/routes")["brokers"]:
        with urllib.request.urlopen(f"http://{broker['control']}/v1/{what}", timeout=30) as answer:
            found += [row for row in json.loads(answer.read()) if row[field] == subject]
    return found


async def refused(cluster: Cluster, subject: str, **more: Any) -> str:
    """The name of the error by which a send failed; nothing when it was stored."""
    async with Client(cluster.server, settings=HASTY) as mq:
        try:
            await mq.send(subject, b"tide", **more)
        except Unavailable as error:
            return error.kind.name
    return ""


def test_what_is_declared_at_meta_is_declared_at_the_brokers_that_have_it(cluster: Cluster) -> None:
    cluster.post(
        "/v1/declarations",
        [
            declaration("Subject", "orders", config=[{"name": "durability", "value": "low"}]),
            declaration("ConsumerGroup", "billing", subjectName="orders"),
        ],
    )

    wait_until(
        "both declare it", lambda: len(at_brokers(cluster, "subjects", "orders")) == 2, PATIENCE_SECONDS
    )
    assert {row["durability"] for row in at_brokers(cluster, "subjects", "orders")} == {"low"}
    assert [row["group"] for row in at_brokers(cluster, "groups", "orders")] == ["billing", "billing"]

    cluster.post(
        "/v1/declarations",
        declaration("Subject", "orders", config=[{"name": "durability", "value": "high"}]),
    )
    wait_until(
        "both have changed it",
        lambda: {row["durability"] for row in at_brokers(cluster, "subjects", "orders")} == {"high"},
        PATIENCE_SECONDS,
    )


def test_a_subject_that_is_read_only_is_refused_to_those_who_send_already(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with Client(cluster.server, settings=HASTY) as mq:
            await mq.send("bills", b"1")
            await asyncio.to_thread(cluster.post, "/v1/subjects/bills/state", {"state": "R"})
            with pytest.raises(Unavailable) as error:
                while True:
                    await mq.send("bills", b"2")
            assert error.value.kind.name == "read_only"
            with pytest.raises(Unavailable):
                await mq.send("bills", b"3", order_key="k")
            await asyncio.to_thread(cluster.post, "/v1/subjects/bills/state", {"state": "RW"})
            async with asyncio.timeout(PATIENCE_SECONDS):
                while await refused(cluster, "bills"):
                    pass
            await mq.send("bills", b"4")

    asyncio.run(scenario())


def test_a_broker_group_that_is_read_only_moves_senders_and_keys_wait_for_it(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with Client(cluster.server) as mq:
            keys = [f"k{number}" for number in range(8)]
            await asyncio.gather(*(mq.send("parcels", b"0", order_key=key) for key in keys))
            await asyncio.to_thread(cluster.post, "/v1/groups/g0/state", {"state": "R"})
            await asyncio.to_thread(wait_until, "it is shut", lambda: shut(cluster), PATIENCE_SECONDS)
            before = stored(cluster, "parcels")
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.gather(*(mq.send("parcels", b"1") for _ in range(20)))
            keyed = [asyncio.ensure_future(mq.send("parcels", b"2", order_key=key)) for key in keys]
            done, waiting = await asyncio.wait(keyed, timeout=2 * BROKERS_BEAT_S)
            assert done
            assert waiting
            assert stored(cluster, "parcels")["g0"] == before["g0"]
            await asyncio.to_thread(cluster.post, "/v1/groups/g0/state", {"state": "RW"})
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.gather(*keyed)
            assert stored(cluster, "parcels")["g0"] == before["g0"] + len(waiting)

    asyncio.run(scenario())


def shut(cluster: Cluster) -> bool:
    """Whether the master of g0 refuses, asked over its own gateway."""
    broker = next(one for one in cluster.get("/v1/routes")["brokers"] if one["group"] == "g0")
    body = json.dumps({"messages": [{"text": "probe"}]}).encode()
    request = urllib.request.Request(
        f"http://{broker['control']}/v1/subjects/probes/messages",
        body,
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30):
            return False
    except urllib.error.HTTPError as error:
        return json.loads(error.read())["error"]["code"] == "read_only"


def stored(cluster: Cluster, subject: str) -> dict[str, int]:
    """How many messages each broker group has of it."""
    found: dict[str, int] = {}
    for broker in cluster.get("/v1/routes")["brokers"]:
        with urllib.request.urlopen(f"http://{broker['control']}/v1/subjects", timeout=30) as answer:
            rows = [row for row in json.loads(answer.read()) if row["name"] == subject]
        found[broker["group"]] = sum(row["messages"] for row in rows)
    return found


def test_a_broker_whose_disk_is_full_is_read_only_at_meta(tmp_path: Path) -> None:
    """No disk has all of its space free."""
    cluster = Cluster(tmp_path / "full", 1, 0, settings={"TIDEMILL_FREE_SPACE_MIN_PERCENT": "100"})
    try:
        cluster.start()
        wait_until("it is read-only", lambda: cluster.group("g0")["state"] == "R", PATIENCE_SECONDS)
        assert cluster.group("g0")["allowed"] == "RW"
    finally:
        cluster.close()


def test_labels_and_load_of_a_broker_are_known_to_meta(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "labelled", 1, 0, settings={"TIDEMILL_LABELS": "zone=a,disk=ssd"})
    try:
        cluster.start()
        assert [one["labels"] for one in cluster.group("g0")["brokers"]] == [{"disk": "ssd", "zone": "a"}]
        ssd = {"brokerGroupSelector": {"matchLabels": {"disk": "ssd"}}, "minBrokerGroups": 1}
        assert (
            cluster.post("/v1/declarations", declaration("Subject", "fast", placement=ssd))["declared"] == 1
        )
        hdd = {"brokerGroupSelector": {"matchLabels": {"disk": "hdd"}}, "minBrokerGroups": 1}
        with pytest.raises(urllib.error.HTTPError) as refused:
            cluster.post("/v1/declarations", declaration("Subject", "slow", placement=hdd))
        refused.value.close()
    finally:
        cluster.close()


def test_a_broker_is_heard_in_time_though_two_replicas_of_meta_are_in_a_black_hole(
    make_queue: MakeQueue, tmp_path: Path
) -> None:
    """They take connections and never answer, as behind a firewall; the third one dies and comes back."""
    with ExitStack() as stack:
        holes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        meta = stack.enter_context(closing(Meta(tmp_path / "meta").start()))
        metas = [*(f"127.0.0.1:{hole.getsockname()[1]}" for hole in holes), meta.server]
        known = {
            "TIDEMILL_NAME": "g0-0",
            "TIDEMILL_REPLICATED": "true",
            "TIDEMILL_META": ",".join(metas),
        }
        make_queue("g0-0", settings=known).start()
        wait_until("it is led", lambda: is_writable(meta), PATIENCE_SECONDS)
        meta.kill()
        meta.start()
        states = wait_states(meta, 2 * SILENCE_SECONDS)

    assert states == {True}


def wait_states(meta: Meta, seconds: float) -> set[bool]:
    """Whether it was writable, each time that it was looked at."""
    end, states = time.monotonic() + seconds, set[bool]()
    while time.monotonic() < end:
        states.add(is_writable(meta))
        time.sleep(0.05)
    return states


def is_writable(meta: Meta) -> bool:
    rows: list[dict[str, Any]] = meta.get("/v1/brokers")
    return [(row["group"], row["state"]) for row in rows] == [("g0", "RW")]
