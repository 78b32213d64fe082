"""The README's first screen does what it says, typed as it stands, in an empty folder, against a fresh queue."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.queues import Queue
from e2e.services import environment

pytestmark = pytest.mark.e2e

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def first_block(language: str) -> str:
    """The first block of a language, as it is."""
    return next(text for named, text in BLOCK.findall(README.read_text()) if named == language)


def perform(arguments: list[str], queue: Queue, folder: Path, seconds: float = 120.0) -> str:
    """Run it where nothing is; what it printed."""
    done = subprocess.run(
        arguments, cwd=folder, env=environment({"TIDEMILL_SERVER": queue.server}), capture_output=True,
        timeout=seconds,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    return done.stdout.decode()


def test_the_first_python_of_the_readme_runs(queue: Queue, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    (folder / "hello.py").write_text(first_block("python"))
    assert "one coffee" in perform([sys.executable, "hello.py"], queue, folder)


def test_the_first_commands_of_the_readme_run(queue: Queue, tmp_path: Path) -> None:
    """In a folder where ``tidemill`` is installed as ``make up`` does it."""
    folder = tmp_path / "clone"
    scripts = folder / ".venv" / "bin"
    scripts.mkdir(parents=True)
    script = scripts / "tidemill"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tidemill.cli "$@"\n')
    script.chmod(0o755)
    commands = first_block("shell")
    assert "tidemill send" in commands
    said = perform(["sh", "-e", "-c", commands], queue, folder)
    assert "first message" in said
    assert re.search(r"\bdemo\b.*\bhello\b|\bhello\b.*\bdemo\b", said)


def test_the_manifest_of_the_readme_is_taken(queue: Queue, tmp_path: Path) -> None:
    manifest = tmp_path / "queue.yaml"
    manifest.write_text(first_block("yaml"))
    assert queue.stop() == 0
    declared = Queue(tmp_path / "declared", [manifest])
    try:
        declared.start()
        assert declared.group("billing")["subject"] == "order.created"
        row = declared.get("/v1/subjects")[0]
        assert (row["name"], row["durability"]) == ("order.created", "high")
    finally:
        declared.close()


def test_every_address_that_the_readme_names_is_there(queue: Queue) -> None:
    named = set(re.findall(r"`(/(?:[a-z0-9]+/?)+(?:\.json)?)`", README.read_text()))
    assert "/metrics" in named
    for path in sorted(named):
        assert queue.get_text(path)
