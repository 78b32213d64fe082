"""Client processes that consume in order, as meta sees them, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samples.metas import World
from tidemill_meta.beats import Consumes
from tidemill_meta.values import Allocation

SECOND = 1_000
KEY = "s/g"


def ordered(allocation: int = 0, consumer: str = "c") -> Consumes:
    return Consumes("s", "g", consumer, "ordered", allocation)


def exclusive(allocation: int = 0, consumer: str = "c") -> Consumes:
    return Consumes("s", "g", consumer, "exclusive", allocation)


class Process:
    """A client process. It beats as often as it is told, and at once when its watch stream says that its allocation
    changed; it applies what it is answered, says so, and knows until when it may go on.
    """

    def __init__(
        self, world: World, name: str, at: int = 0, asks: Callable[[int], Consumes] = ordered
    ) -> None:
        self.name = name
        self.at = at
        self._asks = asks
        self.partitions: frozenset[str] = frozenset()
        self.until_ms = 0
        self.running = True
        self._world = world
        self._applied = self._said = self.due_ms = 0

    def beat(self) -> None:
        sent_ms = self._world.now_ms
        self._said = self._applied
        answer = self._world.client(self.name, self._asks(self._applied), at=self.at)
        row: dict[str, Any] = answer["consumes"][0]
        self.partitions = frozenset(row["partitions"])
        self.until_ms = sent_ms + row["authorised_ms"]
        self._applied = row["allocation"]
        self.due_ms = sent_ms + answer["beat_ms"]

    def speak(self) -> None:
        version = self._world.replicas[self.at].meta.registry.version(Allocation.KIND, KEY)
        due = self._world.now_ms >= self.due_ms
        if self.running and (due or self._said != self._applied or self._applied != version):
            self.beat()

    @property
    def handles(self) -> frozenset[str]:
        return self.partitions if self._world.now_ms < self.until_ms else frozenset()


def world_with(replicas: int = 1) -> World:
    world = World(replicas)
    for name in ("g1", "g2"):
        world.register(name, f"{name}-0")
    for replica in world.replicas:
        replica.read()
    return world


def keep_brokers(world: World, *processes: Process, at: int = 0):
    def speak() -> None:
        if world.now_ms % SECOND == 0:
            for name in ("g1", "g2"):
                world.beat(name, f"{name}-0", at)
        for process in processes:
            process.speak()

    return speak
