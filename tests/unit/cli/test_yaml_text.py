"""What the command line writes as YAML, PyYAML reads as what it was."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tidemill.cli.yaml_text import yaml_of

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_whatever_is_written_is_read_as_the_same_value(value: Any) -> None:
    assert yaml.safe_load(yaml_of(value)) == value


@pytest.mark.parametrize(
    "text", ["no", "On", "null", "~", "1.5", "2026-11-20", "0x1f", "- a", "a: b", "#a", "", " a", "a\nb", "é"]
)
def test_text_that_looks_like_something_else_stays_a_text(text: str) -> None:
    assert yaml.safe_load(yaml_of({"value": text})) == {"value": text}


@pytest.mark.parametrize("value", [1e16, 1e-7, -2.5e300, math.inf, -math.inf])
def test_number_is_read_as_a_number(value: float) -> None:
    assert yaml.safe_load(yaml_of([value])) == [value]


def test_people_can_read_it() -> None:
    written = yaml_of({"name": "order.created", "groups": ["a", "b"], "spec": {"lag": 3, "dead": None}})
    assert written.splitlines() == [
        "name: order.created", "groups:", "  - a", "  - b", "spec:", "  lag: 3", "  dead: null",
    ]  # fmt: skip
