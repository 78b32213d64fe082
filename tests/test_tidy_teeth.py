"""The rules can fail: each is fed what breaks it, and what comes close and does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidy import lists, manners, rooms, shape, tree, words

PAPER = "broker/tidemill_broker/groups.py"
CLIENT = "client/tidemill/link.py"
PROCESS = "host/tidemill_host/process.py"
TURN = "host/tidemill_host/turn.py"
UNIT = "tests/unit/wire/test_frame.py"
E2E = "tests/e2e/test_kill.py"
CLUSTER = "tests/cluster/programs.py"
PROMISE = "TO" + "DO"
MACHINE = "/" + "home/someone/queue"

METHODS = "\n".join(f"    def m{number}(self): ..." for number in range(9))
BROAD = "try:\n    f()\nexcept Exception:\n    pass\n"

BREAKS: list[tuple[Callable[[tree.Source], Iterator[str]], str, str]] = [
    (shape.module_lines, PAPER, "x = 1\n" * 401),
    (shape.function_lines, PAPER, "def f():\n" + "    x = 1\n" * 60),
    (shape.protocol_methods, PAPER, f"class P(Protocol[T]):\n{METHODS}"),
    (shape.constructor_parameters, PAPER, "class C:\n    def __init__(self, a, b, c, d, e, *, f, g): ..."),
    (rooms.paper_touches_nothing, PAPER, "import time"),
    (rooms.paper_touches_nothing, PAPER, "def f():\n    from pathlib import Path"),
    (rooms.paper_touches_nothing, PAPER, "from random import Random"),
    (rooms.paper_touches_nothing, PAPER, "importlib.import_module('socket')"),
    (rooms.paper_touches_nothing, PAPER, "open('segment')"),
    (rooms.paper_touches_nothing, PAPER, "np.random.default_rng()"),
    (rooms.paper_touches_nothing, rooms.CONTRACT_PATH, "import asyncio"),
    (rooms.paper_knows_few, PAPER, "from tidemill_host.turn import Turn"),
    (rooms.paper_knows_few, PAPER, "import tidemill_meta"),
    (rooms.paper_knows_few, PAPER, "import tidemill"),
    (rooms.paper_knows_few, PAPER, "import aiohttp"),
    (rooms.paper_knows_few, "journal/tidemill_journal/segment.py", "import tidemill_wire.batch"),
    (rooms.others_know_few, CLIENT, "from tidemill_broker import machine"),
    (rooms.others_know_few, PROCESS, "from tidemill import Client"),
    (manners.nothing_swallows_everything, CLIENT, BROAD),
    (manners.nothing_swallows_everything, CLIENT, BROAD.replace("Exception", "(ValueError, BaseException)")),
    (manners.nothing_swallows_everything, TURN, BROAD * 2),
    (
        manners.nothing_is_left_out,
        PAPER,
        "class C:\n    def f(self):\n        raise NotImplementedError('later')",
    ),
    (manners.tests_do_not_sleep, UNIT, "time.sleep(1)"),
    (manners.tests_do_not_sleep, UNIT, "await_ = asyncio.sleep(0.1)"),
    (manners.tests_do_not_sleep, E2E, "def test_kill():\n    time.sleep(1)"),
    (manners.tests_do_not_sleep, CLUSTER, "def stop():\n    time.sleep(1)"),
    (manners.tests_do_not_sleep, UNIT, "from time import sleep"),
    (manners.tests_do_not_sleep, UNIT, "time.monotonic()"),
    (manners.tests_take_free_ports, UNIT, "loop.create_server(f, '127.0.0.1', 7400)"),
    (manners.tests_take_free_ports, UNIT, "s.bind(('127.0.0.1', 7400))"),
    (manners.tests_take_free_ports, E2E, "Client('localhost:7401')"),
    (manners.tests_are_sentences, UNIT, "def test_frame(): ..."),
    (manners.tests_are_sentences, UNIT, "class TestFrame:\n    async def test_it_works(self): ..."),
    (words.promises_have_numbers, PAPER, f"x = 1  # {PROMISE}: faster"),
    (words.promises_have_numbers, PAPER, f'"""A group. {PROMISE} seek."""'),
    (words.promises_have_numbers, PAPER, "# " + "FIX" + "ME"),
    (
        lists.settings_explained,
        "broker/tidemill_broker/settings.py",
        "@dataclass\nclass BrokerSettings:\n    a: int",
    ),
]

KEEPS: list[tuple[Callable[[tree.Source], Iterator[str]], str, str]] = [
    (shape.module_lines, PAPER, "x = 1\n" * 400),
    (shape.function_lines, PAPER, "def f():\n" + "    x = 1\n" * 59),
    (shape.constructor_parameters, PAPER, "class C:\n    def __init__(self, a, b, c, d, e, f): ..."),
    (rooms.paper_touches_nothing, PAPER, "import bisect\nif TYPE_CHECKING:\n    from random import Random"),
    (rooms.paper_touches_nothing, "broker/tidemill_broker/__main__.py", "import os, time"),
    (
        rooms.paper_knows_few,
        PAPER,
        "from tidemill_host.machine import Ready\nimport tidemill_wire.batch, numpy",
    ),
    (rooms.others_know_few, CLIENT, "import asyncio, aiohttp\nfrom tidemill_wire import batch"),
    (manners.nothing_swallows_everything, TURN, BROAD),
    (manners.nothing_swallows_everything, CLIENT, BROAD.replace("pass", "close()\n    raise")),
    (
        manners.nothing_is_left_out,
        PAPER,
        "class P(Protocol):\n    def f(self):\n        raise NotImplementedError",
    ),
    (manners.tests_do_not_sleep, UNIT, "asyncio.sleep(0)"),
    (manners.tests_do_not_sleep, "tests/sim/test_world.py", "asyncio.sleep(3)"),
    (manners.tests_do_not_sleep, E2E, "def wait_until(f):\n    time.sleep(0.01)"),
    (manners.tests_do_not_sleep, CLUSTER, "def wait_gone(f):\n    time.sleep(time.monotonic())"),
    (manners.tests_take_free_ports, UNIT, "loop.create_server(f, '127.0.0.1', 0)\nparse('localhost:7401')"),
    (manners.tests_are_sentences, UNIT, "def test_frames_survive_any_split(): ..."),
    (manners.tests_are_sentences, UNIT, "def test_split():\n    '''Any split gives the same frames.'''"),
    (words.promises_have_numbers, PAPER, f"x = '{PROMISE}'  # {PROMISE}(#12): faster"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BREAKS)
def test_a_broken_rule_is_seen_once(
    rule: Callable[[tree.Source], Iterator[str]], path: str, text: str
) -> None:
    complaints = list(rule(tree.parse(path, text)))

    assert len(complaints) == 1
    assert complaints[0].startswith(path)


@pytest.mark.parametrize(("rule", "path", "text"), KEEPS)
def test_a_kept_rule_is_silent(rule: Callable[[tree.Source], Iterator[str]], path: str, text: str) -> None:
    assert list(rule(tree.parse(path, text))) == []


@pytest.mark.parametrize("line", ["\tpython -O -m x", "\t$(BIN)/python -m -OO x", 'ENV PYTHONOPTIMIZE="1"'])
def test_asserts_switched_off_are_seen(line: str) -> None:
    assert list(manners.asserts_stay_on("Makefile", line))
    assert not list(manners.asserts_stay_on("docs/durability.md", line))


def test_paths_of_a_machine_are_seen() -> None:
    assert list(words.no_path_of_a_machine("README.md", f"cd {MACHINE}"))
    assert not list(words.no_path_of_a_machine("README.md", f"https://example.org{MACHINE}"))


def test_promises_outside_of_python_are_seen() -> None:
    assert list(words.promises_have_numbers_elsewhere("Makefile", f"up: # {PROMISE}"))
    assert not list(words.promises_have_numbers_elsewhere("Makefile", f"up: # {PROMISE}(#3)"))


@pytest.mark.parametrize("path", ["broker/tidemill_broker/utils.py", "tests/helpers/disk.py"])
def test_empty_names_are_seen(path: str) -> None:
    assert list(words.names_say_something(path))


def project_of(folders: list[str], packages: list[str]) -> dict[str, Any]:
    paths = [f"{folder}/{package}" for folder, package in zip(folders, packages, strict=True)]
    hatch = {"build": {"dev-mode-dirs": folders, "targets": {"wheel": {"packages": paths}}}}
    return {
        "tool": {
            "hatch": hatch,
            "mypy": {"files": folders, "mypy_path": folders},
            "pyright": {"include": folders, "extraPaths": folders},
            "ruff": {"src": folders},
            "importlinter": {"root_packages": packages},
        }
    }


def test_a_room_missing_in_any_list_is_seen() -> None:
    found = {"client": "tidemill", "wire": "tidemill_wire"}

    assert not list(lists.room_lists(found, project_of(["wire", "client"], ["tidemill_wire", "tidemill"])))
    assert len(list(lists.room_lists(found, project_of(["wire"], ["tidemill_wire"])))) == 8


def test_a_check_of_lint_without_a_hook_is_seen() -> None:
    hooks = {"repos": [{"hooks": [{"entry": "make --silent ruff"}]}]}

    assert not list(lists.lint_in_hooks("lint: ruff hooks ## all\n", hooks))
    assert len(list(lists.lint_in_hooks("lint: ruff types hooks\n", hooks))) == 1
    assert len(list(lists.lint_in_hooks("linty: ruff\n", hooks))) == 1


@pytest.mark.parametrize(
    "extra", ["wire/__init__.py", "tests/wire/test_frame.py", "tests/operator/test_watch.py"]
)
def test_folders_that_hide_others_are_seen(extra: str) -> None:
    found = {"wire": "tidemill_wire"}
    paths = ("wire/tidemill_wire/py.typed", "tests/unit/wire/test_frame.py", "tests/test_tidy.py")

    assert not list(lists.room_folders(found, paths))
    assert len(list(lists.room_folders(found, (*paths, extra)))) == 1
    assert len(list(lists.room_folders(found, paths[1:]))) == 1


def test_a_table_of_modules_and_its_room_are_compared_both_ways() -> None:
    paths = (
        "wire/tidemill_wire/frame.py",
        "wire/tidemill_wire/doors/web.py",
        "wire/tidemill_wire/__init__.py",
    )
    head = "# Wire\n\n| module | is |\n|---|---|\n"
    whole, gone = head + "| `frame.py`, `doors/` | frames |\n", head + "| `frame.py`, `gone.py` | frames |\n"

    assert not list(lists.room_modules("wire", "tidemill_wire", paths, whole))
    assert len(list(lists.room_modules("wire", "tidemill_wire", paths, gone))) == 2
    assert len(list(lists.room_modules("wire", "tidemill_wire", paths, "frame.py, in prose"))) == 2


def test_rooms_are_found_by_their_folders() -> None:
    paths = (
        "wire/tidemill_wire/frame.py",
        "client/tidemill/py.typed",
        "tests/tidemill_x/a.py",
        "docs/tidemill.md",
    )

    assert tree.rooms(paths) == {"client": "tidemill", "wire": "tidemill_wire"}


def test_settings_and_their_table_are_compared_both_ways() -> None:
    text = "@dataclass(frozen=True)\nclass BrokerSettings:\n    data: str\n    '''Where the logs are.'''\n"
    source = tree.parse("broker/tidemill_broker/settings.py", text)

    assert not list(lists.settings_in_docs(source, "## broker\n| `TIDEMILL_DATA` | where |\n"))
    assert len(list(lists.settings_in_docs(source, "## broker\n| `gone` | where |\n"))) == 2
    assert len(list(lists.settings_in_docs(source, "## meta\n| `data` | where |\n"))) == 1
