"""What a broker of a group says to meta besides what any server of a group does, and is told.

warded   --what people declared or made read-only since, of a master; what it owes of it-->  wishing
wishing  --the set that it wishes-->  looking
looking  --what is left of subjects that are to go when they are empty-->  fencing
fencing  --FENCE, and what came of it when that is news; which one is refused, when that is-->  done

A master takes nothing before it was told for the first time, so that comes before a wish, which may be refused. Who
tells it must know of its mastership: another replica of meta may be behind what the master before it has obeyed.

What was declared and cannot be read, as by a broker of an earlier version, is complained of behind the wish.
What cannot be made of what was declared is owed, and tried again beat by beat; it holds up nothing. Nor does a fence
whose partition cannot be made. But a FENCE waits until it is committed, so it comes last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, cast

from tidemill_broker.gate import Inventory, Told, Unfenced, Unmade, read_told
from tidemill_broker.load import Load
from tidemill_broker.owing import owed_with
from tidemill_broker.surveying import Survey
from tidemill_ledger import attendance
from tidemill_ledger.attendance import Identity
from tidemill_wire.access import Charter
from tidemill_wire.asking import MetaRefused, Request
from tidemill_wire.declarations import Declaration
from tidemill_wire.errors import TidemillError
from tidemill_wire.fencing import Fence, Fenced
from tidemill_wire.replication import Appoint, Stood
from tidemill_wire.routes import State

Next: TypeAlias = Request | Appoint | Charter | Told | Fence | Unfenced | Inventory
"""What is to be done next: ask meta, or tell the machine or its door. All are answered."""


class BrokerAttendance(attendance.Attendance[Told | Fence | Unfenced | Inventory]):
    """One part of one broker."""

    def __init__(self, identity: Identity, load: Load | None = None) -> None:
        super().__init__(identity)
        self._load = load or Load()
        self._known = 0
        """The revision up to which is known what was declared."""
        self._told: Told | None = None
        self._kept = 0
        """The revision up to which what was said is kept by the group, whoever leads it."""
        self._keeping: tuple[int, int] | None = None
        """A later one, and the end of the action log behind what was done for it."""
        self._survey = Survey()
        self._owed: tuple[Declaration, ...] = ()
        """What was declared and could not be made yet."""
        self._unfenced = ""
        """Why a fence could not be put up, as the service was told last."""
        self._heard: object = None
        """What was answered last."""
        self._epoch = 0
        """As it stood when the beat began."""
        self._unheard: MetaRefused | None = None
        """Why what was declared could not be made out in this beat."""

    def answered(self, status: int, answer: object) -> Next | None:
        if status < 400:
            self._heard = answer
        return super().answered(status, answer)

    def _first(self, answer: Mapping[str, Any]) -> Iterator[Next]:
        self._unheard = None
        if self._told is not None or answer.get("epoch", 0) >= self._epoch:
            try:
                yield from self._listen(answer)
            except MetaRefused as refused:
                self._unheard = refused

    def _besides(self, answer: Mapping[str, Any]) -> Iterator[Next]:
        if self._unheard is not None:
            raise self._unheard
        yield from self._look()
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
                if self._told is None:  # it takes what it can: only an upgrade could ever end its waiting
                    yield replace(known, state=state)
                else:
                    yield from self._go_on(known, state)
                raise MetaRefused("invalid_manifest", str(error)) from None
            if told.revision < answer["declared"]:
                raise MetaRefused("behind", "a replica of meta answered that is behind the one before")
            yield from self._tell(replace(told, declared=owed_with(self._owed, told)))
            self._survey.removed(one.subject for one in told.removed if not one.group)
            self._survey.told(told.fences)
            self._known = told.revision
            self._told = replace(told, declared=(), removed=(), fences=(), vanished=())
        else:
            yield from self._go_on(known, state)

    def _go_on(self, known: Told, state: State) -> Iterator[Next]:
        """Without news of what was declared: the state may be another, and something may be owed."""
        if self._told is None or known.state != state or self._owed:
            told = replace(known, state=state)
            yield from self._tell(replace(told, declared=self._owed))
            self._told = told

    def _tell(self, told: Told) -> Iterator[Next]:
        """The service does what it can, and says what of it is owed: nothing else is said twice for that."""
        yield told
        self._owed = self._heard.declared if isinstance(self._heard, Unmade) else ()

    def _fence(self) -> Iterator[Next]:
        """What the machine makes of the fences, and meta is to know of it."""
        refused = ""
        for rows in self._survey.rows():
            yield Fence(rows)
            if not isinstance(self._heard, Fenced):
                continue
            refused = refused or self._heard.refused
            news = self._survey.news(self._heard)
            if news is not None:
                yield Request("/v1/brokers/fenced", {"group": self._identity.group, **news})
                self._survey.noted()
        if refused != self._unfenced:
            yield Unfenced(refused)
            self._unfenced = refused

    def _look(self) -> Iterator[Next]:
        """Beat by beat, as long as meta wants to know: it may come to be empty."""
        subjects = self._told.emptying if self._told is not None else ()
        if subjects:
            yield Inventory(subjects)
            said = {"epoch": self._epoch, "known": self._known, "rows": self._answer["rows"]}
            yield Request("/v1/brokers/emptying", {"group": self._identity.group, **said})

    def _note_kept(self, stood: Stood) -> None:
        """What was done since is in the log of whoever may become master, once that much is committed."""
        if self._keeping is None and self._known > self._kept:
            self._keeping = self._known, stood.ends.action
        if self._keeping is not None and stood.committed.action >= self._keeping[1]:
            self._kept, self._keeping = self._keeping[0], None

    def _heartbeat(self, stood: Stood) -> Mapping[str, Any]:
        self._epoch = stood.epoch
        if stood.role == "master":
            self._note_kept(stood)
        told = {"told": self._kept} if stood.role == "master" and self._kept else {}
        load = self._load.measured(stood.ends.message, stood.at_ms)
        return {**super()._heartbeat(stood), "load": load, **told}
