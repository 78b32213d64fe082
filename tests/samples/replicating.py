"""A broker group under meta in virtual time: logs as lists, replication as copying, and all that goes wrong with it.

It is the least that design and promise ask of a broker, written down once more: a master commits what all of the
in-sync set have that it was told of last, and of the set that it asked for; a slave follows the master of its epoch.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from samples.metas import STEP_MS, World
from tidemill_meta.asked import Asked
from tidemill_meta.beats import BrokerBeat
from tidemill_meta.brokers import hand_over
from tidemill_meta.errors import Denied

GROUP = "g"
BEAT_MS = 1_000


@dataclass
class Node:
    """A broker. ``log`` survives a kill; what it was told does not."""

    name: str
    boot: int = 1
    alive: bool = True
    registered: bool = False
    sees_meta: bool = True
    log: list[tuple[int, int]] = field(default_factory=list)
    epoch: int = 0
    master: str = ""
    in_sync: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    version: int = 0
    lease_until_ms: int = 0
    due_ms: int = 0

    @property
    def leads(self) -> bool:
        return self.alive and self.master == self.name


class Cluster:
    """One broker group, some replicas of meta."""

    def __init__(self, chance: random.Random, metas: int, brokers: int) -> None:
        self.world = World(metas)
        self.nodes = {f"b{number}": Node(f"b{number}") for number in range(brokers)}
        self.committed: list[tuple[int, int]] = []
        self.led = False
        self._chance = chance
        self._cut: set[frozenset[str]] = set()
        self._masters: dict[int, str] = {}
        self._written = 0

    # -- a step -----------------------------------------------------------------------------------------------

    def step(self, *, calm: bool = False) -> None:
        if not calm:
            self._trouble()
        self.world.now_ms += STEP_MS
        for node in self.nodes.values():
            if node.alive and node.sees_meta and self.world.now_ms >= node.due_ms:
                self._speak(node)
        for node in self.nodes.values():
            if node.leads:
                self._lead(node)
        for replica in self.world.replicas:
            if replica.running:
                replica.pulse()

    def heal(self) -> None:
        """Everything works again; then a message has to be committed."""
        self._cut.clear()
        for node in self.nodes.values():
            node.sees_meta = True
            if not node.alive:
                self.start(node)
        for replica in self.world.replicas:
            replica.running = True
        before = len(self.committed)
        for _ in range(160):
            self.step(calm=True)
            self.check()
        self.led = len(self.committed) > before

    def check(self) -> None:
        """No epoch has two masters."""
        for replica in self.world.replicas:
            for group in replica.meta.registry.all(_group_type()):
                known = self._masters.setdefault(group.epoch, group.master)
                assert known == group.master, f"epoch {group.epoch} has {known} and {group.master}"

    # -- what goes wrong --------------------------------------------------------------------------------------

    def _trouble(self) -> None:
        node = self._chance.choice(list(self.nodes.values()))
        match self._chance.randrange(80):
            case 0:
                node.alive = False
            case 1 | 2 if not node.alive:
                self.start(node)
            case 3 | 4:
                node.sees_meta = not node.sees_meta
            case 5:
                other = self._chance.choice(list(self.nodes))
                if other != node.name:
                    self._cut ^= {frozenset({node.name, other})}
            case 6:
                replica = self._chance.choice(self.world.replicas)
                replica.running = not replica.running
            case 7:
                self.world.restart(self._chance.randrange(len(self.world.replicas)))
            case 8:
                self.relieve(node.name)
            case _:
                pass

    def start(self, node: Node) -> None:
        """Again, with what it had on its disk."""
        node.alive, node.registered, node.boot = True, False, node.boot + 1
        node.epoch, node.master, node.in_sync, node.asked, node.lease_until_ms = (
            0,
            "",
            frozenset(),
            frozenset(),
            0,
        )

    def relieve(self, to: str) -> None:
        """A person hands over, whatever the master does just then: only what is sure may come of it."""
        for replica in self.world.replicas[:1]:
            try:
                replica.change(
                    lambda draft, now_ms, of=replica: hand_over(
                        draft, of.meta.senses, GROUP, Asked({"to": to}), now_ms
                    )
                )
            except Denied:
                continue

    # -- brokers ----------------------------------------------------------------------------------------------

    def _speak(self, node: Node) -> None:
        at = self._chance.randrange(len(self.world.replicas))
        if not self.world.replicas[at].running:
            node.due_ms = self.world.now_ms + STEP_MS
            return
        sent_ms = self.world.now_ms
        node.due_ms = sent_ms + BEAT_MS
        try:
            if not node.registered:
                self.world.register(GROUP, node.name, node.boot, at=at)
                node.registered = True
            role = "master" if node.leads else "slave"
            beat = BrokerBeat(GROUP, node.name, node.boot, node.epoch, len(node.log), 0, 0.0, "RW", role)
            replica = self.world.replicas[at]
            answer = replica.meta.broker_heard(beat, replica.now_ms)
        except Denied:
            return  # this replica does not know it yet, or does not know enough
        self._hear(node, answer, sent_ms)

    def _hear(self, node: Node, answer: dict[str, Any], sent_ms: int) -> None:
        if (answer["epoch"], answer["version"]) < (node.epoch, node.version):
            return
        if answer["version"] != node.version or answer["epoch"] != node.epoch:
            node.asked = frozenset()
        node.epoch, node.master = answer["epoch"], answer["master"]
        node.version, node.in_sync = answer["version"], frozenset(answer["in_sync"])
        node.lease_until_ms = sent_ms + answer["lease_ms"]

    def _lead(self, master: Node) -> None:
        if self._chance.random() < 0.7:
            self._written += 1
            master.log.append((master.epoch, self._written))
        for name, slave in self.nodes.items():
            if name != master.name and self._follows(slave, master) and self._chance.random() < 0.7:
                self._copy(master, slave)
        self._commit(master)
        self._ask(master)

    def _follows(self, slave: Node, master: Node) -> bool:
        together = frozenset({slave.name, master.name}) not in self._cut
        same = (slave.epoch, slave.master) == (master.epoch, master.name)
        return slave.alive and together and same

    def _copy(self, master: Node, slave: Node) -> None:
        """Cut what the master does not have, and take some of what it has."""
        same = 0
        while same < min(len(master.log), len(slave.log)) and master.log[same] == slave.log[same]:
            same += 1
        slave.log = master.log[: max(same, min(len(master.log), same + self._chance.randint(0, 20)))]

    def _commit(self, master: Node) -> None:
        """What all of the set have; of those that do not follow now nothing is known."""
        wanted = master.in_sync | master.asked
        if master.name not in wanted:
            return
        if wanted == {master.name} and self.world.now_ms >= master.lease_until_ms:
            return
        others = [self.nodes[name] for name in wanted if name != master.name]
        if not all(self._follows(other, master) for other in others):
            return
        reached = min([len(master.log), *(self._matching(master, other) for other in others)])
        shown = master.log[:reached]
        assert shown[: len(self.committed)] == self.committed[: len(shown)], (
            "a committed message was lost or changed"
        )
        if len(shown) > len(self.committed):
            self.committed = shown

    def _matching(self, master: Node, slave: Node) -> int:
        assert slave.log == master.log[: len(slave.log)] or slave.epoch == master.epoch
        same = 0
        while same < min(len(master.log), len(slave.log)) and master.log[same] == slave.log[same]:
            same += 1
        return same

    def _ask(self, master: Node) -> None:
        """Ask for a slave that has all that is committed. From then on what the larger set has counts."""
        if not master.sees_meta or master.asked or self._chance.random() < 0.5:
            return
        for name, slave in self.nodes.items():
            caught_up = self._follows(slave, master) and self._matching(master, slave) >= len(self.committed)
            if name in master.in_sync or not caught_up or master.name not in master.in_sync:
                continue
            at = self._chance.randrange(len(self.world.replicas))
            if not self.world.replicas[at].running:
                return
            wanted = master.in_sync | {name}
            master.asked = wanted
            body = {
                "master": master.name,
                "epoch": master.epoch,
                "version": master.version,
                "in_sync": sorted(wanted),
            }
            try:
                self._change(at, body)
            except Denied:
                master.asked = frozenset()
            return

    def _change(self, at: int, body: dict[str, Any]) -> None:
        from tidemill_meta.brokers import change_in_sync

        replica = self.world.replicas[at]
        replica.change(
            lambda draft, now_ms: change_in_sync(draft, replica.meta.senses, GROUP, Asked(body), now_ms)
        )


def _group_type() -> Any:
    from tidemill_meta.values import BrokerGroup

    return BrokerGroup
