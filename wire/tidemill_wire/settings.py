"""Settings of a service, read from its environment: each is a field of a dataclass, with its type and its default."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tidemill_wire.errors import TidemillError
from tidemill_wire.log_lines import HIDDEN, is_secret

SWITCH = {"true": True, "false": False}


class SettingsError(TidemillError):
    """A setting that cannot be; the text says which, and what can."""


def read_fields(
    kind: type[Any], prefix: str, whole_max: int, environment: Mapping[str, str]
) -> dict[str, Any]:
    """The fields of the dataclass ``kind`` that the environment names, as in TIDEMILL_SEGMENT_BYTES for the prefix
    TIDEMILL_ and the field ``segment_bytes``. Whole numbers are at most ``whole_max``.
    """
    given: dict[str, Any] = {}
    for field in fields(kind):
        name = prefix + field.name.upper()
        if name in environment:
            given[field.name] = _parse(name, environment[name], field.default, whole_max)
    return given


def settings_line(service: str, settings: Any) -> str:
    """All of them, as an event with keys: what a service runs with, whoever set it."""
    values = ((field.name, getattr(settings, field.name)) for field in fields(settings))
    shown = (
        f"{name}={json.dumps(HIDDEN if is_secret(name) and value else value, ensure_ascii=False)}"
        for name, value in values
    )
    return f"settings service={service} {' '.join(shown)}"


def _parse(name: str, text: str, default: object, whole_max: int) -> object:
    if isinstance(default, bool):
        if text.lower() in SWITCH:
            return SWITCH[text.lower()]
        raise SettingsError(f"{name} is {text[:60]!r}: write true or false")
    if isinstance(default, int):
        if text.isascii() and text.isdigit() and 0 < int(text) <= whole_max:
            return int(text)
        raise SettingsError(f"{name} is {text[:60]!r}: write a whole number above zero, without a unit")
    return text
