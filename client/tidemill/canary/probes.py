"""What a probe says: of whose canary it is, of which run of it, and which one it is. Text, for who browses. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from tidemill_wire.resources import API_VERSION

PREFIX = "tidemill.canary."
"""The subject of a broker group is this and the group's name."""
LEASE_SECONDS = 30
BODY = re.compile(rb"canary ([A-Za-z0-9._-]{1,100}) ([0-9a-f]{16}) (now|later) ([0-9]{1,15}) ([0-9]{1,15})")


class Body(NamedTuple):
    """See the module."""

    name: str
    run: str
    later: bool
    number: int
    sent_ms: int
    """The time of day: two runs that begin one after the other are told apart by it."""

    def to_bytes(self) -> bytes:
        kind = "later" if self.later else "now"
        return f"canary {self.name} {self.run} {kind} {self.number} {self.sent_ms}".encode()


def parse_body(body: bytes) -> Body | None:
    """``None``: somebody else sent it."""
    found = BODY.fullmatch(body)
    if found is None:
        return None
    name, run, kind, number, sent_ms = (part.decode() for part in found.groups())
    return Body(name, run, kind == "later", int(number), int(sent_ms))


def subject_of(group: str) -> str:
    """Where the probes of a broker group lie."""
    return f"{PREFIX}{group}"


def subject_manifest(group: str, retention_seconds: int) -> dict[str, object]:
    """That subject, as it is declared: on that broker group and no other."""
    return _manifest("Subject", f"tidemill-canary-{group}", {
        "subjectName": subject_of(group),
        "placement": {"brokerGroups": [group]},
        "retention": {"messageSeconds": retention_seconds},
    })  # fmt: skip


def group_manifest(group: str, name: str) -> dict[str, object]:
    """The consumer group there: what failed comes again after a second, however often, so that nothing is late or given
    up for a canary whose connections break.
    """
    delivery = {"maxAttempts": 10_000, "ackTimeoutSeconds": LEASE_SECONDS, "retryBackoffSeconds": [1]}
    return _manifest("ConsumerGroup", f"tidemill-canary-{group}", {
        "subjectName": subject_of(group), "groupName": name, "delivery": delivery,
    })  # fmt: skip


def _manifest(kind: str, name: str, spec: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
