"""What a browser is made to ask by a page of somebody else is refused. Pure.

The HTTP port does what it is asked by whoever reaches it, or has a token. A browser reaches what its person reaches,
and any page that the person opens may make it ask. Three ways, and what shuts them:

    another page posts here                    ``Origin`` is not the host that is asked: 403 foreign_page
    another page embeds or reads what is here  ``Sec-Fetch-Site`` says so: 403 foreign_page; no answer has CORS either
    a name of somebody else leads here         ``Host`` is a name that others could own: 403 foreign_host
    (DNS rebinding), so that the page is no other one

A browser is known by fields of the head that no page can leave out. Programs send none of them and are not looked at.
It is the first that is looked at of a request, whether the port is locked or not: a token, where there is one, is not
looked at before.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping

from tidemill_host.refusals import HttpRefused

MARKS = ("Origin", "Sec-Fetch-Site", "Accept-Language")
"""Browsers send one of these at least: the last one always, the first with every request that changes something."""
HERE = ("same-origin", "none", "")
"""The last two: a person typed the address, or it is an old browser, whose ``Origin`` says it."""
READING = ("GET", "HEAD")
OWN_SUFFIXES = (".localhost", ".svc", ".cluster.local", ".internal")
"""Names below these are nobody's on the internet, so nobody can let them lead here."""


def refuse_foreign(method: str, headers: Mapping[str, str], names: Collection[str]) -> None:
    """``HttpRefused`` when a browser asks for a page of somebody else. ``names`` are further names of this port."""
    if not any(mark in headers for mark in MARKS):
        return
    host = headers.get("Host", "").lower()
    if not _is_own(name_of(host), names):
        raise HttpRefused(
            403, "foreign_host", f"{host[:100]!r} is a name that may be somebody else's",
            "open it by its address, or tell the service its name in CONSOLE_HOSTS: see docs/console.md",
        )  # fmt: skip
    origin = headers.get("Origin")
    if origin is not None and origin.lower().partition("://")[2] != host:
        raise _foreign_page(origin)
    navigates = headers.get("Sec-Fetch-Mode") == "navigate" and method in READING
    if headers.get("Sec-Fetch-Site", "") not in HERE and not navigates:
        raise _foreign_page("another site")


def name_of(host: str) -> str:
    """Without the port, and the brackets of an address."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_own(name: str, names: Collection[str]) -> bool:
    """Whether nobody else can let this name lead here: addresses, names without a dot, and those that were told."""
    if not name:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." not in name or name.endswith(OWN_SUFFIXES) or name in names
    return True


def _foreign_page(origin: str) -> HttpRefused:
    return HttpRefused(
        403, "foreign_page", f"a page of {origin[:100]!r} asks, and only this port's own may",
        "ask from a program, or from the console at /console/",
    )  # fmt: skip


def parse_names(written: str) -> frozenset[str]:
    """``queue.example.org,mq.example.org`` as a setting has it."""
    return frozenset(filter(None, (name.strip().lower() for name in written.split(","))))
