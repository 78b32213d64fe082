"""One of a thing is no several of it."""

from __future__ import annotations

import pytest

from tidemill_wire.counted import counted


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 batches"), (1, "1 batch"), (2, "2 batches"), (12_345, "12,345 batches")]
)
def test_a_number_agrees_with_what_it_counts(count: int, said: str) -> None:
    assert counted(count, "batch", "batches") == said


def test_most_words_want_an_s() -> None:
    assert [counted(count, "dead letter") for count in (1, 2)] == ["1 dead letter", "2 dead letters"]
