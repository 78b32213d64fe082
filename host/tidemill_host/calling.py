"""How a service calls the others of its cluster: in clear or by TLS, and with what it shows of itself."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, TypeVar

from tidemill_host.certificates import Watched

Protocol = TypeVar("Protocol", bound=asyncio.BaseProtocol)


class Caller:
    """Without arguments: in clear, and as nobody."""

    def __init__(self, trust: Watched | None = None, token: Callable[[], str] = str) -> None:
        self._trust = trust
        self.token = token

    @property
    def scheme(self) -> str:
        return "http" if self._trust is None else "https"

    def url(self, place: str, path: str) -> str:
        """Of a path at an HTTP port, HOST:PORT."""
        return f"{self.scheme}://{place}{path}"

    def options(self) -> dict[str, Any]:
        """What a request of aiohttp is given besides; asked for anew each time, as certificates and tokens change."""
        said: dict[str, Any] = {} if self._trust is None else {"ssl": self._trust.current()}
        token = self.token()
        return {**said, "headers": {"Authorization": f"Bearer {token}"}} if token else said

    async def connect(self, make: Callable[[], Protocol], host: str, port: int) -> Protocol:
        """A connection to a data port."""
        context: ssl.SSLContext | None = None if self._trust is None else self._trust.current()
        _, protocol = await asyncio.get_running_loop().create_connection(make, host, port, ssl=context)
        return protocol


IN_CLEAR = Caller()
