"""What is known of a metric, and of a label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tidemill_wire.limits import (
    METRIC_GROUPS_MAX,
    METRIC_MISTAKES_MAX,
    METRIC_QUOTAS_MAX,
    METRIC_SUBJECTS_MAX,
)

Kind = Literal["counter", "gauge", "histogram"]
OTHER = "other"
"""The label of all that is not named."""


@dataclass(frozen=True, slots=True)
class Label:
    """What tells series of one metric apart, and of how many values it is."""

    name: str
    means: str
    bound: str


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table."""

    name: str
    kind: Kind
    unit: str
    means: str
    labels: tuple[Label, ...] = ()

    def __post_init__(self) -> None:
        assert self.name.endswith("_total") == (self.kind == "counter"), self.name
        assert not self.means.endswith("."), self.name


Table = Mapping[str, Metric]


def table_of(*rows: Iterable[Metric]) -> Table:
    """Rows by their names; none twice."""
    found: dict[str, Metric] = {}
    for metric in (metric for some in rows for metric in some):
        assert metric.name not in found, metric.name
        found[metric.name] = metric
    return found


def counter(name: str, unit: str, means: str, *labels: Label) -> Metric:
    """Something that only grows, until its process ends."""
    return Metric(name, "counter", unit, means, labels)


def gauge(name: str, unit: str, means: str, *labels: Label) -> Metric:
    """Something that is as it is now."""
    return Metric(name, "gauge", unit, means, labels)


def histogram(name: str, unit: str, means: str, *labels: Label) -> Metric:
    """How often something was at most so large."""
    return Metric(name, "histogram", unit, means, labels)


def named(prefix: str, rows: Iterable[Metric]) -> list[Metric]:
    """The same of a service whose names begin otherwise."""
    return [replace(row, name=f"{prefix}_{row.name}") for row in rows]


LOG = Label("log", "`message` or `action`", "2")
REASON = Label("reason", "a name in the [table of errors](protocol.md#errors)", "rows of that table")
SUBJECT = Label(
    "subject",
    "a subject's partition on this broker, as `order.paid` or, when it was expanded, `order.paid#3`",
    f"the {METRIC_SUBJECTS_MAX} with most traffic, and `{OTHER}`",
)
OF_GROUP = Label("subject", "the subject's partition", "as `group`: they are named together")
GROUP = Label(
    "group",
    "a consumer group",
    f"the {METRIC_GROUPS_MAX} that are paused, have dead letters, lag or most traffic, in that order, and `{OTHER}`",
)
FINGERPRINT = Label(
    "fingerprint",
    "of a mistake, as `tidemill dead` shows it",
    f"the {METRIC_MISTAKES_MAX} that buried most, and `{OTHER}`",
)
ERROR = Label(
    "error", "the type of the exception, cut at 64 characters; empty without one", "as `fingerprint`"
)
QUOTA = Label(
    "quota",
    "whose was used up: `subject order.paid`, or who sends, as `token:shop`",
    f"the {METRIC_QUOTAS_MAX} that were used up most often, and `{OTHER}`",
)
LEVEL = Label("level", "which attempt comes next, from `2`; `12` is that one and all that follow", "11")
ROLE = Label("role", "`fenced`, `slave` or `master`", "3")
SLAVE = Label("slave", "a replica of the broker group", "replicas of one group")
BROKER_GROUP = Label(
    "group", "a broker group or delay group", f"{METRIC_GROUPS_MAX} groups, in the order of their names"
)
