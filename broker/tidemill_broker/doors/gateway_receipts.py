"""Receipts: what names a delivery over HTTP.

A receipt names group, consumer and pull sequence: what an ACK needs, and a sum by which a receipt of another group is
known. In which lane the delivery is, or whether it is of a dead letter that was redriven, the broker's state says.
"""

from __future__ import annotations

import base64
import binascii
import struct

from crc32c import crc32c

RECEIPT = struct.Struct(">IQ")
_PULL_MAX = 1 << 63


class Receipts:
    """The receipts of one group of one subject."""

    def __init__(self, subject: str, group: str) -> None:
        self._sum = crc32c(f"{subject}/{group}".encode())

    def write(self, consumer: str, pull: int) -> str:
        token = RECEIPT.pack(self._sum, pull) + consumer.encode()
        return base64.urlsafe_b64encode(token).rstrip(b"=").decode()

    def read(self, receipt: str) -> tuple[str, int] | None:
        """Consumer and pull sequence; ``None`` for what this group never gave."""
        try:
            token = base64.b64decode(receipt + "=" * (-len(receipt) % 4), altchars=b"-_", validate=True)
            known, pull = RECEIPT.unpack_from(token)
            consumer = token[RECEIPT.size :].decode("ascii")
        except (binascii.Error, ValueError, struct.error):
            return None
        return (consumer, pull) if known == self._sum and pull < _PULL_MAX else None
