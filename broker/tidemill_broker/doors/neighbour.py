"""What may live in the same process as a lone broker, behind the same HTTP port: the broker knows no more of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeAlias

from tidemill_broker.doors.service import Service
from tidemill_host.routing import Route
from tidemill_wire.commands import Sent

Later: TypeAlias = Callable[[bytearray], Awaitable[Sent]]
"""Keeps a batch until its messages are due; ``WireError`` or ``HttpRefused`` when it does not."""


class Neighbour(Protocol):
    """Another service. What it answers at a path goes before what the broker answers there."""

    def routes(self, service: Service, brokers: Callable[[], dict[str, Any]]) -> Iterable[Route]:
        """Its paths; ``brokers`` is what the broker answers at /v1/routes."""
        ...

    def page(self, page: dict[str, Any]) -> dict[str, Any]:
        """The description of the HTTP port, with its own paths."""
        ...

    def metrics(self) -> bytes:
        """What goes below the broker's numbers."""
        ...

    async def later(self, batch: bytearray) -> Sent:
        """Keep a batch until its messages are due."""
        ...

    def opened(self, ports: tuple[int, int]) -> None:
        """The broker serves, at this data port and HTTP port."""
        ...

    async def keep(self) -> None:
        """Work until it is cancelled: from before the broker serves until after it has drained."""
        ...
