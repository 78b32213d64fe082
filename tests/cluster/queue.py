"""A queue on nodes that run pods, brought up by its charts, and traffic through it: what tests with real pods share."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.programs import wait_until
from cluster.real import RealCluster
from samples.scripts import ROOT

CHARTS = ROOT / "charts"
OPERATORS = "tidemill-system"
IMAGE, VERSION, BEFORE = "localhost/tidemill", "0.1.0", "0.0.9"
"""The image has two names, so that one can be upgraded to the other."""
API = "tidemill.dev/v1alpha1"
GROUP = "billing"
HELM_SECONDS = 200.0
ENDS_SECONDS = 400.0
TURN_SECONDS = 600.0
POD: dict[str, Any] = {
    "restartPolicy": "Never",
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "terminationGracePeriodSeconds": 2,
    "volumes": [{"name": "tmp", "emptyDir": {}}],
}
PROGRAM: dict[str, Any] = {
    "name": "program",
    "image": f"{IMAGE}:{VERSION}",
    "env": [{"name": "TIDEMILL_SERVER", "value": "queue-meta:7401"}],
    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # the pod's own
    "securityContext": {"readOnlyRootFilesystem": True},
    "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/flows"]}, "periodSeconds": 1},
}

Object = dict[str, Any]


class Queue:
    """The operator, and a queue called ``queue`` in a namespace of its own."""

    def __init__(self, cluster: RealCluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    # -- charts --------------------------------------------------------------------------------------------------

    def helm(
        self, command: str, release: str, chart: Path, *words: str, values: Object | None = None
    ) -> None:
        """Install or upgrade one of the two charts."""
        namespace = self.namespace if release == "queue" else OPERATORS
        where = ("--namespace", namespace, "--create-namespace")
        done = self.cluster.helm(
            command, release, str(chart), *where, *words, "--values=-",
            stdin=json.dumps(values or {}), seconds=HELM_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def uninstall(self) -> None:
        """The queue first, whose objects the operator lets go."""
        for release, namespace in (("queue", self.namespace), ("tidemill-operator", OPERATORS)):
            where = ("--namespace", namespace, "--ignore-not-found")
            done = self.cluster.helm("uninstall", release, *where, "--wait", seconds=HELM_SECONDS)
            assert done.returncode == 0, done.stderr

    # -- objects -------------------------------------------------------------------------------------------------

    def ask(self, *words: str, seconds: float = 120.0) -> str:
        return self.cluster.ask("-n", self.namespace, *words, seconds=seconds)

    def items(self, kinds: str, *words: str) -> list[Object]:
        found: list[Object] = self.cluster.json("get", kinds, "-n", self.namespace, *words)["items"]
        return found

    def get(self, kind: str, name: str) -> Object:
        found: Object = self.cluster.json("get", kind, name, "-n", self.namespace)
        return found

    def ready(self, kind: str, name: str) -> None:
        self.ask("wait", kind, name, "--for=condition=Ready", "--timeout=180s", seconds=HELM_SECONDS)

    def declare(self, name: str, *others: str) -> float:
        """A subject, a group that consumes it, and others that do; the seconds until all are ready."""
        groups = {name: GROUP, **{f"{name}-{other}": other for other in others}}
        subject: Object = {"subjectRef": {"name": name}}
        items = [
            resource("ConsumerGroup", one, {"groupName": group} | subject) for one, group in groups.items()
        ]
        began = time.monotonic()
        self.apply(resource("Subject", name, {}), *items)
        self.ready("subject", name)
        for one in groups:
            self.ready("consumergroup", one)
        return time.monotonic() - began

    def apply(self, *resources: Object) -> None:
        self.cluster.apply(
            json.dumps({"apiVersion": "v1", "kind": "List", "items": resources}), "-n", self.namespace
        )

    def brokers(self) -> dict[str, str]:
        """Name and uid of the pods of all groups."""
        pods = self.items("pods", "-l", "app.kubernetes.io/component in (broker,delay)")
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}

    def led(self, group: str = "queue-g0") -> Object:
        """What a group's status says of its master; nothing, when it has none."""
        found: Object = self.get("brokergroup", group).get("status", {}).get("master", {})
        return found

    def node_of(self, pod: str) -> str:
        return str(self.get("pod", pod)["spec"]["nodeName"])

    def is_calm(self) -> bool:
        """Every object says that it is done and well."""
        groups = self.items("brokergroups,queueclusters")
        wanted = {"Ready": "True", "Progressing": "False"}
        return all(state(one, kind) == said for one in groups for kind, said in wanted.items())

    def is_rolled(self, before: dict[str, str]) -> bool:
        """Every broker is another pod, and all is calm."""
        now = self.brokers()
        if now.keys() != before.keys() or any(now[name] == before[name] for name in before):
            return False
        return self.is_calm()

    def versions(self) -> dict[str, str]:
        """Of what the operator writes, but for consumer groups: what waits for them is in their status."""
        items = self.items("queueclusters,brokergroups,subjects,statefulsets,configmaps,services")
        return {
            f"{one['kind']}/{one['metadata']['name']}": one["metadata"]["resourceVersion"] for one in items
        }

    # -- pods of programs ----------------------------------------------------------------------------------------

    def begin(self, way: str, subject: str, amount: int, node: str = "", group: str = GROUP) -> str:
        """A pod of a program; its name."""
        name = f"{way}-{subject}" if group == GROUP else f"{way}-{subject}-{group}"
        program = (ROOT / "tests/cluster/traffic.py").read_text()
        container = PROGRAM | {"command": ["python", "-c", program, way, subject, str(amount), group]}
        spec = POD | {"containers": [container]} | ({"nodeName": node} if node else {})
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.cluster.apply(json.dumps(pod), "-n", self.namespace)
        return name

    def said(self, pod: str) -> Object:
        """What a program has seen, when it has ended."""

        def ended() -> bool:
            return self.get("pod", pod)["status"]["phase"] in ("Succeeded", "Failed")

        wait_until(f"{pod} ends", ended, ENDS_SECONDS)
        text = self.ask("logs", pod)
        try:
            found: Object = json.loads(text.splitlines()[-1])
        except (ValueError, IndexError):
            pytest.fail(f"{pod} failed: {text[-2000:]}")
        return found

    @contextmanager
    def traffic(self, subject: str, a_second: int, node: str = "") -> Iterator[Flow]:
        """So many messages a second, all the while; who leaves learns what became of them."""
        self.declare(subject)
        consumer = self.begin("consume", subject, 0, node)
        producer = self.begin("stream", subject, a_second, node)
        for pod in (consumer, producer):
            self.ask("wait", f"pod/{pod}", "--for=condition=Ready", "--timeout=60s")
        flow = Flow()
        try:
            yield flow
        except BaseException:
            self.ask(
                "delete", "pod", consumer, producer, "--wait=false"
            )  # they would go on beside the next test
            raise
        self.ask("exec", producer, "--", "touch", "/tmp/end")
        flow.sent, flow.seen = self.said(producer), self.said(consumer)


