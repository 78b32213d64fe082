"""How jobs call meta and brokers: as the environment says that a client does, in clear or by TLS, and with a token.

    TIDEMILL_CA            a file of authorities; with it TLS is spoken
    TIDEMILL_TOKEN_FILE    who the job is; read for each connection

Files and no options: command lines are seen by everybody who sees the job.
"""

from __future__ import annotations

import http.client
import os

from tidemill.security import Security, secured
from tidemill.settings import ClientSettings

TIMEOUT_S = 30.0


def connect(place: str) -> http.client.HTTPConnection:
    """A connection to an HTTP port, HOST:PORT."""
    context = Security.of(os.environ).context()
    if context is None:
        return http.client.HTTPConnection(place, timeout=TIMEOUT_S)
    return http.client.HTTPSConnection(place, timeout=TIMEOUT_S, context=context)


def heads(**more: str) -> dict[str, str]:
    """Of a request; what it says besides who asks, with dashes for underlines."""
    said = {name.replace("_", "-").title(): value for name, value in more.items()}
    return {**said, **Security.of(os.environ).headers()}


def settings() -> ClientSettings:
    """Of a connection to a data port."""
    return secured(ClientSettings(), None)


class Port:
    """A connection to an HTTP port."""

    def __init__(self, place: str) -> None:
        self._connection = connect(place)

    def get(self, path: str, body: str | None = None) -> tuple[int, http.client.HTTPMessage, bytes]:
        """What is answered; with a body it is asked with it."""
        self._connection.request("GET" if body is None else "POST", path, body, heads())
        answer = self._connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def close(self) -> None:
        self._connection.close()

    @classmethod
    def ask(cls, place: str, path: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        port = cls(place)
        try:
            return port.get(path)
        finally:
            port.close()
