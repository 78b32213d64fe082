"""The operator's numbers, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

PASS_SECONDS = (0.005, 0.02, 0.1, 0.5, 2, 10, 60)


class Metrics:
    """One registry, so that two operators in one process do not share numbers."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, means: str, *labels: str) -> Counter:
            return Counter(f"tidemill_operator_{name}", means, labels, registry=registry)

        def gauge(name: str, means: str, *labels: str) -> Gauge:
            return Gauge(f"tidemill_operator_{name}", means, labels, registry=registry)

        self.passes = counter("reconcile", "Passes over objects.", "kind", "result")
        self.pass_seconds = Histogram(
            "tidemill_operator_reconcile_seconds", "How long a pass took.", ("kind",),
            registry=registry, buckets=PASS_SECONDS,
        )  # fmt: skip
        self.depth = gauge("queue_depth", "Objects that wait for a pass.")
        self.oldest = gauge("queue_oldest_seconds", "For how long the one that waits longest does.")
        self.requeues = counter("requeues", "Passes that are repeated, by why.", "reason")
        self.applies = counter("apply", "Server-side applies, by what became of them.", "kind", "outcome")
        self.drift = counter("drift_reverted", "Changes past an object that were changed back.", "kind")
        self.api_requests = counter("kube_requests", "Requests to the API server.", "verb", "code")
        self.meta_requests = counter("meta_requests", "Requests to meta.", "operation", "code")
        self.watched = gauge(
            "watch_last_event_seconds", "When the watch of a kind last said something.", "resource"
        )
        self.objects = gauge("objects", "Objects that are looked after.", "kind")
        self.leader = gauge("leader", "1: this replica holds the lease.")

    def page(self) -> bytes:
        return generate_latest(self.registry)