@dataclass
class Flow:
    """What the two programs saw, known when they have ended."""

    sent: Object | None = None
    seen: Object | None = None

    @property
    def is_whole(self) -> bool:
        """All that was sent was consumed."""
        assert self.sent is not None
        assert self.seen is not None
        return bool(self.sent["sent"] == self.seen["seen"] == self.seen["wanted"])

    @property
    def stall_seconds(self) -> float:
        """The longest time in which the producer had no answer at all."""
        assert self.sent is not None
        return float(self.sent["longest_gap"])

    @property
    def wait_seconds(self) -> float:
        """The longest time that one message waited for its own answer, while others had theirs."""
        assert self.sent is not None
        return float(self.sent["longest_send"])

    def __str__(self) -> str:
        assert self.sent is not None
        assert self.seen is not None
        rate = self.sent["sent"] / self.sent["seconds"]
        sent, seen = self.sent, self.seen
        return (
            f"{sent['sent']:,} sent at {rate:.0f}/s, {seen['seen']:,} of {seen['wanted']:,} seen, "
            f"{seen['again']} again; no answer for {self.stall_seconds:.2f} s at most, "
            f"no send longer than {self.wait_seconds:.2f} s "
            f"(stalls {sent['stalls']}; {sent['slow']} slow sends, as {sent['slowest']})"
        )


def resource(kind: str, name: str, spec: Object) -> Object:
    """One of our kinds, of the queue."""
    spec = {"clusterRef": {"name": "queue"}} | spec
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def state(resource: Object, kind: str) -> str:
    return str(condition(resource, kind).get("status", "Unknown"))


def condition(resource: Object, kind: str) -> Object:
    found = resource.get("status", {}).get("conditions", ())
    return next((one for one in found if one["type"] == kind), {})
