"""Tables of manifests: those that must be refused, changes that must be, and the samples that must be taken."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tidemill_wire.resources import API_VERSION

HERE = Path(__file__).parent
SAMPLES = HERE.parents[1] / "crds/samples"


@dataclass(frozen=True, slots=True)
class Bad:
    is_a: str
    manifest: dict[str, Any]
    cluster: str
    """What the API server's refusal holds."""
    parser: str | None
    """What the parser's refusal holds; None: it takes the manifest."""


@dataclass(frozen=True, slots=True)
class Change:
    is_a: str
    before: dict[str, Any]
    after: dict[str, Any]
    says: str = ""


def least(kind: str, spec: dict[str, Any] | None = None, name: str = "sample") -> dict[str, Any]:
    """The least manifest of a kind that is taken, with more laid over its spec."""
    base = deepcopy(_table("bad_manifests")["least"][kind])
    return {
        "apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": _laid_over(base, spec or {})
    }  # fmt: skip


def bad_manifests() -> list[Bad]:
    return [
        Bad(
            row["is"],
            least(row["kind"], row.get("spec"), row.get("name", "sample")),
            row["cluster"],
            row.get("parser", row["cluster"]),
        )
        for row in _table("bad_manifests")["bad"]
    ]


def changes(name: str) -> list[Change]:
    """``bad_changes`` or ``good_changes``."""
    return [
        Change(
            row["is"],
            before := least(row["kind"], row.get("from")),
            {**before, "spec": _laid_over(deepcopy(before["spec"]), row["to"])},
            row.get("says", ""),
        )
        for row in _table(name)
    ]


def good_manifests() -> list[dict[str, Any]]:
    return [
        document
        for path in sorted(SAMPLES.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
    ]


def _table(name: str) -> Any:
    return yaml.safe_load((HERE / f"{name}.yaml").read_text())


def _laid_over(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    for key, value in more.items():
        if value is None:
            base.pop(key, None)
        elif isinstance(value, dict) and isinstance(base.get(key), dict):
            _laid_over(base[key], value)
        else:
            base[key] = value
    return base
