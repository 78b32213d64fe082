"""What people do with a queue on Kubernetes, with pods that run: install, declare, send and consume, and roll it."""

from __future__ import annotations

import faulthandler
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cluster.cache import base
from cluster.programs import wait_until
from cluster.real import RealCluster
from samples.scripts import ROOT

pytestmark = [pytest.mark.real_cluster, pytest.mark.timeout(2_700)]  # image and cluster may have to be built

CHARTS = ROOT / "charts"
OPERATORS, NAMESPACE = "tidemill-system", "rolled"
VALUES: dict[str, Any] = {
    "cluster": {"meta": {"storage": {"size": "128Mi"}}},
    "brokerDefaults": {"slaves": 1, "storage": {"size": "512Mi"}},
    "brokerGroups": [{"name": "g0"}, {"name": "later", "kind": "Delay", "slaves": 0}],
}
INSTALL_SECONDS, DECLARE_SECONDS, STALL_SECONDS = 180.0, 2.0, 3.0
MESSAGES, A_SECOND = 100_000, 300
NUMBERS = count(1)
POD: dict[str, Any] = {
    "restartPolicy": "Never",
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "volumes": [{"name": "tmp", "emptyDir": {}}],
}
PROGRAM: dict[str, Any] = {
    "name": "program",
    "image": "localhost/tidemill:0.1.0",
    "env": [{"name": "TIDEMILL_SERVER", "value": "queue-meta:7401"}],
    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # the pod's own
    "securityContext": {"readOnlyRootFilesystem": True},
    "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/flows"]}, "periodSeconds": 1},
}


@pytest.fixture(scope="module")
def queue(real_cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """The operator and a queue: brokers with a slave, and a delay group."""
    faulthandler.cancel_dump_traceback_later()  # a build is no hang
    archive = tmp_path_factory.mktemp("image") / "tidemill.tar"
    options = ["--debootstrap", "--install", "--cache", str(base() / "images"), "--output", str(archive)]
    subprocess.run([sys.executable, str(ROOT / "images/build.py"), *options], check=True)
    real_cluster.import_image(archive)
    yield from installed(real_cluster)


def installed(cluster: RealCluster) -> Iterator[RealCluster]:
    began = time.monotonic()
    helm(cluster, "install", "tidemill-operator", CHARTS / "tidemill-operator", OPERATORS, "--wait")
    helm(cluster, "install", "queue", CHARTS / "tidemill", NAMESPACE, "--values=-", stdin=json.dumps(VALUES))
    for kind in ("queuecluster", "brokergroup"):
        ready(cluster, kind, "--all")
    seconds = time.monotonic() - began
    print(f"operator and queue, from `helm install` to ready: {seconds:.1f} s")
    assert seconds < INSTALL_SECONDS
    yield cluster
    for release, namespace in (("queue", NAMESPACE), ("tidemill-operator", OPERATORS)):
        done = cluster.helm("uninstall", release, "--namespace", namespace, "--wait", seconds=200)
        assert done.returncode == 0, done.stderr


def test_a_subject_is_applied_and_pods_exchange_a_hundred_thousand_messages(queue: RealCluster) -> None:
    seconds = declare(queue, "orders")
    print(f"Subject and ConsumerGroup, from `kubectl apply` to ready: {seconds:.2f} s")
    assert seconds < DECLARE_SECONDS
    consumer, producer = begin(queue, "consume", "orders", 0), begin(queue, "produce", "orders", MESSAGES)
    sent, seen = said(queue, producer), said(queue, consumer)
    print(f"a producer's pod and a consumer's: {sent}, {seen}")
    assert (sent["sent"], seen["seen"]) == (MESSAGES, MESSAGES)


def test_all_brokers_are_rolled_under_traffic_while_the_operator_is_deleted(queue: RealCluster) -> None:
    declare(queue, "rolled")
    consumer, producer = begin(queue, "consume", "rolled", 0), begin(queue, "stream", "rolled", A_SECOND)
    for pod in (consumer, producer):
        queue.ask("wait", "-n", NAMESPACE, f"pod/{pod}", "--for=condition=Ready", "--timeout=60s")
    before = brokers(queue)
    began = time.monotonic()
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    restart = f"tidemill.dev/rolling-restart-at={at}"
    queue.ask("annotate", "-n", NAMESPACE, "queuecluster/queue", restart, "--overwrite")
    wait_until("the first broker is replaced", lambda: brokers(queue) != before, 120.0, lambda: None)
    queue.ask("delete", "pod", "-n", OPERATORS, "--all", "--wait=false")
    wait_until("all are", lambda: rolled(queue, before), 600.0, lambda: None)
    seconds = time.monotonic() - began
    queue.ask("exec", "-n", NAMESPACE, producer, "--", "touch", "/tmp/end")
    sent, seen = said(queue, producer), said(queue, consumer)
    print(f"{len(before)} brokers rolled in {seconds:.0f} s, operator deleted meanwhile: {sent}, {seen}")
    assert sent["sent"] == seen["seen"] == seen["wanted"]
    assert max(sent["longest_send"], sent["longest_gap"]) < STALL_SECONDS
    # Another operator looks at everything anew: it finds nothing to write.
    stays = versions(queue)
    queue.ask("delete", "pod", "-n", OPERATORS, "--all")
    declare(queue, "afterwards")
    now = versions(queue)
    assert {name: now[name] for name in stays} == stays


def helm(
    cluster: RealCluster,
    command: str,
    release: str,
    chart: Path,
    namespace: str,
    *words: str,
    stdin: str = "",
) -> None:
    where = ("--namespace", namespace, "--create-namespace")
    done = cluster.helm(command, release, str(chart), *where, *words, stdin=stdin, seconds=200)
    assert done.returncode == 0, done.stderr


def ready(cluster: RealCluster, kind: str, name: str) -> None:
    cluster.ask("wait", "-n", NAMESPACE, kind, name, "--for=condition=Ready", "--timeout=180s", seconds=200)


def declare(cluster: RealCluster, name: str) -> float:
    """A subject, and a group that consumes it; the seconds until both are ready."""
    reference = {"clusterRef": {"name": "queue"}}
    kinds = {"Subject": {}, "ConsumerGroup": {"groupName": "billing", "subjectRef": {"name": name}}}
    items = [
        {"apiVersion": "tidemill.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": reference | spec}
        for kind, spec in kinds.items()
    ]  # fmt: skip
    began = time.monotonic()
    cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), "-n", NAMESPACE)
    for kind in kinds:
        ready(cluster, kind.lower(), name)
    return time.monotonic() - began


