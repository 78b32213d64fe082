"""What is printed to be typed works as it is pasted: the command by its place where it is not on the path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tidemill_broker.doors.greeting import command_name, greeting


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment in a folder with a space, with the command in it, and nothing on the path."""
    folder = tmp_path / "a venv" / "bin"
    folder.mkdir(parents=True)
    script(folder)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "elsewhere"))
    return folder


def script(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "tidemill").write_text("#!/bin/sh\n")
    (folder / "tidemill").chmod(0o755)
    return folder / "tidemill"


def test_command_of_an_environment_on_the_path_is_its_name(beside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(beside))
    assert command_name() == "tidemill"


def test_command_of_another_environment_is_its_place(beside: Path, tmp_path: Path) -> None:
    assert command_name() == f"'{beside}/tidemill'"

    script(tmp_path / "elsewhere")  # another installation must not be taken for this one
    assert command_name() == f"'{beside}/tidemill'"


def test_without_a_script_the_module_is_run(beside: Path) -> None:
    (beside / "tidemill").unlink()
    assert command_name() == f"'{beside}/python' -m tidemill.cli"


@pytest.mark.parametrize(
    "host, port, option",
    [
        ("127.0.0.1", 7401, ""),
        ("0.0.0.0", 7401, ""),
        ("127.0.0.1", 7500, " --server 127.0.0.1:7500"),
        ("10.0.0.7", 7401, " --server 10.0.0.7:7401"),
        ("::1", 7401, " --server [::1]:7401"),
    ],
)
def test_server_is_named_when_it_is_not_where_commands_look(host: str, port: int, option: str) -> None:
    lines = greeting(host, port, ["send a b", "status"], "queue").split("\n")
    typed = [line.strip() for line in lines if line.startswith("  ")]
    assert typed == [f"{command_name()} send a b{option}", f"{command_name()} status{option}"]
