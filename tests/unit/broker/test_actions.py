"""Actions: every kind is read as it was written, and a body of another shape is refused by name."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from samples.actions import ACTIONS
from tidemill_broker.action_kinds import ActionKind
from tidemill_broker.action_records import decode_action, encode_action
from tidemill_broker.actions import Action, Allocated, ConsumerForgotten, Exhumed, GroupPaused
from tidemill_journal.errors import CorruptRecord
from tidemill_journal.records import Record


def decoded(kind: int, body: bytes) -> Action:
    return decode_action(Record(32 + len(body), 0, 0, 1, kind, body))


def with_lists(action: Action) -> Action:
    ranges = getattr(action, "ranges", None)
    return replace(action, ranges=list(ranges)) if isinstance(ranges, array) else action


@pytest.mark.parametrize("name", ACTIONS)
def test_action_is_read_as_it_was_written(name: str) -> None:
    assert with_lists(decoded(*encode_action(ACTIONS[name]))) == ACTIONS[name]


def test_every_kind_has_an_example() -> None:
    assert {encode_action(action)[0] for action in ACTIONS.values()} == set(ActionKind)


@pytest.mark.parametrize("name", ACTIONS)
def test_body_that_is_cut_is_refused(name: str) -> None:
    """Ranges may end at any whole one, a text anywhere, START and FOREVER_OFFLINE behind their first number."""
    action = ACTIONS[name]
    kind, body = encode_action(action)
    texts: dict[type, int] = {GroupPaused: 16, Exhumed: 32, Allocated: 16, ConsumerForgotten: 8}
    text = min(texts.get(type(action), len(body)), len(body))
    head = len(body) - 8 * len(getattr(action, "ranges", ()))
    for size in range(text):
        if hasattr(action, "ranges") and size >= head and (size - head) % 16 == 0:
            continue
        if (kind, size) in {(ActionKind.START, 8), (ActionKind.FOREVER_OFFLINE, 4)}:
            continue
        with pytest.raises(CorruptRecord, match=f"kind {kind}"):
            decoded(kind, body[:size])


@pytest.mark.parametrize("kind", [0, 7, 15, 255])
def test_kind_that_this_version_does_not_know_is_refused(kind: int) -> None:
    with pytest.raises(CorruptRecord, match="does not know"):
        decoded(kind, bytes(16))


def test_pull_with_another_number_of_runs_than_it_says_is_refused() -> None:
    kind, body = encode_action(ACTIONS["pull"])

    with pytest.raises(CorruptRecord, match="runs"):
        decoded(kind, body + bytes(24))


def test_list_of_another_length_is_refused() -> None:
    kind, _ = encode_action(ACTIONS["consumer"])

    with pytest.raises(CorruptRecord):
        decoded(kind, b"\x92\x01\x02")
