"""The HTTP ports that a client was named: one is asked until it fails, then the next."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from tidemill.errors import BrokerUnreachable
from tidemill.routes import HttpPort, OpenPort, Web, load_http
from tidemill_wire.addresses import address_of


class Servers:
    """See the module. Several are replicas of meta; a standalone broker is one."""

    def __init__(self, places: Sequence[tuple[str, int]], open_port: OpenPort) -> None:
        self.places = tuple(places)
        self._ports = [(host, open_port(host, port)) for host, port in places]

    def __len__(self) -> int:
        return len(self._ports)

    def __str__(self) -> str:
        return ", ".join(address_of(*place) for place in self.places)

    @property
    def host(self) -> str:
        """Of the one that is asked now."""
        return self._ports[0][0]

    def prepare(self) -> None:
        """What the first question costs once: it is not to count against the time for an answer."""
        if any(isinstance(port, Web) for _, port in self._ports):
            load_http()

    async def get(self, path: str, timeout_s: float) -> Any:
        """The JSON at ``path`` of the first that answers. What it refuses, the others would refuse as well."""
        return await self._ask(lambda port: port.get(path, timeout_s))

    async def post(self, path: str, body: object, timeout_s: float) -> Any:
        """The JSON that the first that answers gives to ``body``."""
        return await self._ask(lambda port: port.post(path, body, timeout_s))

    async def _ask(self, question: Callable[[HttpPort], Awaitable[Any]]) -> Any:
        for left in reversed(range(len(self._ports))):
            port = self._ports[0][1]
            try:
                return await question(port)
            except (BrokerUnreachable, TimeoutError, OSError):
                if not left:
                    self.pass_over(port)
                    raise
                self.pass_over(port)
        raise AssertionError("there is one at least")

    async def lines(self, path: str, body: object, silence_s: float) -> AsyncGenerator[Any]:
        """The lines that the one that is asked now answers; when they end, it is another one's turn."""
        port = self._ports[0][1]
        try:
            async with aclosing(port.lines(path, body, silence_s)) as lines:
                async for line in lines:
                    yield line
        except (BrokerUnreachable, TimeoutError, OSError):
            self.pass_over(port)
            raise
        self.pass_over(port)

    def pass_over(self, port: HttpPort) -> None:
        """It did not answer: the next one's turn, unless somebody else has found that out before."""
        if self._ports[0][1] is port:
            self._ports.append(self._ports.pop(0))
