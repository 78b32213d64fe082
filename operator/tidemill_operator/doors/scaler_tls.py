"""TLS for KEDA's external scaler: a folder with a certificate, looked at again when somebody connects.

A pair that does not fit, as in the midst of a change, leaves what was there before, and so does a file that is gone.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import grpc

from tidemill_operator.desired.locks import AUTHORITY, CERT, KEY
from tidemill_wire.settings import SettingsError

logger = logging.getLogger("tidemill.operator")


class ScalerFiles:
    """A certificate, its key, and the authority of those who ask, as cert-manager puts them."""

    def __init__(self, folder: str, *, clients: bool) -> None:
        self._folder = Path(folder)
        self._clients = clients
        self._seen = self._read()
        problem = self._problem()
        if problem:
            raise SettingsError(
                f"TIDEMILL_OPERATOR_SCALER_TLS: the files in {folder} cannot be used: {problem}"
            )

    def credentials(self) -> grpc.ServerCredentials:
        """For listening."""
        # The stubs know no fetcher that has nothing new, which the library asks for.
        return grpc.dynamic_ssl_server_credentials(self._configured(), self._changed, self._clients)  # type: ignore[arg-type]

    def _configured(self) -> grpc.ServerCertificateConfiguration:
        cert, key, authority = self._seen
        return grpc.ssl_server_certificate_configuration(
            [(key, cert)], root_certificates=authority if self._clients else None
        )

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """What is new since the last time; None: nothing that can be used."""
        former = self._seen
        try:
            self._seen = self._read()
        except SettingsError as error:
            logger.warning("scaler_certificate_unread why=%s", error)
            return None
        if self._seen == former:
            return None
        problem = self._problem()
        if problem:
            logger.warning("scaler_certificate_unused why=%s", problem)
            self._seen = former
            return None
        return self._configured()

    def _read(self) -> tuple[bytes, bytes, bytes]:
        names = (CERT, KEY, *([AUTHORITY] if self._clients else []))
        try:
            found = [(self._folder / name).read_bytes() for name in names]
        except OSError as error:
            raise SettingsError(f"TIDEMILL_OPERATOR_SCALER_TLS: a file cannot be read ({error})") from None
        return found[0], found[1], found[2] if self._clients else b""

    def _problem(self) -> str:
        """What is wrong with the pair. The library of gRPC takes any, and refuses whoever comes then."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._folder / CERT, self._folder / KEY, password="")
            if self._clients:
                context.load_verify_locations(self._folder / AUTHORITY)
        except (OSError, ValueError) as error:  # what ssl raises is an OSError
            return str(error)
        return ""
