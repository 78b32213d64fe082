"""The numbers of a replica as Prometheus text."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill_meta.doors.api import Api
from tidemill_meta.doors.replica import Replica
from tidemill_meta.doors.watch import Watch

GAUGES = {
    "revision": "Commits to the store so far, by all replicas",
    "subjects": "Subjects there are",
    "groups": "Consumer groups there are",
    "broker_groups": "Broker groups there are",
    "broker_groups_without_master": "Broker groups that nobody leads now",
    "brokers": "Brokers that are registered",
    "brokers_alive": "Brokers that are not dead",
    "clients": "Clients heard of late, by any replica",
}


def render_metrics(replica: Replica, watch: Watch, api: Api) -> bytes:
    """The metrics page."""
    lines: list[str] = []
    for name, kind, text, value in _numbers(replica, watch, api):
        lines += [
            f"# HELP tidemill_meta_{name} {text}",
            f"# TYPE tidemill_meta_{name} {kind}",
            f"tidemill_meta_{name} {value}",
        ]
    return ("\n".join(lines) + "\n").encode()


def _numbers(replica: Replica, watch: Watch, api: Api) -> Iterator[tuple[str, str, str, int]]:
    found = replica.meta.statistics(replica.clock.now_ms())
    for name, text in GAUGES.items():
        yield name, "gauge", text, found[name]
    yield (
        "fresh",
        "gauge",
        "1 while this replica knows what the others do",
        int(replica.meta.senses.fresh(replica.clock.now_ms())),
    )
    yield "watchers", "gauge", "Watch streams", len(watch)
    yield "watch_lines_total", "counter", "Lines written to watch streams", watch.lines
    yield "requests_total", "counter", "Requests that were read", api.requests
    yield "commits_total", "counter", "Commits of this replica", replica.commits
    yield "store_failures_total", "counter", "Times the database did not answer", replica.failures
