"""Grafana's dashboards, out of the panels that ``charts/dashboards.yaml`` describes. ``make charts`` writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

CHOSEN = 'namespace=~"$namespace", instance=~"$instance"'
"""What MINE is in a query. Without Kubernetes there is no namespace, and all of them is every one and none."""
SOURCE = {"type": "prometheus", "uid": "$source"}
WIDTH, HEIGHT, IN_A_ROW = 24, 8, 3
SCHEMA_VERSION = 39
GROUP = 'label_values(tidemill_group_lag_messages{{{chosen}, subject=~"$subject"}}, group)'
OFFERED = {
    "namespace": "label_values({first}, namespace)",
    "instance": "label_values({first}, instance)",
    "subject": "label_values(tidemill_subject_kept_messages{{{chosen}}}, subject)",
    "group": GROUP,
}


def panels_of(one: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All panels of a dashboard."""
    for row in one["rows"]:
        yield from row["panels"]


def dashboard(one: Mapping[str, Any]) -> dict[str, Any]:
    """As Grafana reads it."""
    first = next(iter(next(panels_of(one))["queries"].values()))
    metric = first[first.index("tidemill_") :].partition("{")[0]
    names = ["namespace", "instance", *one.get("variables", [])]
    return {
        "uid": f"tidemill-{one['name']}",
        "title": one["title"],
        "description": one["says"],
        "tags": ["tidemill"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "links": [
            {"type": "dashboards", "tags": ["tidemill"], "title": "Tidemill", "asDropdown": True, "keepTime": True}
        ],
        "templating": {"list": [_source(), *(_variable(name, metric) for name in names)]},
        "panels": list(_laid_out(one["rows"])),
    }  # fmt: skip


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(name: str, metric: str) -> dict[str, Any]:
    query = OFFERED[name].format(first=metric, chosen=CHOSEN)
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
        "sort": 1,
    }


def _laid_out(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows with their headings, panels side by side."""
    number, top = 1, 0
    for row in rows:
        place = {"h": 1, "w": WIDTH, "x": 0, "y": top}
        yield {"id": number, "type": "row", "title": row["title"], "gridPos": place, "panels": []}
        number, top = number + 1, top + 1
        wide = WIDTH // IN_A_ROW
        for index, panel in enumerate(row["panels"]):
            line, column = divmod(index, IN_A_ROW)
            yield _panel(
                panel, number, {"h": HEIGHT, "w": wide, "x": column * wide, "y": top + line * HEIGHT}
            )
            number += 1
        top += -(-len(row["panels"]) // IN_A_ROW) * HEIGHT


def _panel(panel: Mapping[str, Any], number: int, place: Mapping[str, int]) -> dict[str, Any]:
    kind = panel.get("kind", "timeseries")
    defaults: dict[str, Any] = {"unit": panel["unit"], "min": 0}
    if "bad" in panel:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel["bad"]}]
        defaults |= {"thresholds": {"mode": "absolute", "steps": steps}, "color": {"mode": "thresholds"}}
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": SOURCE,
            "expr": expression(query),
            "legendFormat": legend,
            **({"instant": True, "format": "table"} if kind == "table" else {}),
        }
        for index, (legend, query) in enumerate(panel["queries"].items())
    ]
    return {
        "id": number,
        "type": kind,
        "title": panel["title"],
        "datasource": SOURCE,
        "gridPos": dict(place),
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": targets,
    }


def expression(query: str) -> str:
    """A query as Grafana sends it, once it has put in its variables."""
    return query.replace("MINE", CHOSEN)
