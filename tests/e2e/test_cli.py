"""The command line as people and scripts use it: results on standard output, sentences on standard error, codes."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from e2e.queues import COMMAND, Queue, run_command, wait_until
from e2e.services import environment

pytestmark = pytest.mark.e2e

ID = re.compile(r"[0-9a-f]{32}-\d+")


def good(queue: Queue, *arguments: str, stdin: bytes = b"") -> list[str]:
    """Run it; the lines it printed."""
    done = run_command(*arguments, server=queue.server, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.splitlines()


def rows(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def failing(*arguments: str, server: str = "", code: int = 1, stdin: bytes = b"") -> str:
    """Run it; the one sentence that says why not."""
    done = run_command(*arguments, server=server, stdin=stdin)
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("tidemill: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_what_is_sent_is_consumed(shared_queue: Queue) -> None:
    [first] = good(shared_queue, "send", "cli.hello", "first message")
    assert ID.fullmatch(first)
    assert good(shared_queue, "consume", "cli.hello", "--group", "demo", "--count", "1") == ["first message"]


def test_each_way_to_consume_gives_what_it_promises(shared_queue: Queue) -> None:
    for body in ("a", "b", "c"):
        good(shared_queue, "send", "cli.ways", body)

    def consume(group: str, *options: str) -> list[str]:
        return good(shared_queue, "consume", "cli.ways", "-g", group, *options)

    for name in ("screen-1", "screen-2"):
        assert consume("screens", "--broadcast", "--name", name, "-n", "2") == ["a", "b"]
        assert consume("screens", "--broadcast", "--name", name, "-n", "1") == ["c"]
    assert consume("turns", "--exclusive", "-n", "2") == ["a", "b"]
    assert consume("turns", "--exclusive", "-n", "1") == ["c"]
    assert consume("once", "--at-most-once", "-n", "3") == ["a", "b", "c"]
    known = {row["group"]: row for row in shared_queue.get("/v1/groups") if row["subject"] == "cli.ways"}
    assert set(known) == {"screens.screen-1", "screens.screen-2", "turns", "once"}
    assert (known["turns"]["consumption"], known["screens.screen-1"]["consumption"]) == (
        "ordered",
        "broadcast",
    )
    assert (known["once"]["acked"], known["once"]["in_flight"]) == (3, 0)


def test_a_message_keeps_its_labels_as_json(shared_queue: Queue) -> None:
    sent = good(
        shared_queue, "send", "cli.labels", "text", "--key", "o-1", "--tag", "vip", "--tag", "eu",
        "--property", "trace=a=b", "-o", "json",
    )  # fmt: skip
    [receipt] = rows(sent)
    assert (receipt["subject"], receipt["sequence"]) == ("cli.labels", 0)
    [message] = rows(good(shared_queue, "consume", "cli.labels", "-g", "demo", "-n", "1", "--output", "json"))
    assert message.pop("stored_at").endswith("Z")
    assert message == {
        "id": receipt["id"], "subject": "cli.labels", "sequence": 0, "body": "text", "key": "o-1",
        "tags": ["eu", "vip"], "properties": {"trace": "a=b"}, "priority": 0, "attempts": 0,
    }  # fmt: skip


def test_lines_of_a_file_and_of_a_pipe_become_messages(shared_queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"one\ntwo\n\nfour")
    assert len(good(shared_queue, "send", "cli.lines", "--lines", str(tmp_path / "lines"))) == 4
    assert len(good(shared_queue, "send", "cli.lines", "--lines", "-", stdin=b"five\nsix\n")) == 2
    got = good(shared_queue, "consume", "cli.lines", "-g", "demo", "-n", "6")
    assert got == ["one", "two", "", "four", "five", "six"]


def test_a_hundred_thousand_lines_arrive_in_their_order(shared_queue: Queue) -> None:
    text = b"".join(b"%d\n" % number for number in range(100_000))
    assert len(good(shared_queue, "send", "cli.many", "--lines", "-", stdin=text)) == 100_000
    got = good(shared_queue, "consume", "cli.many", "-g", "demo", "-n", "100000", "--timeout", "30")
    assert "\n".join(got).encode() + b"\n" == text


def test_a_file_and_standard_input_are_whole_messages(shared_queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"\xff\n\x00 not text")
    good(shared_queue, "send", "cli.files", "--file", str(tmp_path / "blob"))
    good(shared_queue, "send", "cli.files", stdin=b"piped in\n")
    first, second = rows(good(shared_queue, "consume", "cli.files", "-g", "demo", "-n", "2", "-o", "json"))
    assert first["body"] == {"base64": "/woAIG5vdCB0ZXh0"}
    assert second["body"] == "piped in\n"


def test_a_new_group_begins_where_it_is_told(shared_queue: Queue) -> None:
    good(shared_queue, "send", "cli.start", "old")
    assert good(shared_queue, "consume", "cli.start", "-g", "l", "--from", "latest", "--timeout", "0.5") == []
    good(shared_queue, "send", "cli.start", "new")
    assert good(shared_queue, "consume", "cli.start", "-g", "l", "-n", "1") == ["new"]
    assert good(shared_queue, "consume", "cli.start", "-g", "e", "--from", "earliest", "-n", "2") == [
        "old",
        "new",
    ]
    ahead = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    assert good(shared_queue, "consume", "cli.start", "-g", "t", "--from", ahead, "--timeout", "0.5") == []
    past = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600))
    assert good(shared_queue, "consume", "cli.start", "-g", "p", "--from", past, "-n", "2") == ["old", "new"]


def test_too_few_messages_in_time_are_a_failure(shared_queue: Queue) -> None:
    good(shared_queue, "send", "cli.few", "one")
    sentence = failing("consume", "cli.few", "-n", "2", "--timeout", "0.5", server=shared_queue.server)
    assert "1 of 2" in sentence


def test_a_consumer_that_is_interrupted_has_acknowledged_what_it_printed(shared_queue: Queue) -> None:
    good(shared_queue, "send", "cli.tail", "--lines", "-", stdin=b"one\ntwo\nthree\n")
    command = [*COMMAND, "consume", "cli.tail", "--group", "tail"]
    settings = environment({"TIDEMILL_SERVER": shared_queue.server})
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == [b"one\n", b"two\n", b"three\n"]
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=30)
    assert (process.returncode, rest, errors) == (0, b"", b"")
    row = shared_queue.group("tail")
    assert (row["lag"], row["in_flight"], row["failed"], row["acked"]) == (0, 0, 0, 3)


def test_a_reader_that_leaves_gets_no_traceback_and_loses_nothing(shared_queue: Queue) -> None:
    """``tidemill consume | head -1``: what was not read by anybody is given again."""
    text = b"".join(b"%d\n" % number for number in range(20_000))
    good(shared_queue, "send", "cli.head", "--lines", "-", stdin=text)
    command = [*COMMAND, "consume", "cli.head", "--group", "head"]
    settings = environment({"TIDEMILL_SERVER": shared_queue.server})
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        errors = process.stderr.read()
        process.wait(30)
    assert process.returncode == 1
    assert b"Traceback" not in errors
    wait_until("leases are given back", lambda: shared_queue.group("head")["in_flight"] == 0, 20)
    row = shared_queue.group("head")
    assert row["acked"] + row["lag"] + row["failed"] == 20_000
    assert row["acked"] < 20_000


def test_subjects_and_groups_are_listed(shared_queue: Queue) -> None:
    good(shared_queue, "send", "cli.listed", "one")
    good(shared_queue, "consume", "cli.listed", "-g", "listing", "-n", "1")
    assert any("cli.listed" in line for line in good(shared_queue, "subjects"))
    assert any("listing" in line and "cli.listed" in line for line in good(shared_queue, "groups"))
    subjects = rows(good(shared_queue, "subjects", "-o", "json"))
    groups = rows(good(shared_queue, "groups", "-o", "json"))
    assert {row["name"]: row["messages"] for row in subjects}["cli.listed"] == 1
    assert {row["group"]: row["acked"] for row in groups}["listing"] == 1


def test_a_group_is_moved_suspended_and_resumed(shared_queue: Queue) -> None:
    for number in range(5):
        good(shared_queue, "send", "cli.moved", str(number))
    good(shared_queue, "consume", "cli.moved", "-g", "mover", "-n", "5")
    place = ("groups", "seek", "cli.moved", "mover", "--to")

    assert good(shared_queue, *place, "earliest", "--dry-run") == [
        "Group mover of cli.moved would go on at sequence 0: 5 delivered again."
    ]
    assert "--yes" in failing(*place, "3", server=shared_queue.server, code=2)
    assert good(shared_queue, *place, "3", "--yes")[-1] == (
        "Group mover of cli.moved goes on at sequence 3: 2 delivered again."
    )
    assert good(shared_queue, "consume", "cli.moved", "-g", "mover", "-n", "2") == ["3", "4"]
    [moved] = rows(good(shared_queue, *place, "2020-01-01", "--yes", "-o", "json"))
    assert moved == {"sequence": 0, "again": 5, "skipped": 0, "in_flight": 0, "failed": 0}

    good(shared_queue, "groups", "suspend", "cli.moved", "mover")
    assert shared_queue.group("mover")["suspended"]
    good(shared_queue, "groups", "resume", "cli.moved", "mover")
    assert good(shared_queue, "consume", "cli.moved", "-g", "mover", "-n", "1") == ["0"]
    assert "no group" in failing(
        "groups", "seek", "cli.moved", "nobody", "--to", "latest", "-y", server=shared_queue.server
    )


@pytest.mark.parametrize("what", ["produce", "consume", "latency"])
def test_the_bench_measures_and_says_what(shared_queue: Queue, what: str) -> None:
    count = "200" if what == "latency" else "20000"
    subject = ("--subject", f"cli.bench.{what}")
    if what == "consume":
        good(shared_queue, "bench", "produce", *subject, "--count", count, "--size", "50")
    [result] = rows(good(shared_queue, "bench", what, *subject, "--count", count, "--json"))
    assert (result["bench"], result["messages"] >= int(count)) == (what, True)
    assert result["messages_per_second"] > 0
    assert result["p99_ms"] > 0
    said = good(shared_queue, "bench", what, *subject, "--count", count)
    assert any("messages per second" in line for line in said)


def test_inspect_looks_into_a_queue_that_runs(shared_queue: Queue) -> None:
    good(shared_queue, "send", "cli.inspected", "one")
    data = str(shared_queue.data)
    assert all("all good" in line for line in good(shared_queue, "inspect", "log", data, "--verify"))
    assert any(" cli.inspected 0..0 batch " in line for line in good(shared_queue, "inspect", "log", data))
    found = rows(good(shared_queue, "inspect", "log", str(shared_queue.data), "-o", "json"))
    assert any(row.get("partition") == "cli.inspected" for row in found)


# -- what people do wrong ------------------------------------------------------------------------------------------

WRONG = {
    "no such command": (["sand"], 2, "sand"),
    "a bad subject": (["send", "a b", "x"], 2, "a b"),
    "a percent subject": (["send", "%dead%a%b", "x"], 2, "%"),
    "a bad start": (["consume", "a", "--from", "yesterday"], 2, "yesterday"),
    "a bad server": (["subjects", "--server", "nowhere"], 2, "nowhere"),
    "no file": (["send", "a", "--file", "absent"], 2, "absent"),
    "no folder": (["inspect", "log", "absent"], 2, "absent"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_asked_in_a_wrong_way_is_one_sentence(shared_queue: Queue, name: str) -> None:
    arguments, code, named = WRONG[name]
    done = run_command(*arguments, server=shared_queue.server)
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    assert named in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_is_too_large_is_refused_with_the_limit(shared_queue: Queue) -> None:
    server = shared_queue.server
    assert "1048576" in failing("send", "cli.large", server=server, stdin=bytes(1_048_577))
    assert "limit" in failing("send", "cli.large", "x", "--key", "k" * 1025, server=server)
    tags = [part for number in range(11) for part in ("--tag", f"t{number}")]
    assert "10" in failing("send", "cli.large", "x", *tags, server=server)


@pytest.mark.parametrize(
    "arguments", [["send", "a", "b"], ["consume", "a"], ["subjects"], ["bench", "produce"]]
)
def test_a_server_that_is_not_there_is_one_sentence(arguments: list[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{unused.getsockname()[1]}"
        began = time.monotonic()
        sentence = failing(*arguments, server=server)
    assert server in sentence
    assert "tidemill up" in sentence
    assert time.monotonic() - began < 15


def test_the_data_port_in_place_of_the_http_port_is_explained(shared_queue: Queue) -> None:
    sentence = failing("subjects", server=f"{shared_queue.host}:{shared_queue.port}")
    assert "HTTP port" in sentence


def test_help_and_version_need_no_queue() -> None:
    for arguments in (["--help"], ["consume", "-h"], ["--version"]):
        done = run_command(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert "tidemill" in done.stdout
