"""Pods: who runs a consumer, as far as its name tells. A pod's uid is in the names that a client makes up in it."""

from __future__ import annotations

import re

from tidemill_wire.errors import Refused

POD = re.compile(r"[A-Za-z0-9-]{8,63}")
"""A uid, as Kubernetes gives one to each pod that ever was."""


def parse_pod(text: str) -> str:
    """A pod's uid, or ``Refused``."""
    if not POD.fullmatch(text):
        raise Refused("invalid_consumer", f"a pod is {text[:80]!r}: write its uid, 8 to 63 of A-Z a-z 0-9 -")
    return text


def mark_of(pod: str) -> str:
    """What the names of a pod's consumers have in them, and no others."""
    return f"@{pod}-"
