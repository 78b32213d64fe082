"""What a server of a group says to meta, and what it makes of the answers. It sends nothing itself.

``tidemill_host.attending`` carries the requests over HTTP, a simulation over its own network. One beat is:

    unregistered  --registration-->  registered  --heartbeat-->  obeying  --APPOINT, when there is news-->  warded
    warded        --of a master: what its service needs before it takes anything (``_first``)-->  wishing
    wishing       --the in-sync set that the master wishes, when it wishes one-->  told
    told          --of a master: what its service has besides (``_besides``)-->  done

A request that is refused ends its beat; the next one begins again, at another replica of meta. Whatever meta answers is
obeyed only as the machine sees fit (``membership.judge``).

A replica of meta that does not answer a heartbeat is passed over at once: with two of three in a black hole a server is
heard before it counts as dead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from tidemill_wire.access import Charter
from tidemill_wire.asking import MetaRefused, Request
from tidemill_wire.fields import Fields
from tidemill_wire.replication import Appoint, Stood, parse_appoint
from tidemill_wire.routes import State

BEAT_SECONDS = 1.0
"""Until meta has said how often."""
BEAT_SECONDS_LEAST = 0.05
BEAT_PATIENCE_SECONDS = 1.0
"""A heartbeat is answered from memory, and nothing is stored for it."""
ROLES = {"master": "master", "slave": "slave", "fenced": "none", "leaving": "none"}
"""As meta hears them. A master that hands over is none, until it goes on or is something else."""
APPOINTMENT_FIELDS = ("group", "epoch", "master", "replicas", "in_sync", "version", "addresses")

More = TypeVar("More")
"""What else is to be done in a beat of that service."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a server tells of itself. ``boot`` grows with each process on its ``folder``."""

    group: str
    name: str
    boot: int
    data: str
    control: str
    folder: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    service: str = "broker"


class Attendance(Generic[More]):
    """One part of one server."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self.beat_s = BEAT_SECONDS
        """Until the next beat, as meta says."""
        self._state: State = "RW"
        self._registered = False
        self._revision = 0
        """The latest of meta that it was answered: a meta whose store has gone back learns from it that it has."""
        self._charter: object = None
        """The version of the last that it was told of who may do what."""
        self._beat: Iterator[Request | Appoint | Charter | More] = iter(())
        self._answer: Mapping[str, Any] = {}

    def beat(self, stood: Stood, state: State = "RW") -> Request | Appoint | Charter | More:
        """A beat begins of a server that can take so much; what is first to be done in it. What is left of the one
        before is forgotten.
        """
        self._state = state
        self._beat = self._steps(stood)
        return next(self._beat)

    def answered(self, status: int, answer: object) -> Request | Appoint | Charter | More | None:
        """Meta has answered the request, or the machine has obeyed (200); what is next, nothing when that was all."""
        fields: Mapping[str, Any] = cast("Mapping[str, Any]", answer) if isinstance(answer, dict) else {}
        if status >= 400:
            raise self._refused(status, fields.get("error", {}))
        self._answer = fields or {}
        return next(self._beat, None)

    def _refused(self, status: int, error: Any) -> MetaRefused:
        refused = MetaRefused(str(error.get("code", status)), str(error.get("detail", "")))
        if refused.code == "not_registered":
            self._registered = False
        return refused

    def _steps(self, stood: Stood) -> Iterator[Request | Appoint | Charter | More]:
        one = self._identity
        if not self._registered:
            yield Request("/v1/brokers", self._registration(stood))
            self._registered = True
        patience_s = min(self.beat_s, BEAT_PATIENCE_SECONDS)
        yield Request("/v1/brokers/heartbeat", self._heartbeat(stood), patience_s=patience_s)
        answer = self._answer
        self._revision = max(self._revision, answer.get("revision", 0))
        self.beat_s = max(BEAT_SECONDS_LEAST, answer.get("beat_ms", 1000 * BEAT_SECONDS) / 1000)
        appoint = obeyed(stood, answer)
        if appoint is not None:
            yield appoint
        yield from self._ward(answer)
        if stood.role == "master":
            yield from self._first(answer)
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
        if stood.role == "master":
            yield from self._besides(answer)

    def _ward(self, answer: Mapping[str, Any]) -> Iterator[Request | Appoint | Charter | More]:
        """Who may do what, of any part; asked for when it is another version than is known, newer or not."""
        said = answer.get("access")
        if said is None or said == self._charter:
            return
        yield Request("/v1/brokers/access", {})
        try:
            charter = Charter.from_map(self._answer)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MetaRefused("malformed", f"what meta says of grants cannot be read ({error!r})") from None
        yield charter
        self._charter = said

    def _first(self, answer: Mapping[str, Any]) -> Iterator[Request | Appoint | Charter | More]:
        """What a master of this service has to ask and to do before a wish, which may be refused and end the beat."""
        return iter(())

    def _besides(self, answer: Mapping[str, Any]) -> Iterator[Request | Appoint | Charter | More]:
        """What a master of this service has to ask and to do besides, by the answer to its heartbeat."""
        return iter(())

    def _registration(self, stood: Stood) -> Mapping[str, Any]:
        """With the epoch that it knows: a meta whose database was lost learns that it is not the first one."""
        one = self._identity
        return {
            "group": one.group, "name": one.name, "boot": one.boot, "folder": one.folder,
            "addresses": {"data": one.data, "control": one.control}, "labels": dict(one.labels),
            "epoch": max(stood.epoch, stood.begun), **({} if one.service == "broker" else {"service": one.service}),
            **({"known": self._revision} if self._revision else {}),
        }  # fmt: skip

    def _heartbeat(self, stood: Stood) -> Mapping[str, Any]:
        one = self._identity
        # An earlier version of meta, which tells no revision, would refuse what it does not know.
        known = {"known": self._revision, "in_sync": list(stood.in_sync)} if self._revision else {}
        return {
            "group": one.group, "name": one.name, "boot": one.boot, "epoch": max(stood.epoch, stood.begun),
            "positions": {"messages": stood.ends.message, "actions": stood.ends.action}, "state": self._state,
            "role": ROLES[stood.role], **known,
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
