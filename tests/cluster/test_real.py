"""The cluster of real nodes runs pods, and its nodes can be cut off and come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.images import PYTHON, pack_python
from cluster.programs import wait_until
from cluster.real import READY_SECONDS, RealCluster

pytestmark = pytest.mark.real_cluster

NAMESPACE = "diaries"
DIARIES = f"""
apiVersion: v1
kind: Service
metadata: {{name: diary}}
spec:
  clusterIP: None
  selector: {{app: diary}}
  ports: [{{name: http, port: 8000}}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: diary}}
spec:
  serviceName: diary
  replicas: 2
  podManagementPolicy: Parallel
  selector: {{matchLabels: {{app: diary}}}}
  template:
    metadata: {{labels: {{app: diary}}}}
    spec:
      terminationGracePeriodSeconds: 5
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {{topologyKey: kubernetes.io/hostname, labelSelector: {{matchLabels: {{app: diary}}}}}}
      securityContext:
        runAsUser: 10001
        runAsGroup: 10001
        fsGroup: 10001
        runAsNonRoot: true
        seccompProfile: {{type: RuntimeDefault}}
      containers:
      - name: diary
        image: {PYTHON}
        imagePullPolicy: Never
        command: [python3, -c]
        args:
        - |
          import http.server, os, signal, sys
          signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
          with open("/data/boots", "a") as diary:
              diary.write(os.environ["NODE"] + "\\n")
              os.fsync(diary.fileno())
          os.chdir("/data")
          http.server.ThreadingHTTPServer(("0.0.0.0", 8000), http.server.SimpleHTTPRequestHandler).serve_forever()
        env: [{{name: NODE, valueFrom: {{fieldRef: {{fieldPath: spec.nodeName}}}}}}]
        readinessProbe: {{httpGet: {{path: /boots, port: 8000}}, periodSeconds: 1}}
        resources: {{requests: {{cpu: 20m, memory: 32Mi}}, limits: {{memory: 128Mi}}}}
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {{drop: [ALL]}}
        volumeMounts: [{{name: data, mountPath: /data}}]
  volumeClaimTemplates:
  - metadata: {{name: data}}
    spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}
"""
READ = """
import sys, urllib.request
print(urllib.request.urlopen(f"http://{sys.argv[1]}:8000/boots", timeout=60).read().decode(), end="")
"""


@pytest.fixture
def diaries(real_cluster: RealCluster, tmp_path: Path) -> Iterator[RealCluster]:
    """Two pods on two nodes, each with a volume in which it notes where it was started."""
    real_cluster.import_image(pack_python(tmp_path / "python.tar"))
    real_cluster.ask("create", "namespace", NAMESPACE)
    real_cluster.apply(DIARIES, "-n", NAMESPACE)
    wait_ready_pods(real_cluster, 2)
    yield real_cluster
    real_cluster.ask("delete", "namespace", NAMESPACE, "--timeout=100s")


def wait_ready_pods(cluster: RealCluster, count: int, seconds: float = READY_SECONDS) -> None:
    def holds() -> bool:
        status = cluster.json("get", "statefulset", "diary", "-n", NAMESPACE)["status"]
        return bool(status.get("readyReplicas", 0) == count)

    wait_until(f"{count} pods are ready", holds, seconds)


def boots(cluster: RealCluster, reader: str, of: str) -> list[str]:
    """What a pod's diary says, read by another pod by its name."""
    name = f"{of}.diary.{NAMESPACE}.svc.cluster.local"
    return cluster.ask("exec", "-n", NAMESPACE, reader, "--", "python3", "-c", READ, name).split()


def node_of(cluster: RealCluster, pod: str) -> str:
    return str(cluster.json("get", "pod", pod, "-n", NAMESPACE)["spec"]["nodeName"])


@pytest.mark.timeout(1_800)
def test_pod_comes_back_with_its_data_when_its_node_does_after_a_power_cut(diaries: RealCluster) -> None:
    """They find each other by name, before and after, and nobody but the pods of that node is disturbed."""
    cut, other = node_of(diaries, "diary-0"), node_of(diaries, "diary-1")
    assert cut != other
    assert boots(diaries, "diary-1", of="diary-0") == [cut]
    assert boots(diaries, "diary-0", of="diary-1") == [other]

    diaries.power_cut(cut)
    wait_until("the node is missed", lambda: cut not in ready_nodes(diaries), READY_SECONDS)
    wait_ready_pods(diaries, 1)
    assert boots(diaries, "diary-1", of="diary-1") == [other]

    diaries.power_on(cut)
    diaries.wait_ready(cut)
    wait_ready_pods(diaries, 2)
    assert boots(diaries, "diary-1", of="diary-0") == [cut, cut]
    assert boots(diaries, "diary-0", of="diary-1") == [other]


def ready_nodes(cluster: RealCluster) -> set[str]:
    said = cluster.ask("get", "nodes", "--no-headers")
    return {line.split()[0] for line in said.splitlines() if line.split()[1] == "Ready"}
