"""A namespace of a Kubernetes for tests, and what people do in it with kubectl."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from e2e.metas import Meta
from e2e.operators import METAS, wait_until
from tidemill_operator import marks

CLUSTER = "prod"
API = "tidemill.dev/v1alpha1"


class Shop:
    """A namespace with a QueueCluster whose meta is a process of this machine."""

    def __init__(
        self, cluster: Any, namespace: str, endpoint: str, security: Mapping[str, Any] | None = None
    ) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._security = {"security": dict(security)} if security else {}
        self.point(endpoint)

    def point(self, endpoint: str) -> None:
        """As the planner of clusters does where meta runs in pods; it is paused, for there are none."""
        spec = {"meta": {"storage": {"size": "1Gi"}}, **self._security}
        self.apply("QueueCluster", CLUSTER, spec, annotations={marks.PAUSED: "true"})
        with METAS.open("a") as places:  # of several lines the last one counts
            places.write(f"{self.namespace}/{CLUSTER} {endpoint}\n")
        said = json.dumps({"status": {"meta": {"endpoint": endpoint}}})
        self.ask("patch", "queuecluster", CLUSTER, "--subresource=status", "--type=merge", "-p", said)

    def ask(self, *words: str, stdin: str | None = None) -> str:
        done = self.cluster.kubectl("-n", self.namespace, *words, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return str(done.stdout)

    def manifest(
        self, kind: str, name: str, spec: dict[str, Any] | None = None, **metadata: Any
    ) -> dict[str, Any]:
        reference = {} if kind == "QueueCluster" else {"clusterRef": {"name": CLUSTER}}
        return {
            "apiVersion": API, "kind": kind, "metadata": {"name": name, "namespace": self.namespace, **metadata},
            "spec": {**reference, **(spec or {})},
        }  # fmt: skip

    def apply(self, kind: str, name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> None:
        self.apply_all([self.manifest(kind, name, spec, **metadata)])

    def apply_all(self, manifests: list[dict[str, Any]]) -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": manifests}
        self.ask("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(items))

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        done = self.cluster.kubectl(
            "-n", self.namespace, "get", kind, name, "-o", "json", "--ignore-not-found"
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() else None

    def condition(self, kind: str, name: str, condition: str = "Ready") -> tuple[str, str]:
        found = self.get(kind, name)
        said = marks.condition_of(found, condition) if found is not None else {}
        return said.get("status", ""), said.get("reason", "")

    def wait(self, kind: str, name: str, status: str, reason: str, condition: str = "Ready") -> None:
        last: list[tuple[str, str]] = [("", "")]

        def holds() -> bool:
            last[0] = self.condition(kind, name, condition)
            return last[0] == (status, reason)

        try:
            wait_until(f"{condition} of {kind} {name} is {status} {reason}", holds)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {last[0]}") from None

    def wait_gone(self, kind: str, name: str) -> None:
        wait_until(f"{kind} {name} is gone", lambda: self.get(kind, name) is None)

    def annotate(self, kind: str, name: str, text: str) -> None:
        self.ask("annotate", kind, name, "--overwrite", text)

    def events(self) -> set[tuple[str, str]]:
        listed = json.loads(self.ask("get", "events.events.k8s.io", "-o", "json"))["items"]
        return {(one["regarding"]["name"], one["reason"]) for one in listed}


def seconds_of(meta: Meta) -> int | None:
    status, row = meta.ask("GET", "/v1/subjects/orders")
    return (
        row["declared"]["spec"]["retention"].get("messageSeconds")
        if status == 200 and row["declared"]
        else None
    )


def ready_in(shop: Shop) -> int:
    path = "{range .items[*]}{.status.conditions[?(@.type=='Ready')].status}{'\\n'}{end}"
    return shop.ask("get", "subject", "-o", f"jsonpath={path}").split().count("True")


def request_of(shop: Shop) -> str | None:
    status = (shop.get("consumergroup", "mailer") or {}).get("status", {})
    return status.get("lastReset", {}).get("requestId")
