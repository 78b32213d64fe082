"""What may live in the same process as a lone broker, behind the same HTTP port: the broker knows no more of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from tidemill_broker.doors.service import Service
from tidemill_host.permits import Permits
from tidemill_host.refusals import HttpRefused
from tidemill_host.routing import Route
from tidemill_host.whereabouts import Whereabouts
from tidemill_wire.commands import Command, Sent
from tidemill_wire.granted import Granted
from tidemill_wire.timing import Cancel, ListTimers, Reschedule, Show

AboutTimers: TypeAlias = Cancel | Reschedule | Show | ListTimers


class Later(Protocol):
    """Who keeps messages until they are due, and knows of those that wait; ``WireError`` or ``HttpRefused`` when it
    does not.
    """

    async def take(self, batch: bytearray) -> Sent:
        """Keep a batch."""
        ...

    async def groups(self) -> list[str]:
        """All delay groups, one at least: nobody else knows which of them has a message."""
        ...

    async def ask(self, group: str, question: AboutTimers) -> Command:
        """The answer of one of them."""
        ...


@dataclass(slots=True)
class House(Whereabouts):
    """What a broker and whoever lives beside it have in common."""

    grants: dict[str, Granted] = field(default_factory=dict[str, Granted])
    """What manifests grant, for whoever keeps such."""


class Nobody:
    """Of a broker that knows no delay service."""

    async def take(self, batch: bytearray) -> Sent:
        """It is refused."""
        raise no_delay_service()

    async def groups(self) -> list[str]:
        """It is refused."""
        raise no_delay_service()

    async def ask(self, group: str, question: AboutTimers) -> Command:
        """It is refused."""
        raise no_delay_service()


def no_delay_service() -> HttpRefused:
    """There is none, or none that can be reached."""
    return HttpRefused(
        503, "no_delay_service", "no delay service is there to take messages for later",
        "wait a second and try again; `tidemill up` runs one beside a broker that is alone",
    )  # fmt: skip


class Neighbour(Protocol):
    """Another service. What it answers at a path goes before what the broker answers there."""

    def routes(self, service: Service, brokers: Callable[[], dict[str, Any]]) -> Iterable[Route]:
        """Its paths; ``brokers`` is what the broker answers at /v1/routes."""
        ...

    @property
    def permits(self) -> Permits:
        """What its paths need."""
        ...

    def page(self, page: dict[str, Any]) -> dict[str, Any]:
        """The description of the HTTP port, with its own paths."""
        ...

    def metrics(self) -> bytes:
        """What goes below the broker's numbers."""
        ...

    @property
    def later(self) -> Later:
        """Who keeps messages until they are due."""
        ...

    def opened(self, ports: tuple[int, int]) -> None:
        """The broker serves, at this data port and HTTP port."""
        ...

    async def keep(self) -> None:
        """Work until it is cancelled: from before the broker serves until after it has drained."""
        ...
