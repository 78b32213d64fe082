"""Whatever a manifest can declare is read by somebody: a field that only its schema knows is accepted and ignored."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

from tidemill_wire.declarations import ConsumerGroup, Subject
from tidemill_wire.resources import KINDS
from tidemill_wire.schema import Block, Field, Items, Number, Part, table
from tidemill_wire.workload_specs import Resources, Toleration

ROOT = Path(__file__).parents[3]
ROOMS = "broker client delay meta operator standalone spark-on-k8s wire"
SCHEMAS = {"specs.py", "group_specs.py", "cluster_specs.py", "workload_specs.py", "pipeline_specs.py",
           "grant_specs.py", "security_specs.py", "declarations.py"}  # fmt: skip
KUBERNETES = (Resources, Toleration)
"""Handed on as they are written, for Kubernetes to obey."""


def modules() -> Iterator[tuple[Path, ast.Module]]:
    """What may obey: all that runs, but for what makes the schemas."""
    for room in ROOMS.split():
        for file in sorted((ROOT / room).glob("tidemill*/**/*.py")):
            if file.name not in SCHEMAS and "crds" not in file.parts:
                yield file, ast.parse(file.read_bytes())


@pytest.fixture(scope="module")
def read() -> frozenset[str]:
    """Attributes that somebody reads, and texts by which maps are read."""
    found: set[str] = set()
    for _, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return frozenset(found)


def leaves(block: type[Block], path: str) -> Iterator[tuple[str, str, Field]]:
    """Each field that holds a value: its path, its attribute, and what it is."""
    for attribute, described in table(block).items():
        inner = described.item if isinstance(described, Items) else described
        here = f"{path}.{described.name}"
        if not isinstance(inner, Part):
            yield here, attribute, described
        elif inner.block not in KUBERNETES:
            yield from leaves(inner.block, here)


def properties() -> Iterator[str]:
    """What declarations say in words of their own; ``to_map`` and the like are no fields."""
    for kind in (Subject, ConsumerGroup):
        yield from (
            f"{kind.__name__}.{name}" for name, one in vars(kind).items() if isinstance(one, property)
        )


def ignored(block: type[Block], path: str, read: frozenset[str]) -> list[str]:
    return [
        here
        for here, attribute, described in leaves(block, path)
        if attribute not in read and described.name not in read
    ]


def test_every_field_of_every_kind_is_read_outside_of_its_schema(read: frozenset[str]) -> None:
    """What of a Subject and a ConsumerGroup is read by their declarations is looked at in the next test."""
    own = (ROOT / "wire/tidemill_wire/declarations.py").read_bytes()
    said = read | {node.attr for node in ast.walk(ast.parse(own)) if isinstance(node, ast.Attribute)}
    found = [
        one
        for kind in KINDS.values()
        for one in ignored(kind.spec, kind.name, said if kind.name in {"Subject", "ConsumerGroup"} else read)
    ]
    assert not found, f"nobody reads {', '.join(found)}: obey them, or take them out of the schema"


def test_everything_that_a_declaration_says_is_asked_of_it(read: frozenset[str]) -> None:
    unasked = [one for one in properties() if one.partition(".")[2] not in read]
    assert not unasked, f"nobody asks for {', '.join(unasked)}"


@dataclass(frozen=True, slots=True)
class Ignored(Block):
    max_bytes: Annotated[int, Number("Read by many.")] = 0
    nobody_reads_it: Annotated[int, Number("What was forgotten.")] = 0


def test_a_field_that_only_its_schema_knows_is_found(read: frozenset[str]) -> None:
    assert ignored(Ignored, "Planted", read) == ["Planted.nobodyReadsIt"]
