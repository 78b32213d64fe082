"""Who sends by a route that may be an old one, and who carries fences between a broker and meta."""

from __future__ import annotations

import random
from collections.abc import Mapping

from samples.brokers import Rig, batch_of
from samples.metas import World
from sim.ordered.checker import Checker
from tidemill_broker.surveying import Survey
from tidemill_meta.errors import Denied
from tidemill_meta.passages import note, parse_report
from tidemill_meta.storing import StoreAway
from tidemill_meta.subjects import told_to
from tidemill_meta.values import Route
from tidemill_wire.columns import Content
from tidemill_wire.commands import SendBatches, Sent
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.fencing import Fence, Fenced, parse_fence_row
from tidemill_wire.ordering import Chart

OUTDATED = KIND_BY_NAME["route_outdated"].number


class Sender:
    """A process that sends. It keeps the route that it knows until a broker refuses it, or by chance hears of another
    one; while it is ``cut`` it hears nothing. What is refused it sends again, before anything else of the key.

    Senders take turns with a key: one sends its next message when the one before was answered, whoever sent it.
    """

    def __init__(self, name: str, world: World, rigs: Mapping[str, Rig], checker: Checker) -> None:
        self.name = name
        self.cut = False
        self.waiting: dict[str, str] = {}
        """Of each key that was refused, the subject."""
        self._world = world
        self._rigs = rigs
        self._checker = checker
        self._charts: dict[str, Chart] = {}
        self._batches = 0

    def send(self, subject: str, key: str, chance: random.Random) -> None:
        """The next message of a key, to where it lies as far as this sender knows."""
        if (subject not in self._charts or chance.random() < 0.1) and not self._hear(subject, chance):
            return
        partition = self._charts[subject].of(key)
        self._batches += 1
        content = Content([f"{key}:{self._checker.sent[key]}".encode()], order_keys=[key])
        batch = batch_of(
            subject=partition.name, producer=hash_of(self.name), sequence=self._batches, content=content
        )
        answer = self._rigs[partition.group].ask(SendBatches(batch))
        assert isinstance(answer, Sent), answer
        if not answer.refused:
            self.waiting.pop(key, None)
            self._checker.sent[key] += 1
            return
        assert answer.refused[0][1] == OUTDATED, answer
        self._checker.seen["refused"] += 1
        self.waiting[key] = subject
        self._hear(subject, chance)

    def send_again(self, chance: random.Random) -> None:
        """What was refused."""
        for key, subject in list(self.waiting.items()):
            self.send(subject, key, chance)

    def _hear(self, subject: str, chance: random.Random) -> bool:
        """Ask any replica, which may know less than the others; whether this one knows a route then."""
        replica = chance.choice(self._world.replicas)
        route = replica.meta.registry.get(Route, subject)
        if not self.cut and replica.running and route is not None:
            known = self._charts.get(subject)
            if known is None or known.version < route.current.version:
                self._charts[subject] = Chart(route.current)
        return subject in self._charts


class Surveyor:
    """What ``attendance.py`` does for fences, with answers that get lost. A broker that starts again knows nothing."""

    def __init__(self, group: str, world: World, rig: Rig) -> None:
        self._group = group
        self._world = world
        self._rig = rig
        self._life = rig.broker
        self._survey = Survey()
        self._known = 0

    def beat(self, at: int, chance: random.Random) -> None:
        """At a replica that has answered the heartbeat."""
        if self._life is not self._rig.broker:
            self._life, self._survey, self._known = self._rig.broker, Survey(), 0
        replica = self._world.replicas[at]
        told = told_to(replica.meta.registry, self._group, self._known)
        if chance.random() < 0.1:
            return
        self._known = told["revision"]
        self._survey.told([parse_fence_row(row) for row in told["fences"]])
        for rows in self._survey.rows():
            answer = self._rig.ask(Fence(rows))
            assert isinstance(answer, Fenced), answer
            news = self._survey.news(answer)
            if news is None or chance.random() < 0.1:
                continue
            report = parse_report({"group": self._group, **news})
            try:
                replica.change(lambda draft, _, report=report: note(draft, report))
            except (Denied, StoreAway):
                continue
            if chance.random() > 0.1:
                self._survey.noted()


def hash_of(name: str) -> int:
    """A producer id."""
    return int.from_bytes(name.encode(), "big")
