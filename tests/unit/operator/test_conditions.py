"""What a status says: how it is put together, that nothing is written twice, and that the docs have the same words."""

from __future__ import annotations

import ast

import pytest

from tidemill_operator.conditions import (
    CONDITIONS,
    EVENTS,
    condition_table,
    event_table,
    merged,
    next_status,
    stalled,
)
from tidemill_operator.marks import timestamp
from tidemill_operator.steps import Condition, Plan
from tidy import tree

NOW_MS = 1_800_000_000_000
READY = Condition("Ready", "True", "Reconciled", "as the spec says")


def test_the_time_of_a_transition_changes_with_the_status_alone() -> None:
    first = merged((), [READY], 1, NOW_MS)
    other = Condition("Ready", "True", "Suspended", "stands still")
    second = merged(first, [other], 2, NOW_MS + 5000)
    assert second[0]["lastTransitionTime"] == timestamp(NOW_MS)
    assert second[0]["observedGeneration"] == 2
    third = merged(second, [Condition("Ready", "False", "ReferenceNotFound", "")], 2, NOW_MS + 9000)
    assert third[0]["lastTransitionTime"] == timestamp(NOW_MS + 9000)


def test_a_status_that_says_the_same_is_not_written() -> None:
    resource = {"metadata": {"generation": 3}, "status": {}}
    plan = Plan(conditions=(*stalled("InvalidSpec", "no"),), status={"subjectName": "orders"})
    status = next_status(resource, plan, NOW_MS)
    assert status is not None
    assert status["observedGeneration"] == 3
    status["conditions"].reverse()
    assert next_status({**resource, "status": status}, plan, NOW_MS + 60_000) is None


def test_a_plan_that_says_nothing_leaves_the_status_as_it_is() -> None:
    assert next_status({"metadata": {"generation": 1}}, Plan(status={"any": 1}), NOW_MS) is None


def test_a_plan_that_has_conditions_alone_keeps_the_rest_of_the_status() -> None:
    """Others read in it where meta is, also while its cluster is going."""
    standing = {"meta": {"endpoint": "meta:7401"}}
    status = next_status(
        {"metadata": {"generation": 1}, "status": standing}, Plan(conditions=(READY,)), NOW_MS
    )
    assert status is not None
    assert status["meta"] == standing["meta"]


def test_a_condition_that_holds_no_more_goes() -> None:
    standing = merged((), stalled("InvalidSpec", "no"), 1, NOW_MS)
    assert [one["type"] for one in merged(standing, [READY], 2, NOW_MS)] == ["Ready"]


def test_a_message_is_no_longer_than_the_api_server_takes() -> None:
    assert len(merged((), [Condition("Ready", "True", "Reconciled", "x" * 9000)], 1, 0)[0]["message"]) == 1000


@pytest.mark.parametrize("words", [condition_table, event_table])
def test_the_docs_have_the_whole_vocabulary(words: object) -> None:
    assert callable(words)
    page = dict(tree.texts())["docs/kubernetes.md"].splitlines()
    missing = [row for row in words() if row not in page]
    assert not missing, "docs/kubernetes.md lacks these rows:\n" + "\n".join(missing)


def test_planners_use_the_vocabulary_alone() -> None:
    """Of conditions and events that are written out in the code; the others are seen by the planners' tests."""
    wrong = [f"{path}: event {said}" for path, (said,) in written_out("Event", 1) if said not in EVENTS]
    for path, (kind, status, reason) in written_out("Condition", 3):
        row = CONDITIONS.get(kind)
        if row is None or reason not in row.reasons.get(status, ()):
            wrong.append(f"{path}: condition {kind} {status} {reason}")
    assert not wrong, wrong


def test_every_event_of_the_vocabulary_is_said_by_somebody() -> None:
    assert {said for _, (said,) in written_out("Event", 1)} == set(EVENTS)


def written_out(made: str, count: int) -> list[tuple[str, tuple[str, ...]]]:
    """The first arguments of each call of that name in the operator, where all of them are written out."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for path, text in tree.texts():
        if not path.startswith("operator/tidemill_operator/") or not path.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == made:
                said = [str(one.value) for one in node.args[:count] if isinstance(one, ast.Constant)]
                found += [(path, tuple(said))] if len(said) == count else []
    return found
