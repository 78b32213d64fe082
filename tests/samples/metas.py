"""Replicas of meta in virtual time on one store in memory: the rules as they run, without a loop and without ports."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from samples.meta_memory import MemoryStore
from tidemill_meta.beats import BrokerBeat, ClientBeat, Consumes
from tidemill_meta.brokers import Registration, parse_registration
from tidemill_meta.machine import Meta
from tidemill_meta.passages import note, parse_report
from tidemill_meta.picture import broker_rows
from tidemill_meta.registry import Draft
from tidemill_meta.settings import MetaSettings
from tidemill_meta.storing import Bulletin, Changes, Entry
from tidemill_meta.subjects import told_to
from tidemill_meta.values import BrokerGroup, Service, broker_key

Result = TypeVar("Result")
START_MS = 1_780_000_000_000
STEP_MS = 250


def done(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits for something")


class Replica:
    """One replica; what ``doors/replica.py`` does, one step after the other. ``ahead_ms`` is how its clock is wrong."""

    def __init__(self, world: World, name: str, ahead_ms: int = 0) -> None:
        self.name = name
        self.running = True
        self._world = world
        self._ahead_ms = ahead_ms
        self._number = 0
        self.meta = Meta(world.settings, self.now_ms, alone=world.store.alone)
        self.read()

    @property
    def now_ms(self) -> int:
        return self._world.now_ms + self._ahead_ms

    def read(self) -> None:
        self.meta.registry.apply(done(self._world.store.changes(self.meta.registry.revision)))

    def change(self, decide: Callable[[Draft, int], Result]) -> Result:
        """Decide and store, in this replica's turn."""
        answers: list[Result] = []

        def in_turn(changes: Changes) -> tuple[Entry, ...]:
            self.meta.registry.apply(changes)
            draft = Draft(self.meta.registry)
            answers.append(decide(draft, self.now_ms))
            return draft.entries()

        self.meta.registry.apply(done(self._world.store.commit(self.meta.registry.revision, in_turn)))
        return answers[0]

    def pulse(self) -> None:
        if not self.meta.senses.alone:
            self.exchange()
        self.meta.ticked(self.now_ms)
        self.change(self.meta.judge)

    def exchange(self) -> None:
        senses, asked_ms = self.meta.senses, self.now_ms
        self._number += 1
        body = json.dumps(senses.bulletin(asked_ms)).encode()
        board = done(self._world.store.exchange(Bulletin(self.name, self._number, body)))
        for bulletin in board.bulletins:
            if bulletin.replica != self.name and senses.is_new(bulletin.replica, bulletin.number):
                senses.learn(bulletin.replica, json.loads(bulletin.body), self.now_ms)
        self.read()
        senses.exchanged(asked_ms, asked_ms, self.now_ms)


