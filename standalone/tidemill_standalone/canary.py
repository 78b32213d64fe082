"""The canary of a queue on this machine: a process of its own, as one beside any queue is, and its page.

The port of that page is listened at here, from before the canary begins, and is handed down to each canary that is
started: so it is the same for as long as the queue runs, meta may be told of it first, and who asks while there is none
waits for the next one. It is of this machine alone, for the page asks nobody who they are.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from tidemill_host.locks import Locks
from tidemill_standalone.plan import EVERYWHERE, Child
from tidemill_wire.addresses import address_of

CANARY = "canary"
HERE = "127.0.0.1"
TOLD = "TIDEMILL_META_CANARY"
"""By which meta hears where the page is."""


class Perch:
    """See the module."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_server((HERE, port))
        self.descriptor = self._socket.fileno()
        self.address = address_of(HERE, int(self._socket.getsockname()[1]))

    def close(self) -> None:
        self._socket.close()


def canary_of(perch: Perch, locks: Locks, server: tuple[str, int]) -> Child:
    """The process; it is whoever has the cluster's token, where there is one: both are of the same person."""
    host, port = server
    place = address_of(HERE if host in EVERYWHERE else host, port)
    arguments = ("-s", f"{locks.scheme}://{place}", "--metrics-socket", str(perch.descriptor))
    given = locks.settings
    told = {"TIDEMILL_CA": given.tls_ca, "TIDEMILL_TOKEN_FILE": given.cluster_token_file}
    environment: Mapping[str, str] = {name: value for name, value in told.items() if value}
    return Child(CANARY, "tidemill.canary", arguments, environment, (perch.descriptor,))
