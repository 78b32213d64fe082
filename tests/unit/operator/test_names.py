"""Names, labels and times: what is found again by its name alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_operator.kinds import KINDS
from tidemill_operator.marks import moment, part, rows, timestamp
from tidemill_operator.names import (
    DNS_LABEL,
    broker_name,
    claim_name,
    controller_of,
    digest,
    dns_label,
    group_object_name,
    label_value,
    labels_of,
    meta_host,
    pod_name,
    selector_labels,
)
from tidemill_operator.observed import size_of
from tidemill_operator.rbac import CLUSTER, NAMESPACED


@pytest.mark.parametrize("name", ["g0", "prod-fast", "a" * 40])
def test_a_name_that_a_service_may_have_is_left_as_it_is(name: str) -> None:
    assert dns_label(name) == name


@given(st.text("abcXYZ019.-", min_size=1, max_size=90))
def test_any_other_name_becomes_one_that_a_service_may_have(name: str) -> None:
    made = dns_label(name)

    assert DNS_LABEL.fullmatch(made)
    assert len(made) <= 40
    assert made == dns_label(name)


def test_two_long_names_with_one_beginning_stay_two() -> None:
    assert dns_label("a" * 60) != dns_label("a" * 61)
    assert dns_label("0-9") != dns_label("0.9")


def test_names_of_pods_and_claims_are_those_that_kubernetes_makes() -> None:
    assert (pod_name("g0", 1), claim_name("g0", 1), broker_name("fast", 2)) == ("g0-1", "data-g0-1", "fast-2")
    assert group_object_name("prod", "g0") == "prod-g0"
    assert meta_host("prod", "shop") == "prod-meta.shop.svc"


def test_a_pods_revision_label_has_room_behind_the_longest_workload() -> None:
    revision = f"{dns_label('g' * 99)}-{'0' * 10}"

    assert len(revision) <= 63
    assert len(label_value("c" * 253)) <= 63


def test_selectors_have_neither_version_nor_operator() -> None:
    selector = selector_labels("prod", "broker", "g0")

    assert sorted(selector) == [
        "app.kubernetes.io/component",
        "app.kubernetes.io/instance",
        "app.kubernetes.io/name",
        "tidemill.dev/broker-group",
    ]
    assert selector.items() <= labels_of("prod", "broker", "g0").items()
    assert not any("version" in name for name in labels_of("prod", "broker", "g0"))


def test_equal_values_have_one_digest_whatever_their_order() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1}) != digest({"a": 1, "b": [3]})


def test_who_decides_is_the_owner_that_controls() -> None:
    owners = [{"uid": "a"}, {"uid": "b", "controller": True}]

    assert controller_of({"metadata": {"ownerReferences": owners}}) == "b"
    assert controller_of({"metadata": {"ownerReferences": owners[:1]}}) == ""
    assert controller_of({"metadata": {}}) == ""


def test_blocks_that_are_not_there_are_empty() -> None:
    assert part({"spec": None}, "spec", "storage") == part(None, "spec") == {}
    assert rows({"spec": {"config": None}}, "spec", "config") == ()


@given(st.integers(0, 4_000_000_000))
def test_a_time_comes_back_from_what_kubernetes_writes(seconds: int) -> None:
    assert moment(timestamp(seconds * 1000)) == seconds * 1000


def test_a_time_is_written_as_kubernetes_does() -> None:
    assert timestamp(1_709_164_800_000) == "2024-02-29T00:00:00Z"
    assert moment("2026-09-01T00:00:00.5+02:00") == 1_788_213_600_500
    assert moment(None) is None
    assert moment("soon") is None


@pytest.mark.parametrize(
    "written, size", [("10Gi", 10 << 30), ("1500M", 1_500_000_000), (1024, 1024), ("x", 0)]
)
def test_quantities_are_bytes_and_what_is_none_is_nothing(written: object, size: int) -> None:
    assert size_of(written) == size


def test_the_operator_may_do_something_with_each_kind_that_it_knows_and_with_no_other() -> None:
    known = {(one.group, one.plural) for one in KINDS.values()}
    allowed = {
        (rule.group, one.partition("/")[0]) for rule in (*NAMESPACED, *CLUSTER) for one in rule.resources
    }
    assert allowed == known
