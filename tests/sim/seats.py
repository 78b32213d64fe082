"""A broker group whose clients are everybody's, and what excuses something that lies in one of several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sim.autopsy import image_of, log_problems, read_log
from sim.calls import Calls
from sim.checkers import Ack, History, Outcome, Promise, Send, Terms
from sim.disk import Mount
from sim.noting import before_applied
from sim.whole import Cell
from sim.world import Env, World
from tidemill_broker.actions import Action, Pulled
from tidemill_broker.doors import Service
from tidemill_broker.machine import Broker
from tidemill_broker.settings import BrokerSettings
from tidemill_ledger.replication import Master

LEASE_MS_MIN = 1_000
"""Shorter ones end on their way over a far link; each time the message waits longer."""


class Seat(Cell):
    """One broker group. Its clients are everybody's; what was answered for it is told by the route of the key."""

    def __init__(self, seed: str, group: str) -> None:
        super().__init__(seed, group)
        self.clients = ()
        self.everything = History()
        """What was sent, wherever it lies."""

    def _draw_settings(self, seed: str) -> BrokerSettings:
        drawn = super()._draw_settings(seed)
        return replace(
            drawn,
            lease_ms=max(LEASE_MS_MIN, drawn.lease_ms),
            consumer_gone_ms=max(LEASE_MS_MIN, drawn.consumer_gone_ms),
        )

    def furnish(self, world: World, calls: Calls) -> None:
        self._world = self.world = world
        self._calls = self.calls = calls
        for name in self.servers:
            world.add_server(name, self._serve)

    def drained(self) -> bool:
        return self._is_whole()

    def may_be_lost(self, operation: Send | Ack) -> bool:
        return self._terms().may_be_lost(Promise.NORMAL, operation)

    def _declare(self, service: Service) -> None:
        """Meta says what is declared."""

    def _history_problems(self, terms: Terms) -> list[str]:
        return []  # what was given to whom is looked at for all broker groups at once

    def _master_problems(self, disk: Mount, broker: Broker, terms: Terms) -> list[str]:
        """What was answered for another broker group, or nobody knows which, need not lie here, and may not twice."""
        told = History()
        for name, send in self.everything.sends.items():
            here = send.place.startswith(f"{self.group}/")
            told.sends[name] = (
                replace(send, place=send.place.partition("/")[2])
                if here
                else replace(
                    send, place="", outcome=Outcome.UNKNOWN if send.outcome is Outcome.OK else send.outcome
                )
            )
        return log_problems(disk, broker, told, terms)

    def stored(self) -> Counter[str]:
        """The messages in its last master's log."""
        disk = self._world.nodes[self.book.appointment.master or self.servers[0]].disk
        service = self.running.get(self.book.appointment.master)
        if service is None:
            return Counter()  # without a master at the end, which is a problem by itself
        mount = image_of(disk).mount()
        return Counter(body.partition(b"|")[0].decode() for _, _, body in read_log(mount, service.broker))

    def _watch(self, machine: Any, env: Env) -> None:
        """Besides, that one consumer at a time is given messages of a group in order."""
        super()._watch(machine, env)
        if not isinstance(machine, Master):
            return

        def note(action: Action) -> None:
            if isinstance(action, Pulled):
                self._note_lock(machine.inner, action, env)

        before_applied(machine.inner.state, note)

    def _note_lock(self, broker: Broker, action: Pulled, env: Env) -> None:
        consumer = broker.state.consumers[action.consumer]
        if not consumer.group.ordered:
            return
        for kin in broker.state.family(consumer.group):
            for other in kin.consumers.values():
                if other.name != consumer.name and any(other.held()):
                    self.problems.append(
                        f"lock: {consumer.name} and {other.name} hold messages of {self.group} at {env.loop.now:.6f} s"
                    )


@dataclass(frozen=True, slots=True)
class RealmTerms(Terms):
    """What excuses is what happened to the broker group in which something lies; to any, where nobody knows."""

    seats: Sequence[Seat] = field(default=())

    def may_be_lost(self, promise: Promise, operation: Send | Ack) -> bool:
        group = operation.place.partition("/")[0]
        seats = [seat for seat in self.seats if seat.group == group] or self.seats
        return any(seat.may_be_lost(operation) for seat in seats)
