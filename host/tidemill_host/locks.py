"""What keeps others out of one process: its certificates, and what it shows of itself to those that it calls.

Made once, of the settings; it stays whatever the service becomes.
"""

from __future__ import annotations

import ssl
from collections import Counter

from tidemill_host.calling import Caller
from tidemill_host.certificates import KeyFiles, ServerCertificates, Watched, client_context
from tidemill_host.server import Server
from tidemill_host.settings import LockSettings


class Locks:
    """See the module."""

    def __init__(self, settings: LockSettings) -> None:
        self.settings = settings
        shown = KeyFiles(
            settings.tls_cert, settings.tls_key, settings.tls_client_ca, settings.tls_client_required
        )
        self.certificates = ServerCertificates(shown) if settings.tls_cert else None
        trusted = KeyFiles(settings.tls_cert, settings.tls_key, settings.tls_ca)
        self.caller = Caller(Watched(trusted, client_context) if settings.tls_cert else None)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """For listening."""
        return None if self.certificates is None else self.certificates.context

    @property
    def scheme(self) -> str:
        return self.caller.scheme

    def guard(self, server: Server) -> None:
        """A server that is about to listen."""
        server.tls, server.caller = self.tls, self.caller

    def count(self, refused: Counter[str]) -> None:
        """Handshakes that fail are counted there from now on, at whichever port."""
        if self.certificates is not None:
            self.certificates.refused = refused
