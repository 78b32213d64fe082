"""What meta keeps of a pod that is gone; see ``values.py`` for what every kind has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Vanished:
    """That a pod is gone, and its consumers with it."""

    KIND: ClassVar[str] = "vanished"
    pod: str
    version: int = 0

    @property
    def key(self) -> str:
        return self.pod

    def to_map(self) -> dict[str, Any]:
        return {"pod": self.pod}

    @classmethod
    def from_map(cls, key: str, version: int, body: Mapping[str, Any]) -> Vanished:
        assert body["pod"] == key
        return cls(key, version)
