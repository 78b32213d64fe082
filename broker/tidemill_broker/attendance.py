"""What a broker of a group says to meta, and what it makes of the answers. It sends nothing itself.

``doors/attending.py`` carries the requests over HTTP, a simulation over its own network. One beat is:

    unregistered  --registration-->  registered  --heartbeat-->  obeying  --APPOINT, when there is news-->  wishing
    wishing       --the in-sync set that the master wishes, when it wishes one-->  done

A request that is refused ends its beat; the next one begins again, at another replica of meta. Whatever meta answers is
obeyed only as the machine sees fit (``membership.judge``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from tidemill_wire.fields import Fields
from tidemill_wire.replication import Appoint, Stood, parse_appoint

BEAT_SECONDS = 1.0
PATIENCE_SECONDS = 2.0
ROLES = {"master": "master", "slave": "slave", "fenced": "none"}
APPOINTMENT_FIELDS = ("group", "epoch", "master", "replicas", "in_sync", "version", "addresses")


class MetaRefused(Exception):
    """Meta answered with an error; ``code`` is its name."""

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        super().__init__(f"{code}: {detail}")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a broker tells of itself. ``boot`` grows with each process on its ``folder``."""

    group: str
    name: str
    boot: int
    data: str
    control: str
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What meta is to be asked."""

    path: str
    body: Mapping[str, Any]
    method: str = "POST"


Next: TypeAlias = Request | Appoint
"""What is to be done next: ask meta, or tell the machine. Both are answered."""


class Attendance:
    """One part of one broker."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._registered = False
        self._beat: Iterator[Next] = iter(())
        self._answer: Mapping[str, Any] = {}

    def beat(self, stood: Stood) -> Next:
        """A beat begins; what is first to be done in it. What is left of the one before is forgotten."""
        self._beat = self._steps(stood)
        return next(self._beat)

    def answered(self, status: int, answer: object) -> Next | None:
        """Meta has answered the request, or the machine has obeyed (200); what is next, nothing when that was all."""
        fields: Mapping[str, Any] = cast("Mapping[str, Any]", answer) if isinstance(answer, dict) else {}
        if status >= 400:
            raise self._refused(status, fields.get("error", {}))
        self._answer = fields
        return next(self._beat, None)

    def _refused(self, status: int, error: Any) -> MetaRefused:
        refused = MetaRefused(str(error.get("code", status)), str(error.get("detail", "")))
        if refused.code == "not_registered":
            self._registered = False
        return refused

    def _steps(self, stood: Stood) -> Iterator[Next]:
        one = self._identity
        if not self._registered:
            addresses = {"data": one.data, "control": one.control}
            yield Request(
                "/v1/brokers",
                {
                    "group": one.group,
                    "name": one.name,
                    "boot": one.boot,
                    "folder": one.folder,
                    "addresses": addresses,
                },
            )
            self._registered = True
        yield Request("/v1/brokers/heartbeat", self._heartbeat(stood))
        appoint = obeyed(stood, self._answer)
        if appoint is not None:
            yield appoint
        # Behind the beat: a wish that is refused must not make its master look dead.
        if stood.wish is not None and stood.role == "master":
            yield Request(
                f"/v1/groups/{one.group}/in-sync",
                {
                    "master": one.name,
                    "epoch": stood.epoch,
                    "version": stood.version,
                    "in_sync": list(stood.wish),
                },
            )

    def _heartbeat(self, stood: Stood) -> Mapping[str, Any]:
        one = self._identity
        return {
            "group": one.group, "name": one.name, "boot": one.boot, "epoch": max(stood.epoch, stood.begun),
            "positions": {"messages": stood.ends.message, "actions": stood.ends.action}, "load": 0.0,
            "state": "RW", "role": ROLES[stood.role],
        }  # fmt: skip


def obeyed(stood: Stood, answer: Mapping[str, Any]) -> Appoint | None:
    """The appointment in the answer to a heartbeat, when it says something new to a broker that stands so: another one,
    or that the lease of a master goes on.
    """
    if not answer.get("master"):
        return None
    appoint = parse_appoint(Fields.of({name: answer[name] for name in APPOINTMENT_FIELDS if name in answer}))
    said, lease_ms = appoint.appointment, int(answer.get("lease_ms", 0))
    new, known = (said.epoch, said.version), (stood.epoch, stood.version)
    prolonged = stood.role == "master" and new == known and lease_ms > 0
    if stood.role != "fenced" and new <= known and not prolonged:
        return None
    return replace(appoint, lease_ms=lease_ms, asked_ms=stood.at_ms) if lease_ms else appoint
