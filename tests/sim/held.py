"""A broker whose consumers may hold only so much, and so may all consumers of some of its subjects.

    a pull that is answered        gives no more than its identity and the subject have room for
    what is settled, or void       counts no more: the broker counts it again after each turn
    what is kept back              is given as soon as there is room, and in the end to everybody

Some consumers show who they are, several of them the same; some show nothing, and are bounded by the subjects alone.
After a start a broker does not know whose the deliveries are that it finds, until their consumers pull again: so an
identity may hold more then, and is given nothing until it holds less.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from sim.clients import Consuming
from sim.cluster import SUBJECTS, Cluster
from sim.granted import Asking, token_of, who_of
from sim.world import Env
from tidemill_broker.doors import Service
from tidemill_broker.groups import Group
from tidemill_broker.pull_log import Consumer
from tidemill_broker.pulls import Given, ParkedPull
from tidemill_wire.access import Access, Charter, Operation, Permission, TokenRow, digest_of
from tidemill_wire.declarations import API_VERSION, Declaration, parse_manifest
from tidemill_wire.quotas import Quota

NAMES = ("one", "two")
MOST = (2, 5, 40)


class Shown(Consuming):
    """A consumer that shows who it is, or nothing."""

    def __init__(self, held: Held, group: str) -> None:
        super().__init__(held, group)
        self._held = held

    def _token(self, env: Env) -> str:
        return self._held.tokens[env.name]


class Held(Cluster):
    """See the module."""

    probes = ("held_back", "over_quota", "subject_full")

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        rng = random.Random(f"{seed}/held")
        self.phases = replace(self.phases, faults_s=2.0)
        self.tokens = {name: rng.choice(("", *map(token_of, NAMES))) for name in self._consumers}
        """What each consumer shows."""
        self._bounds = {name: rng.choice((0, 0, 3, 12)) for name in SUBJECTS}
        consume = (Permission(frozenset({Operation.CONSUME}), ("*",)),)
        rows = {digest_of(token_of(name)): name for name in NAMES}
        self._access = Access(locked=True)
        self._access.obey(
            Charter(
                1,
                {who_of(name): consume for name in NAMES},
                {digest: TokenRow(name, who_of(name), digest, 0) for digest, name in rows.items()},
                {who_of(name): Quota(in_flight=rng.choice(MOST)) for name in NAMES},
            )
        )

    def _consuming(self, group: str) -> Consuming:
        return Shown(self, group)

    def _declared(self) -> list[Declaration]:
        return [
            parse_manifest(
                {
                    "apiVersion": API_VERSION,
                    "kind": "Subject",
                    "metadata": {"name": name},
                    "spec": {
                        "config": [{"name": "durability", "value": promise.value}],
                        **({"quota": {"inFlight": self._bounds[name]}} if self._bounds[name] else {}),
                    },
                }
            )
            for name, promise in SUBJECTS.items()
        ]

    def _opened(self, service: Service, env: Env) -> None:
        service.server.gate = Asking(self._access)
        pulls: Any = service.broker.serving.pulls
        collect = pulls.collect

        def collect_and_look(parked: ParkedPull, consumer: Consumer, now_ms: int) -> Given:
            rooms = self._rooms(parked, consumer.group)
            given: Given = collect(parked, consumer, now_ms)
            for name, room in rooms.items():
                if given.messages > max(0, room):
                    self.problems.append(f"{given.messages} are given where {name} has room for {room}")
            if parked.kept_back is not None:
                self.note("held_back" if parked.kept_back is parked.hold else "subject_full")
            return given

        pulls.collect = collect_and_look

    def _rooms(self, parked: ParkedPull, group: Group) -> dict[str, int]:
        holds = [group.subject_hold, *([] if parked.hold is None else [parked.hold])]
        return {hold.name: hold.room for hold in holds}

    def check(self, world: Any) -> list[str]:
        for service in self._served:
            told = service.broker.intake.quotas.told_to_wait.rows("others")
            world.probes["over_quota"] += sum(number for _, number in told)
        return super().check(world)


def make(seed: str) -> Held:
    return Held(seed)
