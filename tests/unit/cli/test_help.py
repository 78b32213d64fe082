"""Help is for people: commands and options have a sentence, values have names, and examples can be typed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from tidemill.cli import application, run
from tidemill.cli.examples import EXAMPLES

TYPE_OF_A_PROGRAM = re.compile(
    r"<(?!(?:[\w-]+\|)+[\w-]+>)[a-z][^<>]*>|\b(?:INTEGER|FLOAT|TEXT)\b|\.{4}|\{[A-Z]|\[\["
)
OWN_HELP = {"archive"}
LISTS_ALONE = ("subjects", "groups", "brokers", "clients", "routes", "grants", "tokens", "transactions")
NOUNS = (*LISTS_ALONE, "timers", "dead")


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All there are, hidden ones left out."""
    command = typer.main.get_command(application.build()) if command is None else command
    yield path, command
    for name, below in sorted(getattr(command, "commands", {}).items()):
        if not below.hidden:
            yield from commands(below, (*path, name))


ALL = {" ".join(path): command for path, command in commands() if path and path[0] not in OWN_HELP}


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run([*arguments, "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ALL)
def test_help_says_what_each_command_and_each_option_is(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    text = said(capsys, *name.split())
    assert TYPE_OF_A_PROGRAM.findall(text) == []
    assert text.split("\n\n")[1].strip().endswith("."), "the command has no sentence"
    for each in ALL[name].params:
        if not getattr(each, "hidden", False):
            assert getattr(each, "help", ""), f"{each.name} has no sentence"


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_shown_and_can_be_typed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, *name.split())
    for line in EXAMPLES[name]:
        assert f"  tidemill {line}\n" in text
        words = shlex.split(re.split(r" [|>] ", line)[0])
        assert words[: len(name.split())] == name.split()
        ALL[name].make_context(name, words[len(name.split()) :]).close()


def test_every_noun_can_be_listed_and_shown() -> None:
    for noun in NOUNS:
        assert {"list", "show"} <= set(ALL[noun].commands), noun
    for noun in LISTS_ALONE:
        assert ALL[noun].invoke_without_command, f"`tidemill {noun}` alone lists nothing"


def test_what_prints_data_prints_it_for_programs_too() -> None:
    readers = [
        name for name in ALL if name.rpartition(" ")[2] in ("list", "show", "status", "doctor", "why", "find")
    ]
    assert len(readers) > 2 * len(LISTS_ALONE)
    for name in readers:
        output = next((each for each in ALL[name].params if each.name == "output"), None)
        assert output is not None, name


@pytest.mark.parametrize(
    "shell, named",
    [("bash", "complete -o default"), ("zsh", "compdef"), ("fish", "complete --command tidemill")],
)
def test_the_script_of_a_shell_that_is_named_is_shown(
    shell: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["--show-completion", shell])
    assert ended.value.code == 0
    assert named in capsys.readouterr().out
    assert run(["--show-completion", "tcsh"]) == 2


@pytest.mark.parametrize("shell, words", [("zsh", '"groups":'), ("fish", "groups\t")])
def test_commands_are_completed_for_other_shells_as_well(shell: str, words: str) -> None:
    asked = {
        "_TIDEMILL_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "tidemill gro",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }  # fmt: skip
    program = "from tidemill.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **asked}, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    assert words in done.stdout
