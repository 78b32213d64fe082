"""Asking the HTTP ports of a queue, as whoever the environment says, and by TLS where it says so."""

from __future__ import annotations

import http.client
from collections.abc import Mapping

from tidemill.security import security_of

ANY_HOST = ("0.0.0.0", "[::]", "")


def connection_to(place: str, timeout_s: float) -> http.client.HTTPConnection:
    """To a port, HOST:PORT, or with its scheme."""
    context = security_of(place).context()
    host = place.rpartition("://")[2]
    if context is None:
        return http.client.HTTPConnection(host, timeout=timeout_s)
    return http.client.HTTPSConnection(host, timeout=timeout_s, context=context)


def heads_for(place: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Of a request there: who asks."""
    return {**security_of(place).headers(), **(more or {})}


def port_of(address: str, place: str) -> str:
    """A broker's HTTP port; one that names no host is where ``place`` is, and speaks as that does."""
    scheme, mark, asked = place.rpartition("://")
    host, _, port = address.rpartition(":")
    if host in ANY_HOST:
        host = asked.rpartition(":")[0]
    return f"{scheme}{mark}{host}:{port}"
