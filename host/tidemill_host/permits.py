"""What a request over HTTP needs, as each service says it of its paths: one table, by method and path.

What is in no table needs to administer everything: a path that somebody forgot is shut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tidemill_wire.access import EVERYTHING, Operation


class Need(Enum):
    """Who is let in."""

    NOTHING = "nothing"
    """Anybody: probes."""
    A_NAME = "a name"
    """Whoever is known; what more it needs, whoever answers knows."""
    THE_CLUSTER = "the cluster"
    """The services of the cluster."""
    A_RIGHT = "a right"
    """Whoever was granted something, which the path says."""


@dataclass(frozen=True, slots=True)
class Permit:
    """What one method of one path needs."""

    need: Need
    operation: Operation | None = None
    subject: str = EVERYTHING
    """A variable of the path, in braces; a field of the query, with a question mark; or a pattern."""
    group: str = ""
    """A variable of the path, in braces."""
    rows: str = ""
    """Only those rows of the answer are shown whose field of this name is a subject of which the asker may know."""
    answer: str = ""
    """The answer is shown when the subject in this field of it may be browsed."""
    audited: bool = False


Permits: TypeAlias = Mapping[tuple[str, str], Permit]

FREE = Permit(Need.NOTHING)
KNOWN = Permit(Need.A_NAME)
CLUSTER = Permit(Need.THE_CLUSTER)
CLUSTER_AUDITED = Permit(Need.THE_CLUSTER, audited=True)
BROWSE_ALL = Permit(Need.A_RIGHT, Operation.BROWSE)
ADMIN_ALL = Permit(Need.A_RIGHT, Operation.ADMIN, audited=True)
BROWSE = Permit(Need.A_RIGHT, Operation.BROWSE, "{subject}")
ADMIN = Permit(Need.A_RIGHT, Operation.ADMIN, "{subject}", audited=True)
SEND = Permit(Need.A_RIGHT, Operation.SEND, "{subject}")
CONSUME = Permit(Need.A_RIGHT, Operation.CONSUME, "{subject}", "{group}")
UNLISTED = ADMIN_ALL

COMMON: Permits = {
    ("GET", "/healthz"): FREE,
    ("GET", "/readyz"): FREE,
    ("GET", "/metrics"): BROWSE_ALL,
    ("GET", "/openapi.json"): KNOWN,
    ("GET", "/v1/process"): KNOWN,
    ("GET", "/v1/access/own"): KNOWN,
    ("GET", "/v1/system"): BROWSE_ALL,
    ("GET", "/v1/log-level"): BROWSE_ALL,
    ("POST", "/v1/log-level"): ADMIN_ALL,
    # Files of the console, which anybody may read; what it asks for carries its reader's token.
    **{
        ("GET", f"/{path}"): FREE
        for path in ("", "console", "console/", "console/{file}", "console/views/{view}")
    },
}
"""What every service has."""


def rows_with(field: str) -> Permit:
    """A list, of which everybody sees their part."""
    return Permit(Need.A_NAME, rows=field)


def answer_with(field: str) -> Permit:
    """One thing, whose subject nobody knows before it was found."""
    return Permit(Need.A_NAME, Operation.BROWSE, answer=field)
