"""Authorities and certificates for tests, in files as an operator has them."""

from __future__ import annotations

import os
from pathlib import Path

import trustme


class Authority:
    """One authority, and what it signed, below a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca = folder / f"{name}.pem"
        self._ca = trustme.CA()
        self._ca.cert_pem.write_to_path(str(self.ca))

    def issue(self, name: str, *hosts: str, common_name: str | None = None) -> tuple[Path, Path]:
        """A certificate and its key, in place of what has the name; each file at once, and one before the other."""
        leaf = self._ca.issue_cert(*hosts or ("localhost",), common_name=common_name)
        cert, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        _replace(key, leaf.private_key_pem.bytes())
        _replace(cert, b"".join(part.bytes() for part in leaf.cert_chain_pems))
        return cert, key

    def serve(self) -> dict[str, str]:
        """The settings of a service on this machine that shows a certificate and trusts its like."""
        cert, key = self.issue("server", "127.0.0.1", "localhost")
        return {"TIDEMILL_TLS_CERT": str(cert), "TIDEMILL_TLS_KEY": str(key), "TIDEMILL_TLS_CA": str(self.ca)}


def _replace(path: Path, data: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(data)
    os.replace(new, path)
