"""When certificates begin and end, read out of their bytes: ``ssl`` tells it only of those that somebody else shows.

    Certificate  SEQUENCE { tbs SEQUENCE { [0] version, serial, algorithm, issuer, validity SEQUENCE { begin, end }, ...

Only that way is gone; OpenSSL has judged the rest before, when it loaded them.
"""

from __future__ import annotations

import calendar
import re
import ssl
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

SEQUENCE, VERSION, UTC_TIME, LONG_TIME = 0x30, 0xA0, 0x17, 0x18
BEFORE_VALIDITY = 3
"""Serial, algorithm and issuer."""
PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class Validity(NamedTuple):
    """In seconds since 1970."""

    begins_s: int
    ends_s: int

    @property
    def life_s(self) -> int:
        """For how long it holds in all."""
        return self.ends_s - self.begins_s


def validity_of(place: str) -> Validity:
    """Of a file's chain: that of the one which ends first. ``ValueError`` when there is none in it."""
    with open(place, encoding="latin-1") as file:
        chain = [validity_in(ssl.PEM_cert_to_DER_cert(one)) for one in PEM.findall(file.read())]
    if not chain:
        raise ValueError(f"no certificate is in {place}")
    return min(chain, key=lambda one: one.ends_s)


def validity_in(certificate: bytes) -> Validity:
    tbs = _within(_within(certificate, SEQUENCE), SEQUENCE)
    parts = iter(_parts(tbs))
    tag, _ = _next(parts)
    for _ in range(BEFORE_VALIDITY if tag == VERSION else BEFORE_VALIDITY - 1):
        _next(parts)
    tag, body = _next(parts)
    if tag != SEQUENCE:
        raise ValueError("the certificate says nothing of its validity")
    begin, end = (_seconds(*part) for part in _parts(body))
    return Validity(begin, end)


def _within(data: bytes, tag: int) -> bytes:
    found, body = _next(iter(_parts(data)))
    if found != tag:
        raise ValueError("this is no certificate")
    return body


def _next(parts: Iterable[tuple[int, bytes]]) -> tuple[int, bytes]:
    for part in parts:
        return part
    raise ValueError("the certificate ends too soon")


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and contents of what follows one another."""
    at = 0
    while at < len(data):
        if len(data) < at + 2:
            raise ValueError("the certificate ends too soon")
        tag, size = data[at], data[at + 1]
        at += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        if len(data) < at + size:
            raise ValueError("the certificate ends too soon")
        yield tag, data[at : at + size]
        at += size


def _seconds(tag: int, body: bytes) -> int:
    if tag not in (UTC_TIME, LONG_TIME):
        raise ValueError("the certificate's time is none")
    written = body.decode("ascii")
    if tag == UTC_TIME:  # two digits of the year: those from 50 on are of the last century
        written = ("19" if written >= "50" else "20") + written
    return calendar.timegm(time.strptime(written, "%Y%m%d%H%M%SZ"))
