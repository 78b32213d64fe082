"""How a client is sure whom it speaks to, and shows who it is: TLS and tokens, from arguments or the environment.

    Client("https://queue.example:7401")                    TLS, by the authorities of the system
    Client("queue.example:7401", security=Security(ca=...)) TLS, by an authority of one's own
    TIDEMILL_CA, TIDEMILL_CERT, TIDEMILL_KEY                the same, and a certificate to show
    TIDEMILL_TOKEN_FILE, TIDEMILL_TOKEN                     who it is; a file is read for each connection

A queue speaks TLS at all of its ports or at none, so that one word decides for both. Files are looked at for each
connection: what was renewed is used without a new client.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.errors import TidemillError
from tidemill.routes import DEFAULT_SERVER, SERVER_VARIABLE, Web

if TYPE_CHECKING:
    from tidemill.settings import ClientSettings, ProtocolFactory

SECURE_SCHEMES = ("https://", "tls://")
VARIABLES = {"ca": "TIDEMILL_CA", "cert": "TIDEMILL_CERT", "key": "TIDEMILL_KEY", "token": "TIDEMILL_TOKEN",
             "token_file": "TIDEMILL_TOKEN_FILE"}  # fmt: skip


CONTEXTS_MAX = 100
"""More than a program needs; text that changes makes new ones, and those that were made first are forgotten."""


class SecurityProblem(TidemillError):
    """Files or a token that cannot be used; the sentence says which, and why."""


@dataclass(frozen=True)
class Security:
    """See the module. Empty: as the environment says."""

    ca: str | Path = ""
    """A file of authorities that the queue's certificate may be of; with it TLS is spoken."""

    cert: str | Path = ""
    """A file with the certificate that the client shows, where the queue asks for one."""

    key: str | Path = ""
    """The file with its private key."""

    token: str = field(default="", repr=False)
    """Who the client is."""

    token_file: str | Path = ""
    """A file with the token in its first line; it goes before ``token``."""

    tls: bool = False
    """Speak TLS, by the authorities of the system where there is no ``ca``."""

    ca_text: str = ""
    """Authorities as text, of a program that has them from elsewhere than a file; instead of ``ca``."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Security:
        """What the environment says."""
        found = {name: environment.get(variable, "") for name, variable in VARIABLES.items()}
        return cls(found["ca"], found["cert"], found["key"], found["token"], found["token_file"])

    @property
    def speaks_tls(self) -> bool:
        return bool(self.tls or self.ca or self.ca_text or self.cert)

    def current_token(self) -> str:
        """As it is now."""
        if not self.token_file:
            return self.token.strip()
        try:
            lines = Path(self.token_file).read_text(encoding="ascii").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise SecurityProblem(f"no token can be read from {str(self.token_file)!r} ({error})") from None
        return lines[0].strip()

    def context(self) -> ssl.SSLContext | None:
        """For a connection that begins now; ``None``: in clear."""
        return _CONTEXTS.of(self) if self.speaks_tls else None

    def headers(self) -> dict[str, str]:
        """Of a request over HTTP."""
        token = self.current_token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    @property
    def shows_token(self) -> bool:
        return bool(self.token or self.token_file)

    def url(self, place: str) -> str:
        """Of an HTTP port, HOST:PORT, or with its scheme."""
        if "://" in place:
            return place.replace("tls://", "https://", 1)
        return f"{'https' if self.speaks_tls else 'http'}://{place}"

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> object:
        """A connection to a data port."""
        return await asyncio.get_running_loop().create_connection(factory, host, port, ssl=self.context())

    def options(self) -> dict[str, Any]:
        """What a request of aiohttp is given besides."""
        context = self.context()
        return {"headers": self.headers(), **({} if context is None else {"ssl": context})}


class SecureWeb(Web):
    """The HTTP port of a server, by TLS, or with a token."""

    def __init__(self, security: Security, host: str, port: int) -> None:
        super().__init__(host, port)
        self._security = security
        self._base = security.url(self._base.removeprefix("http://"))

    def _options(self) -> dict[str, Any]:
        return self._security.options()


class _Contexts:
    """Made anew when files change: to make one takes milliseconds, and a client may open many connections."""

    def __init__(self) -> None:
        self._made: OrderedDict[Sequence[str], tuple[object, ssl.SSLContext]] = OrderedDict()

    def of(self, security: Security) -> ssl.SSLContext:
        places = (str(security.ca), str(security.cert), str(security.key))
        key = (*places, security.ca_text)
        try:
            seen = [(one.st_mtime_ns, one.st_size, one.st_ino) for one in map(os.stat, filter(None, places))]
            made = self._made.get(key)
            if made is None or made[0] != seen:
                made = self._made[key] = seen, _context(*places, security.ca_text)
                if len(self._made) > CONTEXTS_MAX:
                    self._made.popitem(last=False)
        except (OSError, ValueError) as error:  # what ssl raises is an OSError
            named = ", ".join(filter(None, places)) or "ca_text"
            said = getattr(error, "strerror", None) or error
            raise SecurityProblem(
                f"the certificates in {named} cannot be used ({said}): name files of PEM that you may read"
            ) from None
        return made[1]


_CONTEXTS = _Contexts()


def _context(ca: str, cert: str, key: str, ca_text: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca or ca_text:
        context.load_verify_locations(ca or None, cadata=ca_text or None)
    else:
        context.load_default_certs()
    if cert:
        context.load_cert_chain(cert, key or None)
    return context


def security_of(server: str | None, given: Security | None = None) -> Security:
    """What holds for a client of that server: what it was given, else what the environment says."""
    named = server or os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER
    security = given if given is not None else Security.of(os.environ)
    return replace(security, tls=True) if named.startswith(SECURE_SCHEMES) else security


def secured(settings: ClientSettings, server: str | None) -> ClientSettings:
    """Settings with connections that are made so; those of tests, who have others, stay as they are."""
    from tidemill.settings import connect_tcp

    security = security_of(server, settings.security)
    if settings.connect is not connect_tcp or not (security.speaks_tls or security.shows_token):
        return settings
    opened = partial(SecureWeb, security)
    return replace(settings, security=security, connect=security.connect, open_port=opened)
