"""Who is master, replica and in sync in a broker group: what meta answers to a broker's heartbeat."""

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
