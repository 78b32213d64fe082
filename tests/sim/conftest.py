"""Dead processes of simulated worlds are collected at the end of the test that made them, without a warning."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sim.seal import collect


@pytest.fixture(autouse=True)
def buried() -> Iterator[None]:
    yield
    collect()
