"""Authorities and certificates for tests, in files as an operator has them."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

import trustme

Life: TypeAlias = tuple[datetime, datetime]


class Authority:
    """One authority, and what it signed, below a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca = folder / f"{name}.pem"
        self._ca = trustme.CA()
        self._ca.cert_pem.write_to_path(str(self.ca))

    def issue(
        self, name: str, *hosts: str, common_name: str | None = None, life: Life | None = None
    ) -> tuple[Path, Path]:
        """A certificate and its key, in place of what has the name; each file at once, and one before the other."""
        begins, ends = life or (None, None)
        leaf = self._ca.issue_cert(
            *hosts or ("localhost",), common_name=common_name, not_before=begins, not_after=ends
        )
        cert, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        _replace(key, leaf.private_key_pem.bytes())
        _replace(cert, b"".join(part.bytes() for part in leaf.cert_chain_pems))
        return cert, key

    def give_key(self) -> Path:
        """The authority's own key, for who signs otherwise."""
        place = self.folder / "ca.key"
        self._ca.private_key_pem.write_to_path(str(place))
        return place

    def serve(self) -> dict[str, str]:
        """The settings of a service on this machine that shows a certificate and trusts its like."""
        cert, key = self.issue("server", "127.0.0.1", "localhost")
        return {"TIDEMILL_TLS_CERT": str(cert), "TIDEMILL_TLS_KEY": str(key), "TIDEMILL_TLS_CA": str(self.ca)}


def _replace(path: Path, data: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(data)
    os.replace(new, path)
