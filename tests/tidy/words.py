"""What may be written, and how files may be called."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import PurePosixPath

from tidy.shape import FUNCTIONS
from tidy.tree import Source

LEFTOVER = re.compile(r"\b(?:FIXME|XXX|HACK)\b")
PROMISE = re.compile(r"\bTODO\b(?! ?\(?#\d)")
MACHINE_PATH = re.compile(r"(?<![\w.\-$}])/(?:work|root|home|Users)/\w")
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "misc", "shared", "stuff"}
COMMENTED_BY_HASH = (".toml", ".yaml", ".yml", ".sh", "Makefile", ".ci/run", "Dockerfile")


def promises_have_numbers(source: Source) -> Iterator[str]:
    for line, words in prose(source):
        yield from complaints(f"{source.path}:{line}", words)


def promises_have_numbers_elsewhere(path: str, text: str) -> Iterator[str]:
    """As above, for comments in files that are not Python."""
    if path.endswith(COMMENTED_BY_HASH):
        for number, line in enumerate(text.splitlines(), 1):
            yield from complaints(f"{path}:{number}", line.partition("#")[2])


def complaints(place: str, words: str) -> Iterator[str]:
    if found := LEFTOVER.search(words):
        yield f"{place}: {found[0]}: mend it now, or open an issue"
    if PROMISE.search(words):
        yield f"{place}: a promise without an issue: write its number behind it, as in (#12), or take it out"


def prose(source: Source) -> Iterator[tuple[int, str]]:
    """Comments and docstrings, with their line."""
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and (words := ast.get_docstring(node)):
            yield node.body[0].lineno, words


def no_path_of_a_machine(path: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if found := MACHINE_PATH.search(line):
            yield f"{path}:{number}: {found[0]}... exists on one machine only: make it relative, or a setting"


def names_say_something(path: str) -> Iterator[str]:
    parts = PurePosixPath(path)
    for part in [*parts.parts[:-1], parts.stem]:
        if part.lower().strip("_") in EMPTY_NAMES:
            yield f"{path}: {part!r} says nothing: name the subject that the code in it shares"
