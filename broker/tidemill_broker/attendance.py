"""What a broker of a group says to meta, and what it makes of the answers. It sends nothing itself.

``doors/attending.py`` carries the requests over HTTP, a simulation over its own network. One beat is:

    unregistered  --registration-->  registered  --heartbeat-->  obeying  --APPOINT, when there is news-->  wishing
    wishing       --the in-sync set that the master wishes, when it wishes one-->  told
    told          --what people declared or made read-only since, of a master-->  fencing
    fencing       --FENCE, and what came of it when that is news-->  done

A request that is refused ends its beat; the next one begins again, at another replica of meta. Whatever meta answers is
obeyed only as the machine sees fit (``membership.judge``).

A replica of meta that does not answer a heartbeat is passed over at once: with two of three in a black hole a broker is
heard before it counts as dead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from tidemill_broker.gate import Told, read_told
from tidemill_broker.load import Load
from tidemill_broker.surveying import Survey
from tidemill_wire.errors import TidemillError
from tidemill_wire.fencing import Fence, Fenced
from tidemill_wire.fields import Fields
from tidemill_wire.replication import Appoint, Stood, parse_appoint
from tidemill_wire.routes import State

BEAT_SECONDS = 1.0
"""Until meta has said how often."""
BEAT_SECONDS_LEAST = 0.05
PATIENCE_SECONDS = 2.0
BEAT_PATIENCE_SECONDS = 1.0
"""A heartbeat is answered from memory, and nothing is stored for it."""
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
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What meta is to be asked."""

    path: str
    body: Mapping[str, Any]
    method: str = "POST"
    patience_s: float = PATIENCE_SECONDS


Next: TypeAlias = Request | Appoint | Told | Fence
"""What is to be done next: ask meta, or tell the machine or its door. All are answered."""


class Attendance:
    """One part of one broker."""

    def __init__(self, identity: Identity, load: Load | None = None) -> None:
        self._identity = identity
        self._load = load or Load()
        self.beat_s = BEAT_SECONDS
        """Until the next beat, as meta says."""
        self._known = 0
        """The revision up to which is known what was declared."""
        self._told: Told | None = None
        self._kept = 0
        """The revision up to which what was said is kept by the group, whoever leads it."""
        self._keeping: tuple[int, int] | None = None
        """A later one, and the end of the action log behind what was done for it."""
        self._state: State = "RW"
        self._registered = False
        self._survey = Survey()
        self._beat: Iterator[Next] = iter(())
        self._answer: Mapping[str, Any] = {}
        self._fenced: Fenced | None = None

    def beat(self, stood: Stood, state: State = "RW") -> Next:
        """A beat begins of a broker that can take so much; what is first to be done in it. What is left of the one
        before is forgotten.
        """
        self._state = state
        self._beat = self._steps(stood)
        return next(self._beat)

    def answered(self, status: int, answer: object) -> Next | None:
        """Meta has answered the request, or the machine has obeyed (200); what is next, nothing when that was all."""
        fields: Mapping[str, Any] = cast("Mapping[str, Any]", answer) if isinstance(answer, dict) else {}
        if status >= 400:
            raise self._refused(status, fields.get("error", {}))
        self._answer = fields
        self._fenced = answer if isinstance(answer, Fenced) else None
        return next(self._beat, None)

    def _refused(self, status: int, error: Any) -> MetaRefused:
        refused = MetaRefused(str(error.get("code", status)), str(error.get("detail", "")))
        if refused.code == "not_registered":
            self._registered = False
        return refused

    def _steps(self, stood: Stood) -> Iterator[Next]:
        one = self._identity
        if not self._registered:
            yield Request("/v1/brokers", self._registration(stood))
            self._registered = True
        yield Request(
            "/v1/brokers/heartbeat",
            self._heartbeat(stood),
            patience_s=min(self.beat_s, BEAT_PATIENCE_SECONDS),
        )
        answer = self._answer
        self.beat_s = max(BEAT_SECONDS_LEAST, answer.get("beat_ms", 1000 * BEAT_SECONDS) / 1000)
        appoint = obeyed(stood, answer)
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
        if stood.role == "master":
            yield from self._listen(answer)
            yield from self._fence()

    def _listen(self, answer: Mapping[str, Any]) -> Iterator[Next]:
        """What a master is to know of its subjects; it is asked for when there is news, as it may be long."""
        known = self._told or Told()
        state = cast("State", answer.get("state", "RW"))
        if answer.get("declared", 0) > self._known:
            body = {"group": self._identity.group, "known": self._known}
            yield Request("/v1/brokers/declared", body)
            try:
                told = read_told(self._answer, state)
            except TidemillError as error:
                raise MetaRefused("invalid_manifest", str(error)) from None
            yield told
            self._survey.removed(one.subject for one in told.removed if not one.group)
            self._survey.told(told.fences)
            self._known, self._told = told.revision, replace(told, fences=())
        elif known.state != state:
            told = replace(known, state=state, declared=(), removed=())
            yield told
            self._told = told

    def _fence(self) -> Iterator[Next]:
        """What the machine makes of the fences, and meta is to know of it."""
        for rows in self._survey.rows():
            yield Fence(rows)
            news = self._survey.news(self._fenced) if self._fenced is not None else None
            if news is not None:
                yield Request("/v1/brokers/fenced", {"group": self._identity.group, **news})
                self._survey.noted()

    def _registration(self, stood: Stood) -> Mapping[str, Any]:
        """With the epoch that it knows: a meta whose database was lost learns that it is not the first one."""
        one = self._identity
        return {
            "group": one.group, "name": one.name, "boot": one.boot, "folder": one.folder,
            "addresses": {"data": one.data, "control": one.control}, "labels": dict(one.labels),
            "epoch": max(stood.epoch, stood.begun),
        }  # fmt: skip

    def _note_kept(self, stood: Stood) -> None:
        """What was done since is in the log of whoever may become master, once that much is committed."""
        if self._keeping is None and self._known > self._kept:
            self._keeping = self._known, stood.ends.action
        if self._keeping is not None and stood.committed.action >= self._keeping[1]:
            self._kept, self._keeping = self._keeping[0], None

    def _heartbeat(self, stood: Stood) -> Mapping[str, Any]:
        if stood.role == "master":
            self._note_kept(stood)
        one = self._identity
        return {
            "group": one.group, "name": one.name, "boot": one.boot, "epoch": max(stood.epoch, stood.begun),
            "positions": {"messages": stood.ends.message, "actions": stood.ends.action},
            "load": self._load.measured(stood.ends.message, stood.at_ms), "state": self._state,
            "role": ROLES[stood.role], **({"told": self._kept} if stood.role == "master" and self._kept else {}),
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
