"""docs/oncall: every command of every page is run as it stands, with the trouble that the page is about."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pytest

from e2e.clusters import Cluster, is_there
from e2e.conftest import STANDALONE, MakeQueue
from e2e.queues import COMMAND, Queue, run_command, wait_until
from e2e.services import environment
from samples.authorities import Authority
from samples.debian import install_java
from tidemill import Client
from tidemill.security import Security
from tidemill.settings import ClientSettings

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


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority and its key, and the certificate of services, of which a day is left."""
    folder = tmp_path_factory.mktemp("tls")
    made, now = Authority(folder), datetime.now(UTC)
    made.give_key()
    made.ca.rename(folder / "ca.crt")
    life = (now - timedelta(days=89), now + timedelta(days=1))
    made.issue("tls", "127.0.0.1", "localhost", life=life)
    (folder / "cluster.token").write_text("c" * 43 + "\n")
    return folder


def locks(folder: Path) -> dict[str, str]:
    """What services are given of that folder."""
    return {
        "TIDEMILL_TLS_CERT": str(folder / "tls.crt"),
        "TIDEMILL_TLS_KEY": str(folder / "tls.key"),
        "TIDEMILL_TLS_CA": str(folder / "ca.crt"),
        "TIDEMILL_CLUSTER_TOKEN_FILE": str(folder / "cluster.token"),
    }


@pytest.fixture
def locked(tmp_path: Path, authority: Path) -> Iterator[Cluster]:
    """A broker with a slave, which ask who they are of all and of each other."""
    made = Cluster(tmp_path / "locked", 1, 1, (), locks(authority))
    made.ca, made.token = str(authority / "ca.crt"), "c" * 43
    try:
        yield made.start()
    finally:
        made.close()


def test_certificates_and_tokens_are_rotated_and_no_send_fails(
    locked: Cluster, authority: Path, scripts: Path
) -> None:
    known = {
        "TIDEMILL_CA": str(authority / "ca.crt"),
        "TIDEMILL_TOKEN_FILE": str(authority / "cluster.token"),
    }

    def tidemill(*words: str) -> str:
        more = environment({**known, "TIDEMILL_SERVER": locked.server})
        done = subprocess.run([*COMMAND, *words], capture_output=True, env=more, timeout=60, check=True)
        return done.stdout.decode()

    (authority / "shop.token").write_text(tidemill("tokens", "create", "shop"))
    tidemill("grants", "set", "shop", "--to", "token:shop", "--on", "order.*", "--allow", "send")
    former = tidemill("tokens", "list").splitlines()[-1].split()[0]
    with Load(locked.server, authority) as load:
        said = perform("rotate-certificates.md", locked, scripts, TLS=str(authority), FORMER=former, **known)
    assert load.sent > 0
    assert {f"{name}: its certificate ends in" in said for name in ("g0-0", "g0-1")} == {True}
    assert former not in tidemill("tokens", "list")
    assert len((authority / "cluster.token").read_text().split()) == 1
    served = subprocess.run(
        ["openssl", "s_client", "-connect", locked.server, "-CAfile", authority / "ca.crt"],
        input=b"", capture_output=True, check=True,
    )  # fmt: skip
    assert b"issuer=CN = tidemill authority 2" in served.stdout
    assert b"Verify return code: 0 (ok)" in served.stdout


class Load:
    """Someone who sends all the time, each time over a new connection and over one that is open; nothing may fail."""

    def __init__(self, server: str, folder: Path) -> None:
        self.sent = 0
        self._security = Security(ca=folder / "ca.crt", token_file=folder / "shop.token")
        self._server = server
        self._over = threading.Event()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)
        assert not self._failed, self._failed

    def _run(self) -> None:
        try:
            asyncio.run(self._send())
        except BaseException as error:
            self._failed.append(error)

    async def _send(self) -> None:
        settings = ClientSettings(security=self._security)
        async with Client(self._server, settings=settings) as steady:
            while not self._over.is_set():
                async with Client(self._server, settings=settings) as new:
                    for mq in (steady, new):
                        await mq.send("order.created", b"one coffee")
                        self.sent += 1
                await asyncio.to_thread(self._over.wait, 0.3)


def test_messages_are_restored_from_an_archive(
    make_queue: MakeQueue, authority: Path, scripts: Path, tmp_path: Path
) -> None:
    install_java()
    queue = make_queue("restored", settings=locks(authority), command=STANDALONE).start()
    queue.ca, queue.token = str(authority / "ca.crt"), (authority / "cluster.token").read_text().strip()
    known = {"TIDEMILL_CA": queue.ca, "TIDEMILL_TOKEN_FILE": str(authority / "cluster.token")}
    lake = tmp_path / "lake"

    def tidemill(*words: str, stdin: bytes = b"") -> None:
        more = environment({**known, "TIDEMILL_SERVER": queue.server})
        subprocess.run(
            [*COMMAND, *words], input=stdin, env=more, timeout=120, check=True, capture_output=True
        )

    tidemill("send", "order.created", "--lines", "-", stdin=b"1\n2\n3\n")
    tidemill("send", "order.created", "one coffee", "--key", "o-4711")
    tidemill("archive", "run", "--subject", "order.*", "--to", str(lake))
    tidemill("subjects", "remove", "order.created", "--yes", "--force")
    said = perform("restore-from-archive.md", queue, scripts, LAKE=str(lake), **known)

    assert "4 messages would be sent" in said
    assert "4 messages sent" in said
    assert "1 messages sent" in said
    assert "g0/order.restored: 4 messages, equal" in said
    [again] = [json.loads(line) for line in said.splitlines() if line.startswith('{"id"')]
    assert (again["body"], again["key"]) == ("one coffee", "o-4711")


def test_every_page_is_run_by_a_test_of_this_module() -> None:
    named = set(re.findall(r'perform\("([a-z-]+\.md)"', Path(__file__).read_text()))
    pages = {path.name for path in PAGES.glob("*.md")} - {"README.md"}
    assert named == pages
    listed = set(re.findall(r"\]\(([a-z-]+\.md)\)", (PAGES / "README.md").read_text()))
    assert listed == pages
