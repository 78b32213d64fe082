"""What the API server makes of a manifest before anybody sees it: defaults where something is absent."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, cast

from tidemill_operator.crds.definitions import schema
from tidemill_operator.crds.kinds import FACES
from tidemill_wire.resources import KINDS


def as_stored(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest of one of our kinds as the API server would give it back; for planners and their tests."""
    name, stored = manifest["kind"], deepcopy(dict(manifest))
    _set_defaults(schema(KINDS[name], FACES[name]), stored)
    return stored


def _set_defaults(described: Mapping[str, Any], value: object) -> None:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        for name, inner in described.get("properties", {}).items():
            if fields.get(name) is None and "default" in inner:
                fields[name] = deepcopy(inner["default"])
            _set_defaults(inner, fields.get(name))
    elif isinstance(value, list):
        for one in cast("list[object]", value):
            _set_defaults(described.get("items", {}), one)
