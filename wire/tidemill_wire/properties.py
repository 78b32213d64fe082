"""Properties for people and for JSON: a map of msgpack, of which nobody knows what a program put into it."""

from __future__ import annotations

import base64
import math
from typing import Any, cast

import msgpack


def shown_properties(packed: bytes) -> dict[str, Any] | None:
    """As JSON can say them. ``None`` for bytes that are no map: nobody looked at them when they were stored."""
    if not packed:
        return {}
    try:
        value = _plain(cast("object", msgpack.unpackb(packed)))
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _plain(value: object) -> object:
    """As JSON can say it."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case list():
            return [_plain(item) for item in cast("list[object]", value)]
        case dict():
            return {str(name): _plain(item) for name, item in cast("dict[object, object]", value).items()}
        case _:
            return str(value)
