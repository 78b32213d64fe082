"""Meta as one object: what is stored, what is heard, and every decision over the two. It does nothing itself.

``doors/replica.py`` reads and writes the store for it; a simulation does the same over a store in memory. A decision
is a function of a draft and the time, made in the replica's turn, and stored as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeVar

from tidemill_meta import emptying, vanishing
from tidemill_meta.asked import Asked
from tidemill_meta.beats import BrokerBeat, ClientBeat
from tidemill_meta.brokers import (
    NOT_SAID,
    Registration,
    appointment_map,
    check_life,
    register,
)
from tidemill_meta.consumers import grants_of, is_unsettled, judge_allocations
from tidemill_meta.errors import Denied
from tidemill_meta.picture import broker_rows, route_row
from tidemill_meta.promotion import judge
from tidemill_meta.registry import Draft, Registry, View
from tidemill_meta.senses import Senses
from tidemill_meta.settings import MetaSettings
from tidemill_meta.subjects import find_subject, use_group, use_subject
from tidemill_meta.values import (
    Allocation,
    Broker,
    BrokerGroup,
    ConsumerGroupRecord,
    Route,
    SubjectRecord,
    broker_key,
)
from tidemill_wire.errors import WireError

Answer = TypeVar("Answer")
FORGET_EVERY_MS = 60_000


class Meta:
    """One replica of meta, without its store and its ports."""

    def __init__(self, settings: MetaSettings, now_ms: int, *, alone: bool) -> None:
        self.settings = settings
        self.registry = Registry()
        self.senses = Senses(settings, now_ms, alone=alone)
        self.locked = False
        """Whether brokers ask who somebody is, and are told."""
        self._forgot_ms = now_ms

    # -- deciding ---------------------------------------------------------------------------------------------

    def judge(self, draft: Draft, now_ms: int, only: Collection[tuple[str, str]] | None = None) -> None:
        """What follows from who is there and who is not. Without a fresh view: nothing.

        ``only``: kinds and keys of what is looked at. Who found at leisure that something is to change looks at that
        alone in its turn, for which the other replicas wait.
        """
        if not self.senses.fresh(now_ms):
            return
        for group in list(draft.all(BrokerGroup)) if only is None else _groups(draft, only):
            judged = judge(group, self.senses.members(group, now_ms))
            if judged != group:
                draft.put(judged)
        emptying.lapse(draft, self.senses, now_ms)
        vanishing.lapse(draft, self.senses, now_ms)
        keys = None if only is None else {key for kind, key in only if kind == Allocation.KIND}
        if keys is None or keys:
            judge_allocations(draft, self.senses, now_ms, keys)

    def ticked(self, now_ms: int) -> None:
        """Time passed."""
        self.senses.ticked(now_ms)
        for group in self.registry.all(BrokerGroup):
            self.senses.sample(group, now_ms)
        if now_ms - self._forgot_ms >= FORGET_EVERY_MS:
            self._forgot_ms = now_ms
            self.senses.forget(self.registry, now_ms)

    def register(self, draft: Draft, asked: Registration, now_ms: int) -> Mapping[str, Any]:
        """A broker begins to live."""
        group = register(draft, self.senses, asked, now_ms)
        return self._told(draft, group, 0)

    def use(self, draft: Draft, beat: ClientBeat, now_ms: int) -> list[dict[str, Any]]:
        """Make what a client names and is not there yet; what cannot be made, and why."""
        refused: list[dict[str, Any]] = []
        for subject in beat.subjects:
            decide = partial(use_subject, senses=self.senses, subject=subject, now_ms=now_ms)
            _try(draft, refused, {"subject": subject}, decide)
        for consumes in beat.consumes:
            if draft.get(Route, consumes.subject) is not None:
                named = {"subject": consumes.subject, "group": consumes.group}
                _try(draft, refused, named, partial(use_group, senses=self.senses, consumes=consumes))
        return refused

    # -- answering --------------------------------------------------------------------------------------------

    def registered(self, asked: Registration, now_ms: int) -> None:
        """A registration is stored: the broker was heard."""
        broker = asked.broker
        known = BrokerBeat(broker.group, broker.name, broker.boot, 0, NOT_SAID, NOT_SAID)
        self.senses.brokers.hear(known.key, known, now_ms)

    def spoke(self, beat: BrokerBeat | ClientBeat, now_ms: int) -> bool:
        """Somebody spoke; whether it can be answered now.

        Without a fresh view it cannot, and is heard all the same: it is there, and the others shall know it from the
        next bulletin. Who is refused an answer must not be taken for dead because of it.
        """
        if self.senses.fresh(now_ms):
            return True
        if isinstance(beat, ClientBeat):
            self.senses.clients.hear(beat.client, beat, now_ms)
        elif self.registry.get(Broker, broker_key(beat.group, beat.name)) is not None:
            self.senses.brokers.hear(beat.key, beat, now_ms)
        return False

    def broker_heard(self, beat: BrokerBeat, now_ms: int) -> Mapping[str, Any]:
        """A broker's heartbeat, and its appointment."""
        self._check_fresh(now_ms)
        group = check_life(self.registry, beat)
        self.senses.brokers.hear(beat.key, beat, now_ms)
        if self.registry.knows_lost(beat.known):
            raise Denied("behind", f"this replica of meta knows no revision {beat.known}, as the broker does")
        told = self._told(self.registry, group, self.senses.lease_ms(group, beat.name, beat.boot, now_ms))
        return {**told, "revision": self.registry.revision}

    def _told(self, view: View, group: BrokerGroup, lease_ms: int) -> Mapping[str, Any]:
        """An appointment, where the others are, when to speak again, what people let the group take, and the revision
        of what they declared last.
        """
        brokers = (view.get(Broker, broker_key(group.name, name)) for name, _ in group.replicas)
        addresses = {broker.name: broker.data for broker in brokers if broker is not None}
        return {
            **appointment_map(group, lease_ms), "addresses": addresses, "beat_ms": self.settings.broker_beat_ms,
            "state": group.allowed, "declared": self.registry.last_told_at,
            **({"access": self.registry.access_version} if self.locked else {}),
        }  # fmt: skip

    def broker_left(self, beat: BrokerBeat, now_ms: int) -> None:
        """A broker stops, and serves nothing any more."""
        check_life(self.registry, beat)
        self.senses.brokers.leave(beat.key, beat, now_ms)

    def client_heard(self, beat: ClientBeat, known: int, now_ms: int) -> dict[str, Any]:
        """A client's heartbeat: routes that changed after the revision that it knows, and its consumers' partitions."""
        self._check_fresh(now_ms)
        self.senses.clients.hear(beat.client, beat, now_ms)
        known = self.knows(known)
        rows = list(grants_of(self.registry, self.senses, beat, now_ms))
        return {
            "revision": self.registry.revision,
            "beat_ms": self._beat_ms(beat, rows),
            "routes": [
                row for subject in beat.subjects if (row := self.route_since(subject, known)) is not None
            ],
            "consumes": rows,
        }

    def knows(self, known: int) -> int:
        """What a client knows that says it knows a revision: nothing where that one is lost."""
        return 0 if self.registry.knows_lost(known) else known

    def _beat_ms(self, beat: ClientBeat, rows: list[dict[str, Any]]) -> int:
        """When a client shall speak again: soon, when it is to have something and has not, or is not authorised yet."""
        ordered = [row for row in rows if "partitions" in row]
        if any(not row["authorised_ms"] for row in ordered) or is_unsettled(self.registry, beat):
            return self.settings.exchange_ms
        return self.settings.ordered_beat_ms if ordered else self.settings.client_beat_ms

    def owner_of(self, client: str, now_ms: int) -> str:
        """The identity whose client that is, as long as it is heard; empty when nobody speaks for it."""
        beat = self.senses.clients.beat(client)
        silent_ms = max(self.settings.authorisation_ms, 3 * self.settings.client_beat_ms)
        there = beat is not None and self.senses.clients.present(client, silent_ms, now_ms)
        return beat.who if beat is not None and there else ""

    def client_left(self, client: str, now_ms: int) -> None:
        """A client process ends; it has let go of everything."""
        self.senses.clients.leave(client, ClientBeat(client), now_ms)

    def route_since(self, subject: str, known: int) -> dict[str, Any] | None:
        """A subject's route, if it changed after a revision."""
        changed_at = self.registry.changed_at
        last = max(changed_at.get((kind, subject), 0) for kind in (Route.KIND, SubjectRecord.KIND))
        if last <= known:
            return None
        record, route = self.registry.get(SubjectRecord, subject), self.registry.get(Route, subject)
        return route_row(route, record) if record is not None and route is not None else None

    def route(self, subject: str) -> dict[str, Any]:
        """A subject's route."""
        record, route = find_subject(self.registry, subject)
        return route_row(route, record)

    def control_of(self, group: str, name: str) -> str | None:
        """Where the HTTP port of a broker is, as it registered."""
        broker = self.registry.get(Broker, broker_key(group, name))
        return None if broker is None else broker.control

    def brokers(self, now_ms: int) -> dict[str, dict[str, Any]]:
        """The masters, by broker group."""
        return broker_rows(self.registry, self.senses, now_ms)

    def delays(self, now_ms: int) -> list[dict[str, Any]]:
        """The masters of delay groups, in the order of their names."""
        rows = broker_rows(self.registry, self.senses, now_ms, "delay")
        return [rows[name] for name in sorted(rows)]

    def statistics(self, now_ms: int) -> dict[str, int]:
        """Numbers to watch."""
        groups = list(self.registry.all(BrokerGroup))
        members = [self.senses.members(group, now_ms) for group in groups]
        return {
            "revision": self.registry.revision,
            "subjects": sum(1 for _ in self.registry.all(SubjectRecord)),
            "groups": sum(1 for _ in self.registry.all(ConsumerGroupRecord)),
            "broker_groups": len(groups),
            "broker_groups_without_master": sum(
                not (group.seated and some[group.master].alive)
                for group, some in zip(groups, members, strict=True)
            ),
            "brokers": sum(len(some) for some in members),
            "brokers_alive": sum(one.alive for some in members for one in some.values()),
            "clients": sum(
                self.senses.clients.present(key, 2 * self.settings.client_beat_ms, now_ms)
                for key in self.senses.clients.peers()
            ),
        }

    def _check_fresh(self, now_ms: int) -> None:
        if not self.senses.fresh(now_ms):
            raise Denied(
                "behind", "this replica of meta does not know what the others do, the database is away"
            )


def _groups(draft: Draft, only: Collection[tuple[str, str]]) -> list[BrokerGroup]:
    found = (draft.get(BrokerGroup, key) for kind, key in only if kind == BrokerGroup.KIND)
    return [group for group in found if group is not None]


def asked_version(body: object) -> int:
    """The revision that a client's heartbeat says it knows."""
    return Asked(body).whole("known", 0)


def _try(
    draft: Draft, refused: list[dict[str, Any]], named: Mapping[str, str], decide: Callable[[Draft], None]
) -> None:
    """One of several decisions: when it cannot be, the others still can."""
    inner = Draft(draft)
    try:
        decide(inner)
    except Denied as error:
        refused.append(
            {**named, "code": error.kind.code, "detail": error.detail, "advice": error.kind.advice}
        )
    except WireError as error:
        refused.append(
            {**named, "code": error.kind.name, "detail": error.detail, "advice": error.kind.advice}
        )
    else:
        draft.merge(inner)
