"""What is written in two places, and must be equal: the rooms, what is in them, and the settings."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidy.shape import name_of
from tidy.tree import Source

SETTINGS_PAGE = "docs/settings.md"
HEADING = re.compile(r"^#+ +`?(\w[\w-]*)")
ROW = re.compile(r"^\| *`(\w+)`")
MODULES = re.compile(r"^\| module \| is \|\n\|---\|---\|\n((?:\|.*\n)+)", re.MULTILINE)
MODULE = re.compile(r"`([\w/]+(?:\.py|/))`")


def room_lists(rooms: Mapping[str, str], project: Mapping[str, Any]) -> Iterator[str]:
    """``rooms`` as the folders say, ``project`` as pyproject.toml does."""
    tool = project["tool"]
    folders, packages = set(rooms), set(rooms.values())
    paths = {f"{folder}/{package}" for folder, package in rooms.items()}
    copies = {
        "tool.hatch.build dev-mode-dirs": (tool["hatch"]["build"]["dev-mode-dirs"], folders),
        "tool.hatch.build.targets.wheel packages": (
            tool["hatch"]["build"]["targets"]["wheel"]["packages"],
            paths,
        ),
        "tool.mypy files": (tool["mypy"]["files"], folders),
        "tool.mypy mypy_path": (tool["mypy"]["mypy_path"], folders),
        "tool.pyright include": (tool["pyright"]["include"], folders),
        "tool.pyright extraPaths": (tool["pyright"]["extraPaths"], folders),
        "tool.ruff src": (tool["ruff"]["src"], folders),
        "tool.importlinter root_packages": (tool["importlinter"]["root_packages"], packages),
    }
    for name, (written, wanted) in copies.items():
        if len(written) != len(set(written)) or set(written) != wanted:
            yield f"pyproject.toml, {name}: {sorted(written)}, the folders say {sorted(wanted)}: make them equal"


def lint_in_hooks(makefile: str, hooks: Mapping[str, Any]) -> Iterator[str]:
    """What `make lint` checks is checked before a commit, too."""
    line = re.search(r"^lint:([^#\n]*)", makefile, re.MULTILINE)
    checked = set(line[1].split()) - {"hooks"} if line is not None else set[str]()
    if not checked:
        yield "Makefile: lint checks nothing: give it its targets again"
    entries = {hook["entry"] for repository in hooks["repos"] for hook in repository["hooks"]}
    for target in sorted(checked):
        if f"make --silent {target}" not in entries:
            yield f".pre-commit-config.yaml: `make {target}` is part of lint and no hook: add one"


def room_folders(rooms: Mapping[str, str], paths: tuple[str, ...]) -> Iterator[str]:
    """The traps of folders that are no packages."""
    for folder, package in rooms.items():
        expected = "tidemill" if folder == "client" else f"tidemill_{folder.rpartition('-')[2]}"
        if package not in {expected, "tidemill_spark"}:
            yield f"{folder}/{package}: folder X holds the package tidemill_X: call it {expected}"
        if f"{folder}/__init__.py" in paths:
            yield f"{folder}/__init__.py: makes the folder a package that hides others: delete it"
        if f"{folder}/{package}/py.typed" not in paths:
            yield f"{folder}/{package}/py.typed is missing: without it mypy ignores the installed package"
    taken = (set(rooms) | sys.stdlib_module_names) & {
        path.split("/")[1] for path in paths if is_below_tests(path)
    }
    for folder in sorted(taken):
        yield f"tests/{folder}/: pytest may import it as `{folder}`: put a room's tests into tests/unit/{folder}/"


def room_modules(folder: str, package: str, paths: Sequence[str], readme: str) -> Iterator[str]:
    """The table in a room's README names every module, by itself or by a row for its folder, as ``doors/``."""
    below = f"{folder}/{package}/"
    inside = [path.removeprefix(below) for path in paths if path.startswith(below)]
    modules = {path for path in inside if path.endswith(".py") and not path.endswith("__init__.py")}
    table = MODULES.search(readme)
    rows = [row.split("|")[1:] for row in table[1].splitlines()] if table is not None else []
    written = [name for row in rows for cell in row for name in MODULE.findall(cell)]
    for path in sorted(modules):
        if not any(path == name or (name.endswith("/") and path.startswith(name)) for name in written):
            yield f"{folder}/README.md: {path} is not in the table of modules: add | `{path}` | what it is |"
    for name in sorted({name for row in rows for name in MODULE.findall(row[0])}):
        if not any(path == name or (name.endswith("/") and path.startswith(name)) for path in inside):
            yield f"{folder}/README.md: `{name}` is in the table of modules and not in {below}: take it out"


def is_below_tests(path: str) -> bool:
    return path.startswith("tests/") and path.count("/") > 1


def settings_explained(source: Source) -> Iterator[str]:
    for name, line, explained in fields(source):
        if not explained:
            yield f"{source.path}:{line}: {name} has no docstring below it: say what it does, and its unit"


def settings_in_docs(source: Source, page: str) -> Iterator[str]:
    """One table a room in docs/settings.md: a heading with the room's name, rows that begin with the field's name."""
    declared = {name.upper() for name, _, _ in fields(source)}
    written = rows(page, source.folder)
    for name in sorted(declared - written):
        yield f"{source.path}: {name} is not in {SETTINGS_PAGE}: add a row | `{name}` | under ## {source.folder}"
    for name in sorted(written - declared if declared else ()):
        yield f"{SETTINGS_PAGE}: `{name}` is no setting of {source.folder}: take the row out"


def fields(source: Source) -> Iterator[tuple[str, int, bool]]:
    """Name, line and whether a docstring follows, of each field of the classes ``...Settings`` in a settings.py."""
    if source.name != "settings.py" or source.folder == "tests":
        return
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ClassDef) or not node.name.endswith("Settings"):
            continue
        if not any(name_of(decorator) == "dataclass" for decorator in node.decorator_list):
            continue
        for item, below in zip(node.body, [*node.body[1:], None], strict=True):
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                explained = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
                yield item.target.id, item.lineno, explained


def rows(page: str, room: str) -> set[str]:
    """Names in the first column below the room's heading, without the prefix that all have in the environment."""
    found: set[str] = set()
    current = ""
    for line in page.splitlines():
        if heading := HEADING.match(line):
            current = heading[1].lower()
        elif current == room and (row := ROW.match(line)):
            found.add(row[1].upper().removeprefix("TIDEMILL_").removeprefix(f"{room.upper()}_"))
    return found