class World:
    """Some replicas, the time, and the brokers and clients that tests make speak."""

    def __init__(self, replicas: int = 1, settings: MetaSettings | None = None) -> None:
        self.now_ms = START_MS
        self.settings = settings or MetaSettings()
        self.store = MemoryStore(alone=replicas == 1)
        self.replicas = [Replica(self, f"r{number}", 7_000_000 * number) for number in range(replicas)]

    @property
    def first(self) -> Replica:
        return self.replicas[0]

    def restart(self, number: int = 0) -> None:
        """A replica is killed, and started again."""
        old = self.replicas[number]
        self.replicas[number] = Replica(self, f"{old.name}x", old._ahead_ms)

    def pass_ms(self, duration_ms: int, speak: Callable[[], None] = lambda: None) -> None:
        """Let time pass, step by step; ``speak`` is called at each."""
        for _ in range(duration_ms // STEP_MS):
            self.now_ms += STEP_MS
            speak()
            for replica in self.replicas:
                if replica.running:
                    replica.pulse()

    # -- brokers ----------------------------------------------------------------------------------------------

    def register(
        self,
        group: str,
        name: str,
        boot: int = 1,
        *,
        at: int = 0,
        epoch: int = 0,
        labels: dict[str, str] | None = None,
        folder: str = "",
        service: Service = "broker",
    ) -> Any:
        replica = self.replicas[at]
        asked = registration(group, name, boot, epoch=epoch, labels=labels or {}, folder=folder)
        asked = replace(asked, service=service)
        answer = replica.change(lambda draft, now_ms: replica.meta.register(draft, asked, now_ms))
        replica.meta.registered(asked, replica.now_ms)
        return answer

    def beat(self, group: str, name: str, at: int = 0, **said: Any) -> Any:
        """A heartbeat, with the role that the broker has been given."""
        replica = self.replicas[at]
        known = self.group(group, at)
        boot = said.pop("boot", dict(known.replicas)[name])
        is_master = known.seated and known.master == name
        said = {"epoch": known.epoch, "role": "master" if is_master else "slave"} | said
        return replica.meta.broker_heard(BrokerBeat(group, name, boot, **said), replica.now_ms)

    def fence(self, *groups: str, at: int = 0, passed: Sequence[tuple[str, str]] = ()) -> None:
        """Their masters close to all order keys that are to leave them. ``passed`` are partitions, with groups that
        have settled what lay there.
        """
        replica = self.replicas[at]
        for group in groups:
            rows = told_to(replica.meta.registry, group, 0)["fences"]
            settled = [
                [name, one, number]
                for name, number, _ in rows
                for key, one in passed
                if key == f"{group}/{name}"
            ]
            body = {"group": group, "closed": [row[:2] for row in rows], "passed": settled}
            replica.change(lambda draft, _, body=body: note(draft, parse_report(body)))

    def group(self, name: str, at: int = 0) -> BrokerGroup:
        found = self.replicas[at].meta.registry.get(BrokerGroup, name)
        assert found is not None
        return found

    def in_sync(self, group: str, *names: str, at: int = 0) -> Any:
        """The master asks that these be in sync."""
        from tidemill_meta.asked import Asked
        from tidemill_meta.brokers import change_in_sync

        replica, known = self.replicas[at], self.group(group, at)
        body = {
            "master": known.master,
            "epoch": known.epoch,
            "version": known.version,
            "in_sync": list(names),
        }
        return replica.change(
            lambda draft, now_ms: change_in_sync(draft, replica.meta.senses, group, Asked(body), now_ms)
        )

    # -- clients ----------------------------------------------------------------------------------------------

    def client(
        self, name: str, *consumes: Consumes, at: int = 0, produces: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """A client's heartbeat, and what it is answered."""
        replica = self.replicas[at]
        beat = ClientBeat(name, produces, consumes)
        refused = replica.change(lambda draft, now_ms: replica.meta.use(draft, beat, now_ms))
        return {**replica.meta.client_heard(beat, 0, replica.now_ms), "refused": refused}


def registration(
    group: str,
    name: str,
    boot: int,
    *,
    epoch: int = 0,
    labels: dict[str, str] | None = None,
    folder: str = "",
) -> Registration:
    addresses = {"data": f"{broker_key(group, name).replace('/', '.')}:7400", "control": "h:7401"}
    return parse_registration(
        {
            "group": group,
            "name": name,
            "addresses": addresses,
            "labels": labels or {},
            "boot": boot,
            "epoch": epoch,
            "folder": folder,
        }
    )


def pair(world: World, at: int = 0) -> None:
    """A master and a slave in sync."""
    for name in ("g1-0", "g1-1"):
        world.register("g1", name, at=at)
    for name in ("g1-0", "g1-1"):
        world.beat("g1", name, at, messages=100)
    world.in_sync("g1", "g1-0", "g1-1", at=at)


def speaking(world: World, *names: str, at: int = 0, **said: Any) -> Callable[[], None]:
    """Heartbeats of these each second."""

    def speak() -> None:
        if world.now_ms % 1_000 == 0:
            for name in names:
                world.beat("g1", name, at, **({"messages": 100} | said))

    return speak


def state(world: World, at: int = 0) -> str:
    meta = world.replicas[at].meta
    return broker_rows(meta.registry, meta.senses, world.replicas[at].now_ms)["g1"]["state"]
