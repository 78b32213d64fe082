"""The operator on a real API server, with a real meta beside it: what people apply becomes true, whatever happens."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from e2e.clusters import Cluster
from e2e.metas import Meta
from e2e.operators import Operator, Proxy, wait_until
from e2e.shops import Shop, ready_in, request_of, seconds_of
from tidemill_operator import marks
from tidemill_operator.settings import OperatorSettings

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

MANY = 1_000
MANY_SECONDS = 180.0
MEMORY_MAX = 300 << 20
SUCCESSION_SECONDS = 15.0
KOPF_WAITS_SECONDS = 5.0
DEFAULTS = OperatorSettings()
OWN_LEASE = {
    "TIDEMILL_OPERATOR_LEASE_MS": str(DEFAULTS.lease_ms),
    "TIDEMILL_OPERATOR_RENEWAL_MS": str(DEFAULTS.renewal_ms),
    "TIDEMILL_OPERATOR_RETRY_MS": str(DEFAULTS.retry_ms),
}


def test_an_applied_subject_is_declared_and_ready(shop: Shop, meta: Meta, operator: Operator) -> None:
    shop.apply("Subject", "orders", {"retention": {"messageSeconds": 3600}})
    shop.wait("subject", "orders", "True", "Reconciled")
    row = meta.get("/v1/subjects/orders")
    assert row["declared"]["spec"]["retention"] == {"messageSeconds": 3600, "archive": "Optional"}
    found = shop.get("subject", "orders")
    assert found is not None
    assert found["status"]["brokerGroups"] == ["g0", "g1"]
    assert "finalizers" not in found["metadata"]
    assert [name for name in found["metadata"].get("annotations", {}) if "kopf" in name] == []
    wait_until("it was told", lambda: ("orders", "Created") in shop.events())
    shop.apply("Subject", "orders", {"retention": {"messageSeconds": 7200}})
    wait_until("meta was told", lambda: seconds_of(meta) == 7200)


def test_what_is_changed_past_its_object_is_changed_back(shop: Shop, meta: Meta, operator: Operator) -> None:
    shop.apply("Subject", "orders", {"retention": {"messageSeconds": 3600}})
    shop.wait("subject", "orders", "True", "Reconciled")
    other = shop.manifest("Subject", "orders", {"retention": {"messageSeconds": 60}})
    meta.post("/v1/declarations", other)
    wait_until("it is as the spec says", lambda: seconds_of(meta) == 3600)
    wait_until("it was told", lambda: ("orders", "DriftReverted") in shop.events())
    wait_until(
        "it is counted",
        lambda: ((shop.get("subject", "orders") or {})["status"].get("drift") or {}).get("count") == 1,
    )
    assert meta.ask("DELETE", "/v1/subjects/orders")[0] == 200
    shop.wait("subject", "orders", "Unknown", "Progressing")
    for group in ("g0", "g1"):  # as brokers say that they have let go of it
        meta.beat(group, f"{group}-0", epoch=1, state="RW", role="master", told=1 << 40)
    wait_until("it is there again", lambda: meta.ask("GET", "/v1/subjects/orders")[0] == 200)


def test_of_two_objects_for_one_subject_the_older_wins_until_it_goes(
    shop: Shop, meta: Meta, operator: Operator
) -> None:
    shop.apply("Subject", "orders")
    shop.wait("subject", "orders", "True", "Reconciled")
    shop.apply("Subject", "again", {"subjectName": "orders", "retention": {"messageSeconds": 60}})
    shop.wait("subject", "again", "False", "ResourceConflict")
    shop.wait("subject", "again", "True", "ResourceConflict", "Stalled")
    shop.ask("delete", "subject", "orders")
    shop.wait("subject", "again", "True", "Reconciled")
    assert seconds_of(meta) == 60


def test_the_deletion_policy_decides_what_becomes_of_the_subject(
    shop: Shop, meta: Meta, operator: Operator
) -> None:
    for name, policy in (("kept", "Retain"), ("removed", "Delete")):
        shop.apply("Subject", name, {"deletionPolicy": policy})
        shop.wait("subject", name, "True", "Reconciled")
    shop.ask("delete", "subject", "kept", "removed")
    shop.wait_gone("subject", "removed")
    assert meta.ask("GET", "/v1/subjects/kept")[0] == 200
    assert meta.ask("GET", "/v1/subjects/removed")[0] == 404


def test_what_programs_use_is_held_and_says_so(shop: Shop, meta: Meta, operator: Operator) -> None:
    shop.apply("Subject", "orders", {"deletionPolicy": "Delete"})
    shop.wait("subject", "orders", "True", "Reconciled")
    meta.post("/v1/clients/heartbeat", {"client": "till", "known": 0, "produces": ["orders"], "consumes": []})
    shop.ask("delete", "subject", "orders", "--wait=false")
    shop.wait("subject", "orders", "False", "DeletionBlocked")
    shop.apply("Subject", "orders", {"deletionPolicy": "Retain"})
    shop.wait_gone("subject", "orders")
    assert meta.ask("GET", "/v1/subjects/orders")[0] == 200


def test_a_namespace_goes_though_meta_is_gone(shop: Shop, meta: Meta, tmp_path: Path) -> None:
    doomed = f"{shop.namespace}-doomed"
    assert shop.cluster.kubectl("create", "namespace", doomed).returncode == 0
    other = Shop(shop.cluster, doomed, meta.server)
    operator = Operator(tmp_path / "operator", shop.cluster.kubeconfig, [shop.namespace, doomed])
    operator.start().wait_working()
    try:
        other.apply_all(
            [
                other.manifest("Subject", f"orders-{number}", {"deletionPolicy": "Delete"})
                for number in range(20)
            ]
        )
        wait_until("all are ready", lambda: ready_in(other) == 20)
        meta.kill()
        shop.cluster.kubectl("delete", "namespace", doomed, "--wait=false")
        wait_until(
            "the namespace is gone",
            lambda: not shop.cluster.kubectl("get", "namespace", doomed, "--ignore-not-found").stdout.strip(),
            120,
        )
    finally:
        operator.close()


def test_an_operator_that_is_killed_at_any_time_is_gone_on_from(
    shop: Shop, meta: Meta, operator: Operator
) -> None:
    names = [f"orders-{number}" for number in range(150)]
    shop.apply_all([shop.manifest("Subject", name, {"deletionPolicy": "Delete"}) for name in names])
    for count in (5, 60):
        wait_until(f"{count} are declared", lambda count=count: len(meta.get("/v1/subjects")) >= count)
        operator.kill()
        operator.start().wait_working()
    wait_until("all are ready", lambda: ready_in(shop) == len(names), 120)
    shop.ask("delete", "subject", "--all", "--wait=false")
    wait_until("some are removed", lambda: len(meta.get("/v1/subjects")) < len(names))
    operator.kill()
    operator.start().wait_working()
    wait_until("all are gone", lambda: shop.ask("get", "subject", "-o", "name").strip() == "", 120)
    assert meta.get("/v1/subjects") == []


def test_one_replica_works_and_another_goes_on(shop: Shop, operator: Operator, tmp_path: Path) -> None:
    long = {"TIDEMILL_OPERATOR_LEASE_MS": "120000", "TIDEMILL_OPERATOR_RENEWAL_MS": "100000"}
    second = Operator(tmp_path / "second", shop.cluster.kubeconfig, [shop.namespace], long).start()
    try:
        shop.apply("Subject", "first")
        shop.wait("subject", "first", "True", "Reconciled")
        wait_until("the one that waits is ready, too", second.is_ready)
        assert not second.works(), "two work"
        operator.kill()
        second.wait_working()
        shop.apply("Subject", "second")
        shop.wait("subject", "second", "True", "Reconciled")
        operator.start()
        assert second.stop() == 0
        operator.wait_working()  # a lease that was given back is not waited for
    finally:
        second.close()


def test_of_two_that_are_ready_the_second_goes_on_soon_when_the_first_is_killed(
    shop: Shop, tmp_path: Path
) -> None:
    """With the lease that people have, and not that of tests."""
    first, second = (
        Operator(tmp_path / name, shop.cluster.kubeconfig, [shop.namespace], OWN_LEASE)
        for name in ("first", "second")
    )
    try:
        first.start().wait_working()
        second.start()
        wait_until("both are ready", lambda: first.is_ready() and second.is_ready())
        assert (first.works(), second.works()) == (True, False)
        assert second.get("/healthz/sentinel")[0] == 200
        assert second.get(f"/v1/scaling/{shop.namespace}/nobody")[0] == 404, "it knows what there is"
        first.kill()
        took = wait_until("the second works", second.works, 2 * SUCCESSION_SECONDS)
        assert took <= SUCCESSION_SECONDS
        shop.apply("Subject", "orders")
        shop.wait("subject", "orders", "True", "Reconciled")
    finally:
        first.close()
        second.close()


def test_who_is_told_to_end_does_so_before_anybody_waits_for_it(operator: Operator) -> None:
    """kopf waits for what else runs in the process, for five seconds; nothing of ours is left by then."""
    began = time.monotonic()
    assert operator.stop() == 0
    assert time.monotonic() - began < KOPF_WAITS_SECONDS


def test_refusals_of_the_api_server_are_got_over(shop: Shop, meta: Meta, tmp_path: Path) -> None:
    with Proxy(shop.cluster.kubeconfig, tmp_path) as proxy:
        operator = Operator(tmp_path / "operator", proxy.kubeconfig, [shop.namespace])
        operator.start().wait_working()
        try:
            status = r"PATCH .*/subjects/[^/]+/status"
            answers: list[tuple[int, dict[str, str]]] = [
                (409, {}),
                (429, {"Retry-After": "1"}),
                (500, {}),
                (503, {}),
            ]
            for number, (code, headers) in enumerate(answers):
                proxy.refusals.append((status, code, headers))
                shop.apply("Subject", f"orders-{number}")
                shop.wait("subject", f"orders-{number}", "True", "Reconciled")
            proxy.refusals.append((r"PATCH .*/subjects/held$", 503, {}))
            shop.apply("Subject", "held", {"deletionPolicy": "Delete"})
            shop.wait("subject", "held", "True", "Reconciled")
            assert proxy.refused == len(answers) + 1
        finally:
            operator.close()


def test_a_status_that_cannot_be_written_is_in_the_log_once(shop: Shop, meta: Meta, tmp_path: Path) -> None:
    with Proxy(shop.cluster.kubeconfig, tmp_path) as proxy:
        operator = Operator(tmp_path / "operator", proxy.kubeconfig, [shop.namespace])
        operator.start().wait_working()
        try:
            forbidden = (r"PATCH .*/subjects/orders/status", 403, dict[str, str]())
            proxy.refusals.extend([forbidden] * 8)
            shop.apply("Subject", "orders")
            for number in range(1, 4):
                wait_until("it was refused", lambda number=number: proxy.refused >= 2 * number)
                shop.annotate("subject", "orders", f"look={number}")
            wait_until("all was refused, and no more", lambda: not proxy.refusals)
            shop.wait("subject", "orders", "True", "Reconciled")
            said = operator.errors
            assert (said.count("status_unwritten"), said.count("pass_failed")) == (1, 1), said
        finally:
            operator.close()


def test_nothing_is_written_while_nothing_happens(shop: Shop, meta: Meta, tmp_path: Path) -> None:
    with Proxy(shop.cluster.kubeconfig, tmp_path) as proxy:
        operator = Operator(tmp_path / "operator", proxy.kubeconfig, [shop.namespace])
        operator.start().wait_working()
        try:
            shop.apply_all(
                [
                    shop.manifest("Subject", f"orders-{number}", {"deletionPolicy": "Delete"})
                    for number in range(50)
                ]
            )
            shop.apply("ConsumerGroup", "mailer", {"subjectRef": {"name": "orders-0"}})
            wait_until("all are ready", lambda: ready_in(shop) == 50)
            shop.wait("consumergroup", "mailer", "True", "Reconciled")
            wait_until("events are told", lambda: len(shop.events()) == 51)
            before, changes = proxy.writes(), meta.get("/v1/subjects/orders-0")
            passes = operator.number('tidemill_operator_reconcile_total{kind="Subject",result="done"}')
            wait_until(
                "everything was looked at three times more",
                lambda: (
                    operator.number('tidemill_operator_reconcile_total{kind="Subject",result="done"}')
                    >= passes + 150
                ),
            )
            assert proxy.writes() == before
            assert meta.get("/v1/subjects/orders-0") == changes
            operator.kill()
            operator.start().wait_working()
            wait_until(
                "everything was looked at",
                lambda: (
                    operator.number('tidemill_operator_reconcile_total{kind="Subject",result="done"}') >= 50
                ),
            )
            assert proxy.writes() == before, "a new process writes again what stands there"
        finally:
            operator.close()


def test_paused_and_unmanaged_objects_are_left_alone(shop: Shop, meta: Meta, operator: Operator) -> None:
    shop.apply("Subject", "orders", {"retention": {"messageSeconds": 3600}, "deletionPolicy": "Delete"})
    shop.wait("subject", "orders", "True", "Reconciled")
    shop.annotate("subject", "orders", f"{marks.PAUSED}=true")
    shop.wait("subject", "orders", "True", "PausedByAnnotation", "Paused")
    shop.ask(
        "patch", "subject", "orders", "--type=merge", "-p", '{"spec": {"retention": {"messageSeconds": 60}}}'
    )
    shop.annotate("subject", "orders", f"{marks.MANAGED}=false")
    shop.annotate("subject", "orders", f"{marks.PAUSED}-")
    shop.wait("subject", "orders", "True", "UnmanagedByAnnotation", "Unmanaged")
    assert seconds_of(meta) == 3600
    shop.ask("delete", "subject", "orders")
    assert meta.ask("GET", "/v1/subjects/orders")[0] == 200


def test_a_silent_meta_is_said_and_got_over(shop: Shop, meta: Meta, operator: Operator) -> None:
    meta.kill()
    shop.apply("Subject", "orders")
    shop.wait("subject", "orders", "Unknown", "ClusterUnavailable")
    meta.start()
    shop.wait("subject", "orders", "True", "Reconciled")


def test_what_meta_refuses_is_said_and_does_not_hold_up_the_others(
    shop: Shop, meta: Meta, operator: Operator
) -> None:
    wrong = shop.manifest("Subject", "wrong", {"placement": {"brokerGroups": ["g7"]}})
    shop.apply_all([wrong, *(shop.manifest("Subject", f"orders-{number}") for number in range(30))])
    shop.wait("subject", "wrong", "False", "BrokerRejected")
    wait_until("the others are ready", lambda: ready_in(shop) == 30)
    meta.register("g7", "g7-0")
    meta.beat("g7", "g7-0", epoch=1, state="RW", role="master", positions={"messages": 0, "actions": 0})
    shop.wait("subject", "wrong", "True", "Reconciled")


def test_a_group_is_declared_watched_and_moved_once(shop: Shop, operator: Operator, tmp_path: Path) -> None:
    queue = Cluster(tmp_path / "queue", brokers=1, slaves=0).start()
    try:
        shop.point(queue.server)
        shop.apply("ConsumerGroup", "mailer", {"subjectRef": {"name": "orders"}})
        shop.wait("consumergroup", "mailer", "False", "ReferenceNotFound")
        shop.apply("Subject", "orders")
        shop.wait("consumergroup", "mailer", "True", "Reconciled")
        wait_until("its lag is said", lambda: "lag" in (shop.get("consumergroup", "mailer") or {})["status"])
        command = json.dumps({"requestId": "a1", "to": "Earliest"})
        shop.annotate("consumergroup", "mailer", f"{marks.SEEK}={command}")
        wait_until("it was moved", lambda: request_of(shop) == "a1")
        wait_until(
            "the command is taken away",
            lambda: marks.command(shop.get("consumergroup", "mailer"), marks.SEEK) is None,
        )
        assert ("mailer", "SeekDone") in shop.events()
        code, said = operator.get(f"/v1/scaling/{shop.namespace}/mailer")
        assert code == 200
        answer = json.loads(said)
        assert (answer["undone"], answer["replicas"]) == (0, 1)
    finally:
        queue.close()


def test_a_thousand_subjects_at_once_are_soon_ready(shop: Shop, tmp_path: Path) -> None:
    """They are there before the operator is: how slowly kubectl applies them on a busy machine decides nothing.

    Objects that come one by one, more slowly than meta answers, rightly ask one by one.
    """
    names = [f"orders-{number}" for number in range(MANY)]
    shop.apply_all([shop.manifest("Subject", name) for name in names])
    operator = Operator(tmp_path / "operator", shop.cluster.kubeconfig, [shop.namespace])
    operator.start().wait_working()
    try:
        took = wait_until("all are ready", lambda: ready_in(shop) == MANY, MANY_SECONDS)
        asked = sum(
            operator.number(f'tidemill_operator_meta_requests_total{{code="200",operation="{verb}"}}')
            for verb in ("get", "post")
        )
        memory = operator.memory_bytes()
    finally:
        operator.close()
    print(f"{MANY} ready after {took:.1f} s, {asked:.0f} requests, {memory >> 20} MiB")
    assert asked < MANY / 4, f"{asked:.0f} requests: each asked on its own"
    assert memory < MEMORY_MAX, f"{memory >> 20} MiB"
