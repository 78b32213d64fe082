"""The cluster of played nodes is a Kubernetes: what tests and the operator lean on is there, and real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.build import programs, version
from cluster.kwok import PACKAGES, KwokCluster
from cluster.programs import beginning, wait_until

pytestmark = pytest.mark.cluster

PAIR = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: pair}
spec:
  serviceName: pair
  replicas: 2
  selector: {matchLabels: {app: pair}}
  template:
    metadata: {labels: {app: pair}}
    spec:
      containers:
      - {name: pair, image: nobody/looks, volumeMounts: [{name: data, mountPath: /data}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""

BOX = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boxes.tests.tidemill.dev}
spec:
  group: tests.tidemill.dev
  scope: Namespaced
  names: {plural: boxes, singular: box, kind: Box}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer}}
            x-kubernetes-validations:
            - {rule: "self.size >= oldSelf.size", message: "a box does not shrink: make another one"}
"""


def wait_for(what: str, cluster: KwokCluster, *words: str, seconds: float = 60.0) -> None:
    """A `kubectl wait`, which begins before there is anything to wait for."""
    wait_until(what, lambda: cluster.kubectl("wait", "--timeout=5s", *words).returncode == 0, seconds)


def a_pair(cluster: KwokCluster, namespace: str) -> None:
    """The StatefulSet, until both of its pods are ready."""
    cluster.apply(PAIR, "-n", namespace)
    ready = "--for=jsonpath={.status.readyReplicas}=2"
    wait_for("both are ready", cluster, "-n", namespace, "statefulset/pair", ready)


def test_server_says_the_version_that_is_pinned(cluster: KwokCluster) -> None:
    said = cluster.json("version")

    assert (
        said["serverVersion"]["gitVersion"]
        == said["clientVersion"]["gitVersion"]
        == version("k8s.io/kubernetes")
    )


def test_stateful_set_gets_its_pods_and_their_volumes(cluster: KwokCluster, namespace: str) -> None:
    a_pair(cluster, namespace)

    claims = cluster.json("get", "pvc", "-n", namespace)["items"]
    volumes = {claim["metadata"]["name"]: claim["spec"]["volumeName"] for claim in claims}
    assert sorted(volumes) == ["data-pair-0", "data-pair-1"]
    nodes = cluster.json("get", "pods", "-n", namespace)["items"]
    for pod in nodes:
        [path] = cluster.json("get", "pv", volumes[f"data-{pod['metadata']['name']}"])["spec"][
            "nodeAffinity"
        ]["required"]["nodeSelectorTerms"]
        assert path["matchExpressions"][0]["values"] == [pod["spec"]["nodeName"]]


def test_claim_that_asks_for_more_gets_it(cluster: KwokCluster, namespace: str) -> None:
    a_pair(cluster, namespace)

    wanted = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
    cluster.ask("patch", "pvc", "-n", namespace, "data-pair-0", "--patch", json.dumps(wanted))

    wait_for(
        "it has it",
        cluster,
        "-n",
        namespace,
        "pvc/data-pair-0",
        "--for=jsonpath={.status.capacity.storage}=3Gi",
    )


def test_what_an_owner_owned_goes_with_it(cluster: KwokCluster, namespace: str) -> None:
    owner = json.loads(cluster.ask("create", "configmap", "owner", "-n", namespace, "-o", "json"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    owned = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "owned", "ownerReferences": [reference]},
    }
    cluster.apply(json.dumps(owned), "-n", namespace)

    cluster.ask("delete", "configmap", "owner", "-n", namespace)

    wait_for("it is gone", cluster, "-n", namespace, "--for=delete", "secret/owned")


def test_field_of_another_manager_is_not_taken_without_force(cluster: KwokCluster, namespace: str) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings"},
        "data": {"level": "1"},
    }
    cluster.apply(json.dumps(manifest), "-n", namespace, "--field-manager=first")

    words = ("apply", "--server-side", "-n", namespace, "--field-manager=second", "-f", "-")
    other = json.dumps(manifest | {"data": {"level": "2"}})
    refused = cluster.kubectl(*words, stdin=other)

    assert refused.returncode != 0
    assert 'conflict with "first": .data.level' in refused.stderr
    cluster.ask(*words, "--force-conflicts", stdin=other)
    assert cluster.json("get", "configmap", "settings", "-n", namespace)["data"] == {"level": "2"}


def test_rule_of_a_definition_refuses_in_its_own_words(cluster: KwokCluster, namespace: str) -> None:
    cluster.apply(BOX)
    wait_for("it is served", cluster, "--for=condition=Established", "crd/boxes.tests.tidemill.dev")
    box = {
        "apiVersion": "tests.tidemill.dev/v1",
        "kind": "Box",
        "metadata": {"name": "b"},
        "spec": {"size": 2},
    }
    cluster.apply(json.dumps(box), "-n", namespace)

    refused = cluster.kubectl("apply", "--server-side", "-n", namespace, "-f", "-", stdin=json.dumps(
        box | {"spec": {"size": 1}}
    ))  # fmt: skip

    assert refused.returncode != 0
    assert "a box does not shrink: make another one" in refused.stderr


def test_helm_speaks_to_the_cluster(cluster: KwokCluster, namespace: str) -> None:
    listed = cluster.helm("list", "-n", namespace, "-o", "json")

    assert (listed.returncode, json.loads(listed.stdout)) == (0, [])


OWNER = """
import sys
from pathlib import Path
from cluster.kwok import KwokCluster

KwokCluster(Path(sys.argv[1]), Path(sys.argv[2]), nodes=1).start()
print("up", flush=True)
sys.stdin.read()
"""


def test_two_clusters_stand_side_by_side_and_end_with_whoever_began_them(
    cluster: KwokCluster, tmp_path: Path
) -> None:
    """However that ends. The second one is another process's, which is killed."""
    folder = tmp_path / "second"
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, folder, programs()], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": PACKAGES},
    ) as owner:  # fmt: skip
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"up\n"
        assert len(cluster.json("get", "nodes")["items"]) == 3
        began = [path.read_text().split() for path in (folder / "processes").iterdir()]
        assert len(began) == 6
        assert all(beginning(int(pid)) == tick for pid, tick in began)
        owner.kill()

    wait_until("all have ended", lambda: not any(beginning(int(pid)) == tick for pid, tick in began), 10.0)
