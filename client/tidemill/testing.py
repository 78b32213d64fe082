"""A queue for the tests of programs that use one: the same client, and a broker in memory instead of a server.

    from tidemill.testing import Client

    async with Client() as mq:
        await mq.send("order.created", b"...")

Everything between ``send`` and the socket is the real thing. Clients that are given the same ``broker`` see the same
messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidemill import client
from tidemill.memory import MemoryBroker
from tidemill.memory_search import look
from tidemill.routes import Address, Routes
from tidemill.settings import ClientSettings

__all__ = ["Client", "MemoryBroker"]


class Client(client.Client):
    """A client of a broker in memory."""

    def __init__(self, broker: MemoryBroker | None = None, *, settings: ClientSettings | None = None) -> None:
        self.broker = broker or MemoryBroker()
        found = replace(settings or ClientSettings(), connect=self.broker.connect)
        super().__init__("memory:1", settings=found, fetch=self._routes)

    async def subjects(self) -> list[dict[str, Any]]:
        """The subjects there are."""
        return [
            {"name": name, "messages": subject.next_sequence, "next_sequence": subject.next_sequence}
            for name, subject in self.broker.subjects.items()
        ]

    async def groups(self) -> list[dict[str, Any]]:
        """The consumer groups there are."""
        return [
            {
                "group": group,
                "subject": subject,
                "lag": self.broker.subjects[subject].next_sequence - found.cursor,
                "in_flight": sum(len(member.leases) for member in found.members.values()),
                "failed": len(found.due),
                "acked": found.acked,
                "consumers": len(found.members),
            }
            for (subject, group), found in self.broker.groups.items()
        ]

    async def _look(self, path: str, parameters: Mapping[str, str]) -> Any:
        return look(self.broker, path, parameters)

    async def _routes(self) -> Routes:
        return (Address("g0", "memory", 1),)
