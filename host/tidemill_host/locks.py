"""What keeps others out of one process: its certificates, and what it shows of itself to those that it calls.

Made once, of the settings; it stays whatever the service becomes.
"""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidemill_host.audit import Audit
from tidemill_host.calling import Caller
from tidemill_host.certificates import KeyFiles, ServerCertificates, Watched, client_context
from tidemill_host.doorman import Doorman
from tidemill_host.permits import Permits
from tidemill_host.secret import ClusterSecret
from tidemill_host.server import Server
from tidemill_host.settings import LockSettings
from tidemill_wire.access import Access
from tidemill_wire.guarding import PASSED_ON, Gate, Subjects, no_subjects

if TYPE_CHECKING:
    from tidemill_host.reviewing import Reviewing


class Locks:
    """See the module."""

    def __init__(self, settings: LockSettings) -> None:
        self.settings = settings
        shown = KeyFiles(
            settings.tls_cert, settings.tls_key, settings.tls_client_ca, settings.tls_client_required
        )
        self.certificates = ServerCertificates(shown) if settings.tls_cert else None
        trusted = KeyFiles(settings.tls_cert, settings.tls_key, settings.tls_ca)
        self._secret = ClusterSecret(settings.cluster_token_file) if settings.locked else None
        shows = str if self._secret is None else self._secret.shown
        self.caller = Caller(Watched(trusted, client_context) if settings.tls_cert else None, shows)
        own = tuple if self._secret is None else self._secret.digests
        self.access = Access(locked=settings.locked, own=own)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """For listening."""
        return None if self.certificates is None else self.certificates.context

    @property
    def scheme(self) -> str:
        return self.caller.scheme

    def guard(self, server: Server, subjects: Subjects = no_subjects, service: str = "broker") -> Audit:
        """A server that is about to listen; what is noted of its service."""
        audit = self.audit(service, server.turn.now_ms)
        server.tls, server.caller, server.certificates = self.tls, self.caller, self.certificates

        def told(who: str, what: str, outcome: str) -> None:
            say = audit.note if outcome == PASSED_ON else audit.refused
            say(who, what, outcome)

        server.gate = Gate(self.access, subjects, told)
        return audit

    def audit(self, service: str, now_ms: Callable[[], int]) -> Audit:
        """Where it is noted what people did there."""
        return Audit(self.settings, service, now_ms)

    def doorman(
        self, permits: Permits, service: str, now_ms: Callable[[], int], refused: Counter[str]
    ) -> Doorman:
        """Of an HTTP port."""
        return Doorman(self.access, permits, self.audit(service, now_ms), now_ms, refused)

    def reviewing(self, metas: str, now_ms: Callable[[], int]) -> Reviewing:
        """What asks meta, whose replicas are parted by commas, whose a token is that is in no charter."""
        from tidemill_host.reviewing import Reviewing  # aiohttp's client is half of a start

        return Reviewing(self.access, self.caller, metas.split(","), now_ms)

    def count(self, refused: Counter[str]) -> None:
        """Handshakes that fail are counted there from now on, at whichever port."""
        if self.certificates is not None:
            self.certificates.refused = refused
