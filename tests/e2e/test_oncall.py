"""docs/oncall: every command of every page is run as it stands, with the trouble that the page is about."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from e2e.clusters import Cluster, is_there
from e2e.queues import Queue, run_command, wait_until
from e2e.services import environment

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PAGES = Path(__file__).parents[2] / "docs" / "oncall"
BLOCK = re.compile(r"^```shell\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOOKING = re.compile(r"^(tidemill (?:doctor|status)\b.*)$", re.MULTILINE)
"""What only looks says by its exit code that something is wrong, which it is."""
PATIENCE_SECONDS = 120.0
RUN: set[str] = set()


def commands_of(page: str) -> str:
    RUN.add(page)
    return "\n".join(BLOCK.findall((PAGES / page).read_text()))


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """Where ``tidemill`` and ``python3`` are, as an installed one has them."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "tidemill"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tidemill.cli "$@"\n')
    script.chmod(0o755)
    (folder / "python3").symlink_to(sys.executable)
    return folder


def perform(page: str, queue: Queue, scripts: Path, **variables: str) -> str:
    """All of a page in its order; what it printed."""
    more = {"TIDEMILL_SERVER": queue.server, "DATA": str(queue.data), **variables}
    told = environment(more)
    told["PATH"] = f"{scripts}:{told['PATH']}"
    commands = LOOKING.sub(r"\1 || true", commands_of(page))
    assert commands, f"{page} has no commands"
    output = scripts.parent / "output"  # and no pipe: what a page starts goes on, and would hold it open
    with output.open("wb") as said:
        done = subprocess.run(
            ["sh", "-e", "-c", commands],
            env=told,
            stdout=said,
            stderr=subprocess.STDOUT,
            timeout=500,
            check=False,
        )
    text = output.read_text()
    assert done.returncode == 0, text
    assert "Traceback" not in text
    return text


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three broker groups with a slave each; what pages have started is ended with it."""
    made = Cluster(tmp_path_factory.mktemp("oncall") / "cluster", 3, 1)
    try:
        made.start()
        yield made
    finally:
        for file in made.data.glob("*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGKILL)
        made.close()


@pytest.fixture
def well(cluster: Cluster) -> Cluster:
    """In order, with a subject that is consumed."""
    cluster.children()
    wait_until("nothing is wrong", lambda: doctor(cluster) == 0, PATIENCE_SECONDS)
    sent = run_command("send", "order.created", "--lines", "-", server=cluster.server, stdin=b"1\n2\n3\n")
    assert sent.returncode == 0
    assert (
        run_command("consume", "order.created", "-g", "billing", "-n", "3", server=cluster.server).returncode
        == 0
    )
    return cluster


def doctor(cluster: Cluster) -> int:
    return run_command("doctor", "--over", "0", server=cluster.server).returncode


def brokers(cluster: Cluster, group: str) -> dict[str, Any]:
    """By name."""
    return {one["name"]: one for one in cluster.group(group)["brokers"]}


def test_broker_is_added_and_taken_away(well: Cluster, scripts: Path) -> None:
    said = perform("add-a-broker.md", well, scripts)
    assert "g7 is retired" in said
    assert "g7" not in {row["group"] for row in well.get("/v1/brokers")}
    pids = [int((well.data / f"g7-{number}.pid").read_text()) for number in range(2)]
    wait_until("both have ended", lambda: not any(map(is_there, pids)), PATIENCE_SECONDS)
    assert doctor(well) == 0


def test_broker_that_does_not_come_back_is_replaced(well: Cluster, scripts: Path) -> None:
    slave = next(name for name, one in brokers(well, "g0").items() if one["role"] == "slave")
    frozen = well.children()[slave]
    os.kill(frozen, signal.SIGSTOP)  # nobody starts it again: to its supervisor it is there
    try:
        wait_until("it is missed", lambda: not brokers(well, "g0")[slave]["alive"], PATIENCE_SECONDS)
        said = perform("lose-a-broker.md", well, scripts, GROUP="g0", BROKER=slave)
        assert f"{slave}: it is away" in said
        found = brokers(well, "g0")
        assert slave not in found
        assert found["g0-9"]["in_sync"]
    finally:
        os.kill(frozen, signal.SIGKILL)


def test_disk_of_a_master_is_lost_and_copied_again(well: Cluster, scripts: Path) -> None:
    master = well.group("g1")["master"]
    ended = well.children()[master]
    shutil.rmtree(well.data / master)
    os.kill(ended, signal.SIGKILL)
    wait_until("another one leads", lambda: well.group("g1")["master"] not in {"", master}, PATIENCE_SECONDS)
    said = perform("lose-a-disk.md", well, scripts, GROUP="g1", BROKER=master)
    assert "all good" in said
    assert well.group("g1")["master"] == master


def test_meta_is_lost_and_comes_back(well: Cluster, scripts: Path) -> None:
    os.kill(well.children()["meta-0"], signal.SIGKILL)
    perform("lose-meta.md", well, scripts)
    assert (well.data / "meta.copy.db").stat().st_size > 0
    assert "order.created" in (well.data / "subjects.yaml").read_text()


def test_brokers_are_upgraded_one_after_the_other(well: Cluster, scripts: Path) -> None:
    slave = next(name for name, one in brokers(well, "g2").items() if one["role"] == "slave")
    pid = well.children()[slave]
    perform("upgrade.md", well, scripts, GROUP="g2", SLAVE=slave, SLAVE_PID=str(pid))
    assert well.group("g2")["master"] == slave
    assert well.children()[slave] != pid


def test_message_is_found(queue_with_later: Queue, scripts: Path) -> None:
    said = perform("find-a-message.md", queue_with_later, scripts)
    assert said.count("o-4711") >= 2
    assert "billing: " in said


def test_backlog_is_drained(queue_with_later: Queue, scripts: Path) -> None:
    server = queue_with_later.server
    lines = b"".join(b"%d\n" % number for number in range(300))
    assert run_command("send", "order.created", "--lines", "-", server=server, stdin=lines).returncode == 0
    assert run_command("consume", "order.created", "-g", "billing", "-n", "1", server=server).returncode == 0
    said = perform("drain-a-backlog.md", queue_with_later, scripts)
    shown = re.findall(r"^lag +(\d+)$", said, re.MULTILINE)
    assert shown == ["299", "279", "0"]
    assert re.findall(r"^drains in +(\S+)", said, re.MULTILINE)[0] == "never"


def test_every_page_is_run_by_a_test_of_this_module() -> None:
    named = set(re.findall(r'perform\("([a-z-]+\.md)"', Path(__file__).read_text()))
    pages = {path.name for path in PAGES.glob("*.md")} - {"README.md"}
    assert named == pages
    listed = set(re.findall(r"\]\(([a-z-]+\.md)\)", (PAGES / "README.md").read_text()))
    assert listed == pages
