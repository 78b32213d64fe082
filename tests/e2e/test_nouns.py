"""Every noun of the command line can be listed and shown, for people and for programs, and typed with the tab key."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.clusters import Cluster
from e2e.queues import COMMAND, run_command, wait_until
from e2e.services import environment
from e2e.terminals import Terminal
from tidemill.cli import run

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two broker groups with a slave each; a subject with messages, consumed by a group that leaves one."""
    made = Cluster(tmp_path_factory.mktemp("nouns") / "cluster", 2, 1)
    try:
        made.start()
        wait_until("all is well", lambda: ran(made, "status")[0] == 0, PATIENCE_SECONDS)
        assert (
            run_command(
                "send", "order.created", "--lines", "-", server=made.server, stdin=b"1\n2\n3\n"
            ).returncode
            == 0
        )
        consume = run_command("consume", "order.created", "-g", "billing", "-n", "2", server=made.server)
        assert consume.returncode == 0
        yield made
    finally:
        made.close()


def ran(cluster: Cluster, *arguments: str) -> tuple[int, str, str]:
    """The command line in this process, which has it loaded already: the exit code, and what it said."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([*arguments, "--server", cluster.server])
    return code, out.getvalue(), err.getvalue()


def good(cluster: Cluster, *arguments: str) -> str:
    code, out, err = ran(cluster, *arguments)
    assert (code, err) == (0, ""), (arguments, err)
    return out


def refused(cluster: Cluster, *arguments: str) -> str:
    code, _, err = ran(cluster, *arguments)
    assert code == 1
    assert err.startswith("tidemill: ")
    return err


def values(cluster: Cluster, *arguments: str) -> list[Any]:
    """What it says as JSON, which is what it says as YAML, and not nothing as a table."""
    found = [json.loads(line) for line in good(cluster, *arguments, "-o", "json").splitlines()]
    documents = list(yaml.safe_load_all(good(cluster, *arguments, "-o", "yaml")))
    assert [sorted(one) for one in documents] == [sorted(one) for one in found]
    assert (ran(cluster, *arguments)[1].strip() != "") is bool(found)
    return found


def test_subjects_are_listed_and_shown(cluster: Cluster) -> None:
    assert [row["name"] for row in values(cluster, "subjects", "list")] == ["order.created"]
    [shown] = values(cluster, "subjects", "show", "order.created")
    assert shown["messages"] == 3
    assert set(shown["groups"]) - {"watchers"} == {"billing"}  # who watches comes and goes in another test
    assert {row["broker"] for row in shown["partitions"]} <= {"g0", "g1"}
    assert "no subject" in refused(cluster, "subjects", "show", "nobody.knows")


def test_groups_are_listed_and_shown_with_when_they_are_done(cluster: Cluster) -> None:
    listed = {row["group"] for row in values(cluster, "groups", "list")}
    assert listed - {"watchers"} == {"billing"}  # who watches comes and goes in another test
    [shown] = values(cluster, "groups", "show", "order.created", "billing", "--over", "0.2")
    assert (shown["lag"], shown["drains_in_s"], shown["handled_per_s"]) == (1, None, 0.0)
    text = good(cluster, "groups", "show", "order.created", "billing", "--over", "0.2")
    assert any(line.split() == ["drains", "in", "never"] for line in text.splitlines())
    assert "no group" in refused(cluster, "groups", "show", "order.created", "x")


def test_brokers_are_listed_and_shown_with_what_they_take(cluster: Cluster) -> None:
    rows = values(cluster, "brokers", "list")
    assert {row["name"] for row in rows} == {"g0-0", "g0-1", "g1-0", "g1-1", cluster.server}
    assert {row["pid"] for row in rows} == set(cluster.children().values())
    [shown] = values(cluster, "brokers", "show", "g0-0")
    assert shown["memory_bytes"] > 1 << 20
    assert shown["disk_total_bytes"] > 0
    assert "no broker" in refused(cluster, "brokers", "show", "g9-9")
    assert good(cluster, "broker", "list", "-o", "json").count("\n") == len(rows), "as it was called before"


def test_clients_and_routes_are_listed_and_shown(cluster: Cluster) -> None:
    routes = values(cluster, "routes", "list")
    assert {row["subject"] for row in routes} == {"order.created"}
    assert values(cluster, "routes", "show", "order.created") == routes
    command = [*COMMAND, "consume", "order.created", "-g", "watchers", "--name", "w-1"]
    more = environment({"TIDEMILL_SERVER": cluster.server})
    with subprocess.Popen(
        command, env=more, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as consumer:
        try:

            def there() -> list[Any]:
                lines = good(cluster, "clients", "list", "-o", "json").splitlines()
                return [row for row in map(json.loads, lines) if "w-1" in row["consumers"]]

            wait_until("meta has heard of it", there, PATIENCE_SECONDS)
            [row] = there()
            assert row["consumes"] == ["order.created as watchers"]
            assert values(cluster, "clients", "show", row["client"])[0]["client"] == row["client"]
            [shown] = values(cluster, "groups", "show", "order.created", "watchers", "--over", "0")
            assert [one["consumer"] for one in shown["members"]] == ["w-1"]
        finally:
            consumer.send_signal(signal.SIGTERM)
    assert "no program" in refused(cluster, "clients", "show", "x")


def test_messages_dead_letters_timers_and_transactions_are_listed(cluster: Cluster) -> None:
    first = values(cluster, "browse", "order.created")[0]
    assert values(cluster, "find", first["id"])[0]["body"] == first["body"]
    assert values(cluster, "dead", "list", "order.created", "-g", "billing") == []
    assert values(cluster, "transactions", "list") == []
    assert "no transaction of that id" in refused(cluster, "transactions", "show", "f" * 16)


def test_top_shows_one_screen_for_scripts(cluster: Cluster) -> None:
    shown = good(cluster, "top", "--once", "--every", "0.2")
    assert any(line.startswith("g0-0") for line in shown.splitlines())
    assert any(line.startswith("billing") for line in shown.splitlines())
    said = json.loads(good(cluster, "top", "--every", "0.2", "-o", "json"))
    assert {one["name"] for one in said["brokers"]} >= {"g0-0", "g1-1"}


def findings(cluster: Cluster, *options: str) -> tuple[int, set[tuple[str, str]]]:
    code, out, err = ran(cluster, "doctor", "--over", "0.2", "-o", "json", *options)
    assert err == ""
    return code, {(one["check"], one["about"]) for one in json.loads(out)["findings"]}


def test_doctor_finds_what_is_missing_and_is_content_when_it_is_back(cluster: Cluster) -> None:
    code, found = findings(cluster)
    # Nobody minds a cluster of a test, and how full the disk is, is the machine's own business.
    assert (code, {check for check, _ in found} - {"unattended", "disks"}) == (0, set())
    stopped = cluster.children()["g1-1"]
    os.kill(stopped, signal.SIGSTOP)
    try:
        wait_until("it is missed", lambda: ("heard", "g1-1") in findings(cluster)[1], PATIENCE_SECONDS)
        assert findings(cluster)[0] == 1
        text = ran(cluster, "doctor", "--over", "0")[1]
        assert "ERROR" in text
        assert "g1-1" in text
    finally:
        os.kill(stopped, signal.SIGCONT)
    wait_until("nothing is wrong", lambda: findings(cluster)[0] == 0, PATIENCE_SECONDS)
    assert findings(cluster, "--strict")[0] == 1, "a warning is a failure when it is asked for"


def completed(cluster: Cluster, line: str, folder: Path) -> list[str]:
    """What a real bash would put there, with the script that it was given."""
    script = folder / "tidemill"
    if not script.exists():
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tidemill.cli "$@"\n')
        script.chmod(0o755)
    words = line.split(" ")
    program = (
        'eval "$(tidemill --show-completion bash)"\n'
        f"COMP_WORDS=({' '.join(words[:-1])} '{words[-1]}'); COMP_CWORD={len(words) - 1}\n"
        '_tidemill_completion tidemill; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    more = environment({"TIDEMILL_SERVER": cluster.server})
    more["PATH"] = f"{folder}:{more['PATH']}"
    done = subprocess.run(
        ["bash", "-c", program], env=more, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    "line, expected",
    [
        ("tidemill subj", ["subjects"]),
        ("tidemill groups s", ["show", "seek", "suspend"]),
        ("tidemill browse ord", ["order.created"]),
        ("tidemill groups show order.created bil", ["billing"]),
        ("tidemill brokers show g1", ["g1-0", "g1-1"]),
        ("tidemill brokers drain g", ["g0", "g1"]),
    ],
)
def test_tab_key_completes_commands_and_names(
    cluster: Cluster, tmp_path: Path, line: str, expected: list[str]
) -> None:
    assert sorted(completed(cluster, line, tmp_path)) == sorted(expected)


def test_tab_key_says_nothing_when_no_queue_is_there(tmp_path: Path, cluster: Cluster) -> None:
    away = Cluster(tmp_path / "none", 1, 0)
    away.host, away.http_port = "127.0.0.1", 1
    assert completed(away, "tidemill browse ord", tmp_path) == []


@pytest.mark.parametrize("columns", [30, 120])
def test_top_lives_in_a_terminal_until_it_is_interrupted(cluster: Cluster, columns: int) -> None:
    more = environment(
        {"TIDEMILL_SERVER": cluster.server, "COLUMNS": str(columns), "LINES": "20", "TERM": "xterm"}
    )
    with Terminal() as terminal:
        fcntl.ioctl(terminal.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 20, columns, 0, 0))
        command = [*COMMAND, "top", "--every", "0.2"]
        with subprocess.Popen(command, env=more, stdin=terminal.theirs, stdout=terminal.theirs) as process:
            terminal.leave()
            shown = b""
            while shown.count(b"g1-1") < 2:
                shown += terminal.read(PATIENCE_SECONDS)
            process.send_signal(signal.SIGINT)
            while terminal.read(PATIENCE_SECONDS):
                pass
            assert process.wait(PATIENCE_SECONDS) == 0
    assert b"Traceback" not in shown
