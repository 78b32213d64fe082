"""Tables of manifests: those that must be refused, changes that must be, and the samples that must be taken."""

from __future__ import annotations

from collections.abc import Iterator
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


ODD_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 7, 2**31, 2**63 - 1, 2**63, 1.5, "", "x", "a b", "a\nb", "%a", "a-b", "Über",
    "x" * 40, "x" * 300, "1", "500m", "1Gi", "64Mi", "1k", "1K", "-1Gi", "2026-09-01T00:00:00Z", "2026-13-01T00:00:00Z",
    "2026-09-01 00:00:00Z", "@daily", "0 0 31 2 *", "order.*", "*",
    [], {}, ["a"], ["a", "a"], [1], [3, 2], {"name": "a"}, {"a": "b"}, {"a b": "c"},
)  # fmt: skip


def odd_manifests() -> Iterator[dict[str, Any]]:
    """The samples, each with one field of its spec set to something else, in every place; most are wrong."""
    for number, manifest in enumerate(good_manifests()):
        for index, path in enumerate(_places(manifest.get("spec", {}))):
            for which, value in enumerate(ODD_VALUES):
                odd = deepcopy(manifest)
                holder = odd["spec"]
                for step in path[:-1]:
                    holder = holder[step]
                holder[path[-1]] = value
                yield {**odd, "metadata": {"name": f"odd{number}x{index}x{which}"}}


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in inside:
        yield (*path, step)
        yield from _places(inner, (*path, step))


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
