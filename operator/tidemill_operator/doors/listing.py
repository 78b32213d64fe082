"""What a link to a meta remembers of what it was told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Rows = dict[str, Any]


@dataclass(slots=True)
class Listing:
    """What meta said last of all its subjects, or of all its groups, by the path of each."""

    path: str
    name: Callable[[Mapping[str, Any]], str]
    rows: Rows = field(default_factory=dict[str, Any])
    began_s: float = -1.0
    ended_s: float = 0.0
    took_s: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
