"""Who is what in a broker group, as meta decides and brokers obey."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Appointment:
    """Who is what in a broker group, as meta said it last."""

    group: str
    epoch: int
    master: str
    replicas: tuple[str, ...]
    in_sync: tuple[str, ...]
    version: int
