"""A peer as a server sees it, whatever it is, and what a server has seen."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from tidemill_host.machine import Send


@dataclass(slots=True)
class Statistics:
    """What the data port has seen; the metrics page is made of it."""

    connections_opened: int = 0
    frames_received: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    cold_reads: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])


class Connected(Protocol):
    """A peer as the server sees it: a connection, or something within the process (``local.py``)."""

    @property
    def pending(self) -> int: ...

    def send(self, send: Send) -> None: ...

    def refuse(self, reason: str, detail: str) -> None: ...

    def goodbye(self, reason: str) -> None: ...

    def abort(self) -> None: ...

    def check(self, now: float) -> None: ...

    def judge_again(self) -> None: ...
