"""What meta refuses, and what to do then.

TidemillError
  Denied    a request that cannot be done: a row of the table, and a sentence
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill_wire.errors import TidemillError


@dataclass(frozen=True, slots=True)
class DenialKind:
    """A row of the table. ``status`` is the one of HTTP; 503 may be tried again later."""

    code: str
    status: int
    advice: str


DENIAL_KINDS = (
    DenialKind("malformed", 400, "see /openapi.json for what is taken here"),
    DenialKind("conflict", 409, "look at what it is now, which is in this answer, and decide again"),
    DenialKind("name_taken", 409, "stop the other one, or give this one another name"),
    DenialKind("replaced", 409, "stop: another process has this name now"),
    DenialKind("not_registered", 404, "register again"),
    DenialKind("not_in_sync", 409, "wait until it has caught up, or name a replica that has"),
    DenialKind("unknown_group", 404, "look the name up with GET /v1/brokers"),
    DenialKind("unknown_subject", 404, "declare the subject, or allow that it is created on first use"),
    DenialKind("unknown_consumer_group", 404, "declare the group, or allow that it is created on first use"),
    DenialKind("unknown_archive", 404, "look the name up with GET /v1/archives"),
    DenialKind("unknown_replay", 404, "look the name up with GET /v1/replays"),
    DenialKind("no_broker_group", 503, "start a broker, or take a broker group out of its read-only state"),
    DenialKind("placement", 400, "name broker groups that exist, or labels that enough of them have"),
    DenialKind("in_use", 409, "take away first what still uses it"),
    DenialKind("not_empty", 409, "consume what is left, or remove it for what it is, without if_empty"),
    DenialKind(
        "not_known", 503, "wait for a second or two, or start the brokers that are away; then ask again"
    ),
    DenialKind("not_gone", 503, "wait for a second or two, or start the brokers that are away"),
    DenialKind(
        "too_many_vanished",
        503,
        "say it again in half a minute, or leave it: leases of consumers that are gone end by themselves",
    ),
    DenialKind("behind", 503, "ask another replica of meta, or wait until the database answers"),
)
KIND_BY_CODE = {kind.code: kind for kind in DENIAL_KINDS}

assert len(KIND_BY_CODE) == len(DENIAL_KINDS)


class Denied(TidemillError):
    """A request that cannot be done. ``more`` is told beside the error."""

    def __init__(self, code: str, detail: str, more: Mapping[str, Any] | None = None) -> None:
        self.kind = KIND_BY_CODE[code]
        self.detail = detail
        self.more = more or {}
        super().__init__(code, detail)

    def __str__(self) -> str:
        return f"{self.detail}: {self.kind.advice} ({self.kind.code})"
