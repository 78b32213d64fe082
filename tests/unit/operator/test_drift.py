"""Whether an apply would change anything."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tidemill_operator.drift import contains, is_applied, stamped

MANIFEST: dict[str, Any] = {
    "apiVersion": "apps/v1", "kind": "StatefulSet",
    "metadata": {"name": "g0", "namespace": "shop", "labels": {"a": "1"}},
    "spec": {"replicas": 2, "template": {"spec": {"containers": [
        {"name": "broker", "image": "tidemill:1", "args": ["--port", "7400"],
         "resources": {"requests": {"cpu": "1000m"}}},
    ]}}},
}  # fmt: skip


def standing() -> dict[str, Any]:
    """As the API server writes it down."""
    made = copy.deepcopy(stamped(MANIFEST))
    made["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    containers = made["spec"]["template"]["spec"]["containers"]
    containers[0] |= {"imagePullPolicy": "IfNotPresent", "resources": {"requests": {"cpu": "1"}}}
    containers.insert(0, {"name": "injected", "image": "mesh"})
    made["spec"]["podManagementPolicy"] = "Parallel"
    made["status"] = {"replicas": 2}
    return made


def test_what_stands_there_with_more_beside_it_is_applied() -> None:
    assert is_applied(stamped(MANIFEST), standing())


def test_what_is_not_there_is_not_applied() -> None:
    assert not is_applied(stamped(MANIFEST), None)


@pytest.mark.parametrize("path, value", [
    (("spec", "replicas"), 3),
    (("spec", "template", "spec", "containers", 1, "image"), "tidemill:0"),
    (("spec", "template", "spec", "containers", 1, "args"), ["--port", "7400", "--debug"]),
    (("spec", "template", "spec", "containers", 1, "resources", "requests", "cpu"), "2"),
    (("metadata", "labels", "a"), "2"),
])  # fmt: skip
def test_a_change_by_somebody_else_is_seen(path: tuple[Any, ...], value: Any) -> None:
    there: Any = standing()
    place = there
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert not is_applied(stamped(MANIFEST), there)


def test_a_manifest_that_says_less_than_the_one_before_is_applied_again() -> None:
    shorter = copy.deepcopy(MANIFEST)
    del shorter["spec"]["replicas"]
    assert contains(standing(), shorter)
    assert not is_applied(stamped(shorter), standing())


@pytest.mark.parametrize("one, other", [("1Gi", "1024Mi"), ("1000m", "1"), ("1000m", 1), ("1k", "1000")])
def test_one_amount_is_written_in_many_ways(one: object, other: object) -> None:
    assert contains(one, other)


@pytest.mark.parametrize("one, other", [("1Gi", "1G"), ("a", "b"), ("7400", "7401"), (None, 0), ("", "0")])
def test_two_amounts_are_not_one(one: object, other: object) -> None:
    assert not contains(one, other)
