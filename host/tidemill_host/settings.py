"""What an operator may set of any service's locks. Read once in ``__main__``, printed at start, passed down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill_wire.limits import MIB
from tidemill_wire.settings import SettingsError, read_fields

PREFIX = "TIDEMILL_"
WHOLE_MAX = (1 << 53) - 1


@dataclass(frozen=True, slots=True)
class LockSettings:
    """One service."""

    tls_cert: str = ""
    """A file with this service's certificate and those between it and its authority; with it both ports speak TLS."""

    tls_key: str = ""
    """The file with its private key."""

    tls_client_ca: str = ""
    """A file of authorities: a client that shows a certificate of one of them is whom that names."""

    tls_client_required: bool = False
    """Whether a client without such a certificate is refused."""

    tls_ca: str = ""
    """A file of the authorities that this service trusts when it calls others; empty: those of the system."""

    cluster_token_file: str = ""
    """A file whose first line is what the cluster's services show each other. With it all ports are locked: who shows
    nothing is refused, and who is known may do what is granted.
    """

    audit_file: str = ""
    """Where administrative actions and refusals are noted, a line of JSON each; empty: on standard error."""

    audit_bytes: int = 16 * MIB
    """When that file is so large, another one is begun."""

    audit_files: int = 4
    """So many of them are kept."""

    def __post_init__(self) -> None:
        if bool(self.tls_cert) != bool(self.tls_key):
            missing = "TLS_KEY" if self.tls_cert else "TLS_CERT"
            raise SettingsError(f"{PREFIX}{missing} is missing: name the certificate's file and the key's")
        if self.tls_client_required and not self.tls_client_ca:
            raise SettingsError(
                f"{PREFIX}TLS_CLIENT_CA is missing: name the authorities of the certificates that are required"
            )
        if self.tls_client_ca and not self.tls_cert:
            raise SettingsError(f"{PREFIX}TLS_CERT is missing: without TLS nobody shows a certificate")

    @property
    def locked(self) -> bool:
        """Whether it is asked who somebody is."""
        return bool(self.cluster_token_file)


def read_lock_settings(environment: Mapping[str, str]) -> LockSettings:
    """The settings that the environment names, as in TIDEMILL_TLS_CERT; the defaults for the rest."""
    return LockSettings(**read_fields(LockSettings, PREFIX, WHOLE_MAX, environment))