def begin(cluster: RealCluster, way: str, subject: str, amount: int) -> str:
    """A pod of a program; its name."""
    name = f"{way}-{next(NUMBERS)}"
    program = (ROOT / "tests/cluster/traffic.py").read_text()
    container = PROGRAM | {"command": ["python", "-c", program, way, subject, str(amount)]}
    spec = POD | {"containers": [container]}
    cluster.apply(
        json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}), "-n", NAMESPACE
    )  # fmt: skip
    return name


def said(cluster: RealCluster, pod: str) -> dict[str, float]:
    """What a program has seen, when it has ended."""

    def ended() -> bool:
        return cluster.json("get", "pod", "-n", NAMESPACE, pod)["status"]["phase"] in ("Succeeded", "Failed")

    wait_until(f"{pod} ends", ended, 300.0, lambda: None)
    text = cluster.ask("logs", "-n", NAMESPACE, pod)
    try:
        found: dict[str, float] = json.loads(text.splitlines()[-1])
    except (ValueError, IndexError):
        pytest.fail(f"{pod} failed: {text[-2000:]}")
    return found


def brokers(cluster: RealCluster) -> dict[str, str]:
    """Name and uid of the pods of all groups."""
    pods = cluster.json("get", "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component in (broker,delay)")
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods["items"]}


def rolled(cluster: RealCluster, before: dict[str, str]) -> bool:
    """Every broker is another pod, and every object says that it is done and well."""
    now = brokers(cluster)
    if now.keys() != before.keys() or any(now[name] == before[name] for name in before):
        return False
    groups = cluster.json("get", "brokergroups,queueclusters", "-n", NAMESPACE)["items"]
    return all(state(one, "Ready") == "True" and state(one, "Progressing") == "False" for one in groups)


def state(resource: dict[str, Any], kind: str) -> str:
    found = resource.get("status", {}).get("conditions", ())
    return next((one["status"] for one in found if one["type"] == kind), "Unknown")


def versions(cluster: RealCluster) -> dict[str, str]:
    """Of what the operator writes, but for consumer groups: what waits for them is in their status."""
    kinds = "queueclusters,brokergroups,subjects,statefulsets,configmaps,services"
    items = cluster.json("get", kinds, "-n", NAMESPACE)["items"]
    return {f"{one['kind']}/{one['metadata']['name']}": one["metadata"]["resourceVersion"] for one in items}
