"""Who may know whom, and what paper may touch. import-linter sees chains of imports; this sees each file's own."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from tidy.shape import name_of
from tidy.tree import PACKAGE, Source

KNOWS = {
    "wire": set[str](),
    "journal": set[str](),
    "ledger": {"tidemill_wire", "tidemill_journal"},
    "broker": {"tidemill_wire", "tidemill_journal", "tidemill_ledger"},
    "meta": {"tidemill_wire", "tidemill_journal"},
    "delay": {"tidemill_wire", "tidemill_journal", "tidemill_ledger"},
    "operator": {"tidemill_wire"},
}
"""The paper rooms, and the other rooms each may import."""

CONTRACT = "tidemill_host.machine"
"""What machines and the host agree on. It belongs to the host, is as pure as paper, and services may import it."""
CONTRACT_PATH = "host/tidemill_host/machine.py"

SERVICES = {"broker", "meta", "delay"}
WITH_DOORS = SERVICES | {"operator"}
"""Paper but for their doors."""
RUN_BY_HOST = SERVICES | {"ledger"}
"""Rooms that speak of the host's contract."""

PURE_LIBRARIES = {"crc32c", "lz4", "msgpack", "numpy", "zstandard"}
"""Values in, values out. In paper, nothing else that is not Python's own."""

WORLDLY = {
    *(
        "asyncio",
        "concurrent",
        "multiprocessing",
        "queue",
        "sched",
        "subprocess",
        "threading",
        "_thread",
        "signal",
    ),
    *("socket", "socketserver", "select", "selectors", "ssl", "http", "urllib", "ftplib", "smtplib"),
    *("time", "datetime", "random", "secrets", "uuid", "zoneinfo"),
    *("os", "pathlib", "shutil", "tempfile", "glob", "mmap", "fcntl", "sqlite3", "platform"),
    *("logging", "warnings", "argparse", "getpass"),
}
WORLDLY_CALLS = {"open", "input", "print", "exec", "eval", "breakpoint"}

ROOMS_ONLY_FROM = {
    "client": {"tidemill_wire"},
    "host": {"tidemill_wire", "tidemill_journal"},
    "operator": {"tidemill_wire", "tidemill"},
    "console": {"tidemill_wire", "tidemill_host"},
    "standalone": {
        "tidemill_wire",
        "tidemill_journal",
        "tidemill_host",
        "tidemill_broker",
        "tidemill_meta",
        "tidemill_delay",
        "tidemill_console",
    },
}


def is_paper(source: Source) -> bool:
    if source.folder in WITH_DOORS:
        return source.name != "__main__.py" and "/doors/" not in source.path
    return source.folder in KNOWS or source.path == CONTRACT_PATH


def paper_touches_nothing(source: Source) -> Iterator[str]:
    if not is_paper(source):
        return
    for node, module in imports(source.tree):
        if top(module) in WORLDLY:
            yield (
                f"{source.at(node)}: paper imports {module}: take the value as a parameter (now_ms, random.Random, "
                f"bytes), or move what does things to host or to a door"
            )
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WORLDLY_CALLS:
            yield f"{source.at(node)}: paper calls {node.func.id}(): return a value and let host act on it"
        if (
            isinstance(node, ast.Attribute)
            and node.attr == "random"
            and name_of(node.value) in {"np", "numpy"}
        ):
            yield f"{source.at(node)}: paper uses numpy's chance: take a random.Random as a parameter"


def paper_knows_few(source: Source) -> Iterator[str]:
    if not is_paper(source):
        return
    own = match[2] if (match := PACKAGE.match(source.path)) else ""
    known = {own} | KNOWS.get(source.folder, set())
    for node, module in imports(source.tree):
        if source.folder in RUN_BY_HOST and (module == CONTRACT or module.startswith(f"{CONTRACT}.")):
            continue
        if is_room(module) and top(module) not in known:
            yield (
                f"{source.at(node)}: {source.folder} imports {module}, it may know "
                f"{', '.join(sorted(known))}: turn the arrow round or move the code to the room it needs"
            )
        elif not is_room(module) and top(module) not in sys.stdlib_module_names | PURE_LIBRARIES:
            yield f"{source.at(node)}: paper imports {module}: only {', '.join(sorted(PURE_LIBRARIES))} are pure enough"


def others_know_few(source: Source) -> Iterator[str]:
    """As ``paper_knows_few``, for the host and the doors that are rooms."""
    known = ROOMS_ONLY_FROM.get(source.folder)
    match = PACKAGE.match(source.path)
    if known is None or match is None or is_paper(source):
        return
    for node, module in imports(source.tree):
        if is_room(module) and top(module) not in known | {match[2]}:
            yield (
                f"{source.at(node)}: {source.folder} imports {module}, it may know {', '.join(sorted(known))}: "
                f"see the table of rooms in CONTRIBUTING.md"
            )


def imports(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Every import with the full name of what it brings, but for ``random.Random`` as the type of a parameter."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node, alias.name) for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from ((node, f"{module}.{alias.name}") for alias in names)
            case ast.If(test=test) if name_of(test) == "TYPE_CHECKING":
                yield from (found for found in imports(node) if found[1] != "random.Random")
            case ast.Call(args=[ast.Constant(value=str(module)), *_]) if name_of(node) in {
                "import_module",
                "__import__",
            }:
                yield node, module
            case _:
                yield from imports(node)


def is_room(module: str) -> bool:
    return top(module) == "tidemill" or module.startswith("tidemill_")


def top(module: str) -> str:
    return module.partition(".")[0]
