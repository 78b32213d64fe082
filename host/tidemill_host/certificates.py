"""Certificates in files, read again when the files change: nobody has to start a service anew for them.

    fresh   a second has passed, and somebody connects       looked at
    looked at  the files are as they were                    fresh
    looked at  they are others, and can be used              fresh, with them from this handshake on
    looked at  they are others, and cannot be used           fresh, with the former ones; counted, and said once

Connections that are open go on by what they began with. A certificate and its key are two files, so there is a moment
in which they do not fit: then the former pair serves on, and the next look finds both. A handshake takes one context
as a whole, so none sees half of a change.
"""

from __future__ import annotations

import os
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

from tidemill_host.log import warning
from tidemill_host.validity import Validity, validity_of
from tidemill_wire.errors import TidemillError

LOOK_SECONDS = 1.0
HANDSHAKE_FAILED = "tls_failed"
"""Under this reason handshakes that fail are counted: who speaks no TLS, or shows nobody's certificate."""


class CertificateProblem(TidemillError):
    """Files that cannot be used; the sentence says which, and why."""


class KeyFiles(NamedTuple):
    """Where they are; an empty name is nothing."""

    cert: str = ""
    key: str = ""
    authorities: str = ""
    required: bool = False
    """Of a server: whether clients have to show a certificate."""


class Watched:
    """A context made of files. ``current`` is what they said when they were last in order."""

    def __init__(
        self,
        files: KeyFiles,
        make: Callable[[KeyFiles], ssl.SSLContext],
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self.files = files
        self.reloads = self.failures = 0
        self._make = make
        self._seconds = seconds
        self._looked = seconds()
        self._seen = _stamp(files)
        self._context, self._validity = _made(make, files)

    def current(self) -> ssl.SSLContext:
        """The context for a connection that begins now."""
        now = self._seconds()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self.look()
        return self._context

    def validity(self) -> Validity | None:
        """Of the certificate in use, which may be another one than the file's; ``None``: none is shown."""
        self.current()
        return self._validity

    def look(self) -> None:
        """Take what changed, when it can be used."""
        seen = _stamp(self.files)
        if seen == self._seen:
            return
        try:
            made = _made(self._make, self.files)
        except CertificateProblem as error:
            self.failures += 1
            self._seen = seen  # said once; another change is another look
            warning("certificate_unusable", f"{error}; what was there before is used on")
            return
        (self._context, self._validity), self._seen = made, seen
        self.reloads += 1


class ServerCertificates(Watched):
    """What a service shows at its ports, and whom it believes there. ``context`` is for listening."""

    def __init__(
        self,
        files: KeyFiles,
        refused: Counter[str] | None = None,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(files, server_context, seconds)
        self.refused: Counter[str] = Counter() if refused is None else refused
        self.context = server_context(files)
        self.context.sni_callback = self._choose
        self.context.sslobject_class = _counting(lambda: self.refused)

    def _choose(self, handshake: ssl.SSLObject, _name: str | None, _front: ssl.SSLContext) -> None:
        """Called for each handshake, whether it names a host or not."""
        handshake.context = self.current()


def _counting(refused: Callable[[], Counter[str]]) -> type[ssl.SSLObject]:
    """What asyncio says of a failed handshake nobody can hear: neither is there a protocol yet, nor is it logged."""

    class Counting(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError:
                refused()[HANDSHAKE_FAILED] += 1
                raise

    return Counting


def server_context(files: KeyFiles) -> ssl.SSLContext:
    """Of a side that is called."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.cert, files.key, password=_no_password)
    if files.authorities:
        context.load_verify_locations(files.authorities)
        context.verify_mode = ssl.CERT_REQUIRED if files.required else ssl.CERT_OPTIONAL
    # Who comes again is looked at again: a resumed session would be believed by what was said before.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    return context


def client_context(files: KeyFiles) -> ssl.SSLContext:
    """Of a side that calls: the other one's name has to be in its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.authorities:
        context.load_verify_locations(files.authorities)
    else:
        context.load_default_certs()
    if files.cert:
        context.load_cert_chain(files.cert, files.key, password=_no_password)
    return context


def names_of(certificate: Any) -> tuple[str, ...]:
    """Whom a certificate that was believed names, as ``getpeercert`` shows it: URIs first, then common names."""
    if not isinstance(certificate, dict):
        return ()
    shown = cast("Mapping[str, Any]", certificate)
    uris = [str(value) for kind, value in shown.get("subjectAltName", ()) if kind == "URI"]
    commons = [str(value) for row in shown.get("subject", ()) for kind, value in row if kind == "commonName"]
    return (*uris, *commons)


def _no_password() -> str:
    raise CertificateProblem(
        "a private key with a password: keep it without one, readable to the service alone"
    )


def _made(
    make: Callable[[KeyFiles], ssl.SSLContext], files: KeyFiles
) -> tuple[ssl.SSLContext, Validity | None]:
    try:
        return make(files), validity_of(files.cert) if files.cert else None
    except (OSError, ValueError) as error:  # what ssl raises is an OSError
        places = ", ".join(_named(files))
        raise CertificateProblem(f"the certificates in {places} cannot be used ({error})") from error


def _stamp(files: KeyFiles) -> list[tuple[int, int, int] | None]:
    return [_stamp_of(place) for place in _named(files)]


def _stamp_of(place: str) -> tuple[int, int, int] | None:
    try:
        seen = os.stat(place)
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


def _named(files: KeyFiles) -> Iterable[str]:
    return filter(None, (files.cert, files.key, files.authorities))
