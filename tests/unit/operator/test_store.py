"""The store: who is to look when something changes, and that no write of the operator wakes its own writer."""

from __future__ import annotations

import pytest

from samples.kubernetes import CLUSTER, NAMESPACE, manifest
from tidemill_operator import marks
from tidemill_operator.kinds import POD, STORAGE_CLASS, SUBJECT
from tidemill_operator.store import Key, Store, extract

ORDERS = Key("Subject", NAMESPACE, "orders")
MAILER = Key("ConsumerGroup", NAMESPACE, "mailer")
PROD = Key("QueueCluster", NAMESPACE, CLUSTER)
G0 = Key("BrokerGroup", NAMESPACE, "g0")


def subject(version: int = 1, name: str = "orders", **spec: object) -> dict[str, object]:
    return manifest("Subject", name, spec, uid=f"u-{name}", resourceVersion=str(version), generation=1)


def pod(labels: dict[str, str]) -> dict[str, object]:
    metadata = {"name": "g0-0", "namespace": NAMESPACE, "labels": labels, "uid": "p", "resourceVersion": "1"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def test_a_new_object_is_looked_at_and_an_old_word_of_it_is_not() -> None:
    store = Store()
    assert store.put(subject(5)) == (ORDERS,)
    assert store.put(subject(5)) == ()
    assert store.put(subject(6, subjectName="x")) == (ORDERS,)
    assert store.put(subject(5, subjectName="y")) == ()
    assert store.get(ORDERS) == subject(6, subjectName="x")


def test_what_a_listing_says_counts_whatever_was_heard_before() -> None:
    """When etcd is restored an object has its uid again, and a number that is long past."""
    store = Store()
    store.put(subject(900, subjectName="lost"))

    assert store.put(subject(5, subjectName="restored")) == (), "a late word of a watch"
    assert store.put(subject(5, subjectName="restored"), listed=True) == (ORDERS,)
    assert store.get(ORDERS) == subject(5, subjectName="restored")
    assert store.put(subject(6, subjectName="next")) == (ORDERS,)


def test_a_status_of_ours_wakes_nobody_but_its_readers() -> None:
    store = Store()
    store.put(subject(1))
    store.put(manifest("ConsumerGroup", "mailer", {"subjectRef": {"name": "orders"}}, uid="g"))
    assert store.put({**subject(2), "status": {"subjectName": "orders"}}) == (MAILER,)


def test_a_group_looks_when_its_subject_comes() -> None:
    store = Store()
    store.put(manifest("ConsumerGroup", "mailer", {"subjectRef": {"name": "orders"}}, uid="g"))
    assert set(store.put(subject(1))) == {ORDERS, MAILER}


def test_everything_that_names_a_cluster_looks_when_it_comes_goes_or_says_where_its_meta_is() -> None:
    store = Store()
    store.put(subject(1))
    cluster = manifest("QueueCluster", CLUSTER, uid="c", resourceVersion="2")
    assert set(store.put(cluster)) == {PROD, ORDERS}
    later = {**cluster, "metadata": {**cluster["metadata"], "resourceVersion": "3"}}
    assert store.put({**later, "status": {"version": "1"}}) == ()
    latest = {**cluster, "metadata": {**cluster["metadata"], "resourceVersion": "4"}}
    assert store.put({**latest, "status": {"meta": {"endpoint": "meta:7401"}}}) == (ORDERS,)
    assert store.drop(*PROD) == (ORDERS,)


def test_rivals_look_when_the_one_in_their_way_goes() -> None:
    store = Store()
    store.put(subject(1))
    rival = Key("Subject", NAMESPACE, "again")
    store.put(subject(2, "again", subjectName="orders"))
    assert store.drop(*ORDERS, uid="u-orders") == (rival,)


def test_a_late_word_of_a_deletion_does_not_take_away_the_next_one_of_its_name() -> None:
    store = Store()
    store.put(subject(9))
    assert store.drop(*ORDERS, uid="an earlier one") == ()
    assert store.get(ORDERS) is not None


def test_of_other_kinds_only_what_has_our_labels_is_kept() -> None:
    store = Store()
    store.put(manifest("QueueCluster", CLUSTER, uid="c"))
    store.put(manifest("BrokerGroup", "g0", uid="b"))
    assert store.put(pod({"app": "somebody's"})) == ()
    assert store.get(Key("Pod", NAMESPACE, "g0-0")) is None
    assert set(store.put(pod({marks.CLUSTER_LABEL: CLUSTER}))) == {PROD, G0}
    assert [one["kind"] for one in store.around(store.get(G0) or {})] == ["Pod"]
    assert set(store.drop("Pod", NAMESPACE, "g0-0")) == {PROD, G0}


def test_a_storage_class_is_everybodys() -> None:
    store = Store()
    store.put(manifest("BrokerGroup", "g0", uid="b"))
    standard = {
        "apiVersion": STORAGE_CLASS.api_version,
        "kind": "StorageClass",
        "metadata": {"name": "standard"},
    }
    assert store.put(standard) == (G0,)
    assert standard in store.around(store.get(G0) or {})


def test_two_clusters_do_not_see_each_other() -> None:
    store = Store()
    store.put(manifest("BrokerGroup", "g0", uid="b"))
    other = {**manifest("BrokerGroup", "h0", uid="h"), "spec": {"clusterRef": {"name": "test"}}}
    store.put(other)
    assert store.around(store.get(G0) or {}) == ()


def test_an_extract_is_without_what_only_weighs() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{...}", "mine": "1"}
    written = {"metadata": {"name": "a", "managedFields": [1, 2], "annotations": annotations}}
    assert extract(written, SUBJECT)["metadata"] == {"name": "a", "annotations": {"mine": "1"}}
    assert extract(written, POD)["kind"] == "Pod"


@pytest.mark.parametrize(
    "at_ms, written",
    [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_400_000, "2000-02-29T00:00:00Z"),
        (1_798_761_599_999, "2026-12-31T23:59:59Z"),
    ],
)
def test_times_are_written_as_kubernetes_does(at_ms: int, written: str) -> None:
    assert marks.timestamp(at_ms) == written
