"""What documents, and sentences of the code, tell people to type exists: commands, options, manifests, programs."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import typer
import yaml

from tidemill.cli import application
from tidemill_wire.declarations import parse_manifest_files
from tidy import tree

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(tidemill [^`\n]+)`")
SHELLS = ("shell", "sh", "bash")
COMMAND = re.compile(
    r"(?:^|[|;&(]|\$\(|\bdo\b|\buntil\b|\benv\b[^|;&\n]*?)\s*(tidemill(?: [^\n|;&<>()]*)?)", re.MULTILINE
)
OWN_PARSER = {"archive"}
PLACEHOLDER = re.compile(r"\{[^{}]*\}")
DOCUMENTS = {
    path: text
    for path, text in tree.texts()
    if path.endswith(".md") and not path.startswith("docs/decisions/") and path != "CHANGELOG.md"
}
SOURCES = {
    path: text
    for path, text in tree.texts()
    if path.endswith(".py")
    and path.partition("/")[0] in ("client", "wire", "standalone", "meta", "broker", "operator")
}


def blocks(path: str, *languages: str) -> list[str]:
    return [code for language, code in BLOCK.findall(DOCUMENTS[path]) if language in languages]


WITH = {
    what: [path for path in DOCUMENTS if blocks(path, *languages)]
    for what, languages in {
        "shell": (*SHELLS, "console"),
        "python": ("python",),
        "yaml": ("yaml",),
        "json": ("json",),
    }.items()
}


@pytest.fixture(scope="module")
def command() -> Any:
    return typer.main.get_command(application.build())


def typed(path: str) -> Iterator[str]:
    """The lines of a document that call the command line."""
    for code in blocks(path, *SHELLS, "console"):
        joined = re.sub(r"^\$ ", "", code.replace("\\\n", " "), flags=re.MULTILINE)
        yield from (line.strip() for line in COMMAND.findall(joined))


def mistake(command: Any, line: str) -> str:
    """What of a line does not exist; empty when all does."""
    try:
        words = shlex.split(line, comments=True)[1:]
    except ValueError:
        words = line.split()[1:]
    while (
        words
        and getattr(command, "commands", None) is not None
        and not words[0].startswith(("-", "…", "..."))
    ):
        if words[0] in OWN_PARSER or re.search(r"[A-Z$]", words[0]):
            return ""  # it stands for any of them
        if words[0] not in command.commands:
            return f"there is no command {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {
        "-h",
        "--help",
    }
    options = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    if any(word == "--exec" for word in words):
        options = options[: options.index("--exec") + 1]
    return ", ".join(f"there is no option {option}" for option in options if option not in known)


@pytest.mark.parametrize("path", DOCUMENTS)
def test_commands_of_a_document_exist(path: str, command: Any) -> None:
    lines = [*typed(path), *INLINE.findall(DOCUMENTS[path])]
    assert {line: mistake(command, line) for line in lines if mistake(command, line)} == {}


def test_commands_that_sentences_advise_exist(command: Any) -> None:
    told = {
        (path, line): mistake(command, PLACEHOLDER.sub("NAME", line))
        for path, text in SOURCES.items()
        for line in INLINE.findall(re.sub(r"\"\s*\n\s*f?\"", "", text))
    }
    assert len(told) > 100
    assert {place: what for place, what in told.items() if what} == {}


@pytest.mark.parametrize("path", WITH["shell"])
def test_shell_of_a_document_can_be_parsed(path: str) -> None:
    for code in blocks(path, *SHELLS):
        parsed = subprocess.run(["bash", "-n"], input=code, capture_output=True, text=True, check=False)
        assert (parsed.returncode, parsed.stderr) == (0, ""), code


@pytest.mark.parametrize("path", WITH["python"])
def test_python_of_a_document_compiles(path: str) -> None:
    for code in blocks(path, "python"):
        compile(code, path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


@pytest.mark.parametrize("path", WITH["json"])
def test_json_of_a_document_is_json(path: str) -> None:
    for code in blocks(path, "json"):
        json.loads(code)


@pytest.mark.parametrize("path", WITH["yaml"])
def test_manifests_of_a_document_are_taken(path: str) -> None:
    for code in blocks(path, "yaml"):
        documents = [one for one in yaml.safe_load_all(code) if "tidemill.dev/" in str(one.get("apiVersion"))]
        parse_manifest_files({path: documents})


def test_what_does_not_exist_is_seen(command: Any) -> None:
    assert mistake(command, "tidemill groups shows a b") == "there is no command 'shows'"
    assert mistake(command, "tidemill send a b --prio 3") == "there is no option --prio"
    assert mistake(command, "tidemill consume a --exec 'cat --nothing' --count 1") == ""
    assert mistake(command, "tidemill brokers forget GROUP NAME --force") == ""
