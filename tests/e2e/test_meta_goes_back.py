"""Meta is put back from an older copy, by the commands of the page for who is on call, under brokers that run on."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.conftest import MakeQueue
from e2e.towns import Cluster
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
