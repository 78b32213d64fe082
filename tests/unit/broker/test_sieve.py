"""Rows and messages that a filter may want, held against the plainest way to find them."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_broker import sieve
from tidemill_broker.group_settings import GroupSettings
from tidemill_broker.groups import Group
from tidemill_broker.sieve import Sieve
from tidemill_ledger.gathering import runs_of
from tidemill_wire.columns import bloom_of, hash_text

TAGS = ("eu", "new", "us", "vip")
FILTERS = st.builds(Sieve, st.sampled_from((("vip",), ("eu", "vip"), TAGS)), st.booleans())


@pytest.fixture(scope="module", autouse=True)
def small_steps() -> Iterator[None]:
    usual = sieve.NEAR_ROWS, sieve.STEP_ROWS
    sieve.NEAR_ROWS, sieve.STEP_ROWS = 3, 5
    yield
    sieve.NEAR_ROWS, sieve.STEP_ROWS = usual


@given(
    FILTERS, st.lists(st.sampled_from([0, *(bloom_of([hash_text(tag.encode())]) for tag in TAGS), 2**64 - 1]))
)
def test_next_row_is_the_first_whose_word_has_what_is_wanted(wanted: Sieve, words: list[int]) -> None:
    blooms = array("Q", words)
    may = [any(word & own == own for own in wanted._words) for word in words]

    for start in range(len(words) + 1):
        expected = next((index for index in range(start, len(words)) if may[index]), len(words))
        assert wanted.next_row(blooms, start, len(words)) == expected
    blooms.append(0)  # no view of it is left


@given(
    st.lists(st.sets(st.sampled_from(TAGS)), min_size=1),
    st.sets(st.sampled_from(TAGS), min_size=1),
    st.booleans(),
)
def test_rows_are_the_messages_with_the_tags(messages, wanted, every) -> None:
    counts = np.cumsum([0, *map(len, messages)], dtype=np.int32)
    hashes = np.array([hash_text(tag.encode()) for tags in messages for tag in sorted(tags)], np.uint64)

    found = Sieve(tuple(sorted(wanted)), every).rows(counts, hashes)

    fits = wanted.issubset if every else lambda tags: not wanted.isdisjoint(tags)
    assert found.tolist() == [index for index, tags in enumerate(messages) if fits(tags)]


@given(st.sets(st.integers(0, 60)))
def test_runs_are_the_rows_again(rows: set[int]) -> None:
    runs = runs_of(np.array(sorted(rows), np.int64))

    assert [row for first, end in runs for row in range(first, end)] == sorted(rows)
    assert all(end < following for (_, end), (following, _) in itertools.pairwise(runs))


def test_what_was_passed_is_forgotten_when_the_cursor_moves_back_or_on() -> None:
    group = Group(1, 1, "g", 10, 0, GroupSettings())
    group.passed = (10, 30)
    assert group.reached == 30
    for cursor in (5, 20, 40):
        group.cursor = cursor
        assert group.reached == cursor
