"""What a server asks meta over HTTP, and how it is refused. Who carries it knows no more of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PATIENCE_SECONDS = 2.0


class MetaRefused(Exception):
    """Meta answered with an error; ``code`` is its name."""

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        super().__init__(f"{code}: {detail}")


@dataclass(frozen=True, slots=True)
class Request:
    """What meta is to be asked."""

    path: str
    body: Mapping[str, Any]
    method: str = "POST"
    patience_s: float = PATIENCE_SECONDS


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is to be asked for so long."""

    seconds: float
