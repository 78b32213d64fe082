"""``docs/metrics.md``, made of the table."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill_wire.limits import METRIC_GROUPS_MAX, METRIC_MISTAKES_MAX, METRIC_SUBJECTS_MAX
from tidemill_wire.metrics.of_brokers import BROKERS
from tidemill_wire.metrics.of_canaries import CANARY
from tidemill_wire.metrics.of_clients import CLIENT, WORKER
from tidemill_wire.metrics.of_others import DELAYS, META, OPERATOR
from tidemill_wire.metrics.words import OTHER, Label, Table

PARTS = (
    ("Brokers", "At `/metrics` of the HTTP port; `tidemill up` has those of meta and delay there, too.", BROKERS),
    ("Delay services", "At `/metrics` of their HTTP port.", DELAYS),
    ("Meta", "At `/metrics` of its port, of each replica.", META),
    ("The operator", "At `/metrics` of the port of its probes.", OPERATOR),
    ("Canaries", "At `/metrics` of `--metrics-port`, or of `--canary-port` of `tidemill up`.", CANARY),
    ("Clients", "`mq.statistics()`, and as text `mq.statistics().prometheus()`.", CLIENT),
    ("Workers", "`worker.statistics()`, and with `--metrics-port` at `/metrics`.", WORKER),
)  # fmt: skip
EVERYTHING: Table = {name: metric for _, _, table in PARTS for name, metric in table.items()}

HEAD = (
    "# Metrics",
    "",
    "Every number that a part of tidemill tells Prometheus, made by `make charts` of `wire/tidemill_wire/metrics`.",
    "A page can say nothing that is not in it; what the numbers are good for is in [monitoring.md](monitoring.md).",
    "",
    "A counter grows until its process ends, or its part in a broker group.",
    "Then it begins at 0, which `rate()` and `increase()` know.",
    "A histogram has the series `_bucket`, `_sum` and `_count`; its bounds double from one to the next.",
    "Counting is done once a turn, a batch or a delivery, never once a message.",
    "",
    "Labels are bounded.",
    f"Of subjects {METRIC_SUBJECTS_MAX} have a name, of groups {METRIC_GROUPS_MAX}, of mistakes {METRIC_MISTAKES_MAX}.",
    f"The rest is `{OTHER}`, where counters are added up by their growth: who gets or loses a name makes no jump.",
    "The heavier half of the names is given anew with each scrape.",
    "The other half stays with whoever had one and is still among twice as many.",
    "",
)


def reference() -> str:
    """The page."""
    return "\n".join([*HEAD, *(_part(*part) for part in PARTS), *_labels()])


def _part(name: str, where: str, table: Table) -> str:
    rows = ["| metric | type | unit | labels | says |", "|---|---|---|---|---|"]
    for metric in table.values():
        labels = ", ".join(f"`{label.name}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {metric.means} |")
    return "\n".join([f"## {name}", "", where, "", *rows, ""])


def _labels() -> Iterator[str]:
    yield "## Labels"
    yield ""
    yield "| label | of | is | at most |"
    yield "|---|---|---|---|"
    places: dict[Label, list[str]] = {}
    for metric in EVERYTHING.values():
        for label in metric.labels:
            places.setdefault(label, []).append(metric.name)
    for label, names in places.items():
        of = f"`{names[0]}`" if len(names) == 1 else f"`{names[0]}` and {len(names) - 1} more"
        yield f"| `{label.name}` | {of} | {label.means} | {label.bound} |"
    yield ""
