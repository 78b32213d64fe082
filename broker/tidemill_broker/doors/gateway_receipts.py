"""Receipts: what names a delivery over HTTP.

A receipt holds consumer and pull sequence, which is what an ACK needs, and a sum of subject and group, by which a
receipt of another group is known, and that of a dead letter that was redriven, whose delivery is one of the twin's.
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import NamedTuple

from crc32c import crc32c

from tidemill_wire.fields import dead_subject

RECEIPT = struct.Struct(">IQ")
_PULL_MAX = 1 << 63


class Known(NamedTuple):
    """What a receipt says."""

    subject: str
    consumer: str
    pull: int


class Receipts:
    """The receipts of one group of one subject."""

    def __init__(self, subject: str, group: str) -> None:
        subjects = (subject, dead_subject(subject, group))
        self._sums = {name: crc32c(f"{name}/{group}".encode()) for name in subjects}
        self._subjects = {value: name for name, value in self._sums.items()}

    def write(self, subject: str, consumer: str, pull: int) -> str:
        """The receipt of a delivery."""
        token = RECEIPT.pack(self._sums[subject], pull) + consumer.encode()
        return base64.urlsafe_b64encode(token).rstrip(b"=").decode()

    def read(self, receipt: str) -> Known | None:
        """``None`` for what this group never gave."""
        try:
            token = base64.b64decode(receipt + "=" * (-len(receipt) % 4), altchars=b"-_", validate=True)
            known, pull = RECEIPT.unpack_from(token)
            consumer = token[RECEIPT.size :].decode("ascii")
        except (binascii.Error, ValueError, struct.error):
            return None
        subject = self._subjects.get(known)
        return Known(subject, consumer, pull) if subject is not None and pull < _PULL_MAX else None
