"""What the API server makes of a manifest before anybody sees it: defaults where something is absent, nothing unknown.

``tests/cluster/test_crds.py`` holds it against a real one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from tidemill_operator.crds.definitions import schema
from tidemill_operator.crds.kinds import FACES
from tidemill_wire.resources import KINDS


def schema_of(kind: str) -> dict[str, Any]:
    return schema(KINDS[kind], FACES[kind])


def as_stored(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest of one of our kinds, as it is given back. It has nothing unknown."""
    stored = deepcopy(dict(manifest))
    _set_defaults(schema_of(manifest["kind"]), stored)
    return stored


def not_kept(kind: str, part: str, value: Mapping[str, Any]) -> list[str]:
    """Paths in a ``spec`` or ``status`` that the API server would drop: who writes them writes them for ever."""
    return list(_unknown(schema_of(kind)["properties"][part], value, part))


def _set_defaults(described: Mapping[str, Any], value: Any) -> None:
    if isinstance(value, dict):
        for name, inner in described.get("properties", {}).items():
            if value.get(name) is None and "default" in inner:
                value[name] = deepcopy(inner["default"])
            _set_defaults(inner, value.get(name))
    elif isinstance(value, list):
        for one in value:
            _set_defaults(described.get("items", {}), one)


def _unknown(described: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Mapping) and "properties" in described:
        for name, inner in value.items():
            known = described["properties"].get(name)
            if known is None:
                yield f"{path}.{name}"
            else:
                yield from _unknown(known, inner, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _unknown(described.get("items", {}), one, f"{path}[]")
