"""The operator's numbers, for Prometheus. What they are, is ``tidemill_wire.metrics``."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tidemill_wire.metrics.of_others import OPERATOR

PASS_SECONDS = (0.005, 0.02, 0.1, 0.5, 2, 10, 60)


class Metrics:
    """One registry, so that two operators in one process do not share numbers."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str) -> Counter:
            row = OPERATOR[f"tidemill_operator_{name}_total"]
            labels = [label.name for label in row.labels]
            return Counter(row.name.removesuffix("_total"), row.means, labels, registry=registry)

        def gauge(name: str) -> Gauge:
            row = OPERATOR[f"tidemill_operator_{name}"]
            return Gauge(row.name, row.means, [label.name for label in row.labels], registry=registry)

        row = OPERATOR["tidemill_operator_reconcile_seconds"]
        self.passes = counter("reconcile")
        self.pass_seconds = Histogram(
            row.name, row.means, [label.name for label in row.labels], registry=registry, buckets=PASS_SECONDS
        )
        self.depth = gauge("queue_depth")
        self.oldest = gauge("queue_oldest_seconds")
        self.requeues = counter("requeues")
        self.applies = counter("apply")
        self.drift = counter("drift_reverted")
        self.api_requests = counter("kube_requests")
        self.meta_requests = counter("meta_requests")
        self.watched = gauge("watch_last_event_seconds")
        self.objects = gauge("objects")
        self.leader = gauge("leader")

    def page(self) -> bytes:
        return generate_latest(self.registry)
