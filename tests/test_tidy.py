"""The house keeps its rules: each test is one of them, over every file that git knows or would add.

The rules themselves are in ``tests/tidy``. None has a list of exceptions; when one stands in the way, it is the rule
that is changed, for all.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator

import pytest
import yaml

from tidy import lists, manners, rooms, shape, tree, words

OF_SOURCES: list[Callable[[tree.Source], Iterator[str]]] = [
    shape.module_lines,
    shape.function_lines,
    shape.protocol_methods,
    shape.constructor_parameters,
    rooms.paper_touches_nothing,
    rooms.paper_knows_few,
    rooms.others_know_few,
    manners.nothing_swallows_everything,
    manners.nothing_is_left_out,
    manners.tests_do_not_sleep,
    manners.tests_take_free_ports,
    manners.tests_are_sentences,
    words.promises_have_numbers,
    lists.settings_explained,
]
OF_TEXTS: list[Callable[[str, str], Iterator[str]]] = [
    manners.asserts_stay_on,
    words.no_path_of_a_machine,
    words.promises_have_numbers_elsewhere,
]


def refuse(complaints: Iterable[str]) -> None:
    found = sorted(complaints)
    if found:
        pytest.fail("\n".join(["the house has rules, tests/tidy says why:", *found]), pytrace=False)


@pytest.mark.parametrize("rule", OF_SOURCES, ids=lambda rule: rule.__name__)
def test_every_source_keeps_the_rule(rule: Callable[[tree.Source], Iterator[str]]) -> None:
    refuse(complaint for source in tree.sources() for complaint in rule(source))


@pytest.mark.parametrize("rule", OF_TEXTS, ids=lambda rule: rule.__name__)
def test_every_text_keeps_the_rule(rule: Callable[[str, str], Iterator[str]]) -> None:
    refuse(complaint for path, text in tree.texts() for complaint in rule(path, text))


def test_names_of_files_say_something() -> None:
    refuse(complaint for path in tree.files() for complaint in words.names_say_something(path))


def test_lists_of_rooms_are_equal() -> None:
    project = tomllib.loads((tree.ROOT / "pyproject.toml").read_text())

    refuse(lists.room_lists(tree.rooms(tree.files()), project))


def test_what_lint_checks_is_checked_before_a_commit() -> None:
    hooks = yaml.safe_load((tree.ROOT / ".pre-commit-config.yaml").read_text())

    refuse(lists.lint_in_hooks((tree.ROOT / "Makefile").read_text(), hooks))


def test_folders_of_rooms_hide_nothing() -> None:
    refuse(lists.room_folders(tree.rooms(tree.files()), tree.files()))


def test_tables_of_modules_name_what_is_in_the_room() -> None:
    texts, paths = dict(tree.texts()), tree.files()

    refuse(
        complaint
        for folder, package in tree.rooms(paths).items()
        for complaint in lists.room_modules(folder, package, paths, texts.get(f"{folder}/README.md", ""))
    )


def test_settings_are_the_same_in_code_and_docs() -> None:
    page = dict(tree.texts()).get(lists.SETTINGS_PAGE, "")

    refuse(complaint for source in tree.sources() for complaint in lists.settings_in_docs(source, page))
