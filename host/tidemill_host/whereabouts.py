"""Where a service keeps its data, where it is found, and what keeps others out: for as long as its process lives."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill_host.locks import Locks
from tidemill_host.process import say
from tidemill_wire.addresses import address_of


@dataclass(slots=True)
class Whereabouts:
    """Whatever the process becomes in its group, it stays where it was found at first."""

    data: str
    host: str
    port: int
    """0 is any free one, until it listens."""
    http_port: int
    locks: Locks
    known: bool = False
    """Whoever started the process was told the ports."""

    def addresses(self, advertised: str = "") -> tuple[str, str]:
        """Of both ports, at the host that others are to use."""
        host = advertised or self.host
        return address_of(host, self.port), address_of(host, self.http_port)

    def say_ready(self, ports: tuple[int, int], stands: str) -> bool:
        """It listens. Whether that is said for the first time; later it is said what it has become."""
        if self.known:
            say(stands)
            return False
        self.port, self.http_port = ports
        self.known = True
        data, control = self.addresses()
        say(f"ready tidemill://{data} {self.locks.scheme}://{control}")
        return True
