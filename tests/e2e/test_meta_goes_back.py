"""Meta is put back from an older copy, by the commands of the page for who is on call, under brokers that run on."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import MakeQueue
from e2e.metas import Meta
from e2e.queues import wait_until
from e2e.towns import Cluster
from samples.postgres import _programs, postgres
from tidemill import Client

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).parents[2] / "docs" / "oncall" / "lose-meta.md"
SUBJECT = "orders"
SOME = 20


def run_block(kind: str, needle: str, data: Path, scripts: Path) -> None:
    """The one block of the page with that in it, as it stands."""
    blocks: list[str] = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    [block] = [one for one in blocks if needle in one]
    told = {**os.environ, "DATA": str(data), "PATH": f"{scripts}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-e", "-c", block], env=told, check=True, timeout=60)


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """``python3`` is this one, and ``tidemill`` says nothing: what it lists is another test's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)
    (folder / "tidemill").symlink_to("/bin/true")
    return folder


def run_line(program: str, **variables: str) -> None:
    """The one command of the page that begins with that, with the programs of the wheel."""
    [command] = re.findall(rf"`({program} [^`]*)`", PAGE.read_text())
    told = {**os.environ, **variables, "PATH": f"{_programs()}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-e", "-c", command], env=told, check=True, timeout=60)


async def send(server: str, first: int) -> None:
    async with Client(server) as mq:
        for number in range(first, first + SOME):
            await mq.send(SUBJECT, b"%d" % number)


async def consume_all(server: str, count: int) -> set[int]:
    found: set[int] = set()
    async with Client(server) as mq, mq.consume(SUBJECT, group="all", start="earliest") as messages:
        async for message in messages:
            found.add(int(message.body))
            await message.ack()
            if len(found) == count:
                break
    return found


def test_brokers_go_on_when_meta_is_put_back_from_an_older_copy(
    make_queue: MakeQueue, tmp_path: Path, scripts: Path
) -> None:
    """The copy knows another master, in an earlier epoch, than the one that has taken messages since."""
    cluster = Cluster(make_queue, tmp_path, g0=2)
    (tmp_path / "meta-0").symlink_to(tmp_path / "meta", target_is_directory=True)
    try:
        cluster.start()
        meta = cluster.meta
        asyncio.run(send(meta.server, 0))
        run_block("shell", ".backup(", tmp_path, scripts)
        before = cluster.group("g0")
        [to] = [name for name in before["in_sync"] if name != before["master"]]
        meta.post("/v1/groups/g0/handover", {"to": to})
        cluster.wait_group("g0", lambda row: row["master"] == to and len(row["in_sync"]) == 2)
        asyncio.run(send(meta.server, SOME))

        meta.kill()
        (tmp_path / "meta-0").unlink()
        (tmp_path / "meta").rename(tmp_path / "meta-0")
        run_block("sh", "meta.copy.db", tmp_path, scripts)
        (tmp_path / "meta-0").rename(tmp_path / "meta")
        meta.start()

        cluster.wait_group("g0", lambda row: row["master"] == to and len(row["in_sync"]) == 2)
        assert cluster.group("g0")["epoch"] > before["epoch"] + 1, (
            "an epoch that was never given, forgotten or not"
        )
        asyncio.run(send(meta.server, 2 * SOME))
        assert asyncio.run(consume_all(meta.server, 3 * SOME)) == set(range(3 * SOME))
    finally:
        cluster.close()


def test_postgresql_is_put_back_and_a_broker_says_that_it_is_an_older_one(tmp_path: Path) -> None:
    broker: dict[str, Any] = {"epoch": 1, "role": "master", "in_sync": ["g1-0"]}

    def manifest(name: str) -> dict[str, Any]:
        return {
            "apiVersion": "tidemill.dev/v1alpha1",
            "kind": "Subject",
            "metadata": {"name": name},
            "spec": {},
        }

    with postgres() as server:
        url = server.url("meta_page")
        where = {"TIDEMILL_META_DATABASE": url, "DATA": str(tmp_path)}
        metas = [Meta(tmp_path / f"meta-{number}", url) for number in range(2)]
        try:
            for meta in metas:
                meta.start()
            one = metas[0]
            one.register("g1", "g1-0")
            beat = partial(one.ask, "POST", "/v1/brokers/heartbeat")
            body = {"group": "g1", "name": "g1-0", "boot": 1}
            wait_until("the broker is heard", lambda: beat({**body, **broker})[0] == 200)
            wait_until(
                "a subject can be made",
                lambda: one.ask("POST", "/v1/declarations", manifest("kept"))[0] == 200,
            )
            run_line("pg_dump", **where)
            one.post("/v1/declarations", manifest("lost"))
            broker["known"] = one.get("/v1/routes")["version"]
            for meta in metas:
                meta.kill()

            run_line("pg_restore", **where)
            for meta in metas:
                meta.start()

            def led() -> bool:
                status, answer = beat({**body, **broker})
                return bool(status == 200 and answer["master"] and answer["version"] > broker["known"])

            wait_until("the broker is told anew", led, 60)
            for meta in metas:
                wait_until(
                    "all replicas know it",
                    lambda meta=meta: meta.get("/v1/routes")["version"] > broker["known"],
                )
                assert [row["name"] for row in meta.get("/v1/subjects")] == ["kept"]
        finally:
            for meta in metas:
                meta.close()
