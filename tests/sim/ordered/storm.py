"""One run: consumers come, go, are killed and stand still, brokers and meta are started again, clocks jump, subjects
are expanded, broker groups drained, and senders go by routes that are old.

``python -m sim.ordered.storm --seeds 200`` runs as many, and names the seeds that broke a promise.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from samples.brokers import TINY, Rig
from samples.metas import STEP_MS, World
from sim.ordered.checker import Checker
from sim.ordered.moving import Sender, Surveyor
from sim.ordered.process import GROUP, SUBJECTS, Process
from tidemill_meta.asked import Asked
from tidemill_meta.beats import Consumes
from tidemill_meta.brokers import set_group_state
from tidemill_meta.errors import Denied
from tidemill_meta.retiring import drain
from tidemill_meta.storing import StoreAway
from tidemill_meta.subjects import expand, give_up_move
from tidemill_meta.values import Allocation, Route
from tidemill_wire.commands import Pulled

STEPS = 900
HEALING_STEPS = 1200
CONSUMERS = 4
SENDERS = 3
PARTITIONS_MAX = 8
HOUR_MS = 3_600_000
KEYS = tuple("abcdefgh")
SETTINGS = replace(
    TINY, lease_ms=60_000, consumer_gone_ms=10_000, segment_bytes=1 << 20, action_segment_bytes=1 << 20
)


class Storm:
    """See the module."""

    def __init__(self, seed: int, *, forward: float = 0.0) -> None:
        self._forward = forward
        """How likely it is at each step that a broker is started again, an hour later by its clock."""
        self.chance = random.Random(seed)
        self.checker = Checker()
        self.world = World(self.chance.choice((1, 1, 3)))
        for name in ("g1", "g2"):
            self.world.register(name, f"{name}-0")
        self.world.client("first", *(Consumes(one, GROUP, "first", "ordered") for one in SUBJECTS))
        self.world.first.meta.client_left("first", self.world.now_ms)
        for replica in self.world.replicas:
            replica.read()
        self.rigs = {name: Rig(SETTINGS) for name in ("g1", "g2")}
        self.senders = [
            Sender(f"s{number}", self.world, self.rigs, self.checker) for number in range(SENDERS)
        ]
        self.surveys = {name: Surveyor(name, self.world, rig) for name, rig in self.rigs.items()}
        self.processes: list[Process] = []
        self._born = 0
        self._looked: Counter[tuple[str, object]] = Counter()
        self._back: dict[int, int] = {}
        self._step = 0

    # -- a run -------------------------------------------------------------------------------------------------

    def run(self) -> list[str]:
        """What was broken."""
        for self._step in range(STEPS):
            self._trouble()
            self._produce()
            self._turn()
            if self.checker.violations:
                return self.checker.violations
        self._heal()
        for self._step in range(STEPS, STEPS + HEALING_STEPS):
            for sender in self.senders:
                sender.send_again(self.chance)
            self._turn()
            waiting = [key for sender in self.senders for key in sender.waiting]
            if self.checker.violations or not (self.checker.lost() or waiting):
                break
        for sender in self.senders:
            if sender.waiting:
                return [*self.checker.violations, f"never sent: {' '.join(sorted(sender.waiting))}"]
        lost = self.checker.lost()
        return self.checker.violations + ([f"never handled: {' '.join(lost[:10])}"] if lost else [])

    def _turn(self) -> None:
        world = self.world
        world.now_ms += STEP_MS
        if world.now_ms % 1000 == 0:
            self._beat_brokers()
        for replica in world.replicas:
            if replica.running:
                try:
                    replica.pulse()
                except StoreAway:
                    continue
        for rig in self.rigs.values():
            rig.wait(STEP_MS)
        for number, process in sorted(enumerate(self.processes), key=lambda _: self.chance.random()):
            if self._back.get(number, -1) == self._step:
                process.paused = process.asleep = False
            if process.asleep:
                process.slept_s += STEP_MS / 1000
            process.step(world.now_ms / 1000, self._ask_meta, self._allocation)
            self._look(process)

    def _beat_brokers(self) -> None:
        for name in self.rigs:
            for place, replica in enumerate(self.world.replicas):
                if replica.running:
                    try:
                        self.world.beat(name, f"{name}-0", place)
                        self.surveys[name].beat(place, self.chance)
                    except (Denied, StoreAway):
                        continue
                    break

    def _ask_meta(self, process: str, applied: Mapping[str, int]) -> Sequence[Mapping[str, Any]] | None:
        at = self.chance.randrange(len(self.world.replicas))
        if self.chance.random() < 0.05 or process in self._cut or not self.world.replicas[at].running:
            return None
        try:
            consumes = [
                Consumes(subject, GROUP, process, "ordered", version) for subject, version in applied.items()
            ]
            answer = self.world.client(process, *consumes, at=at)
        except (Denied, StoreAway):
            return None
        rows: list[dict[str, Any]] = answer["consumes"]
        return None if self.chance.random() < 0.05 else rows

    def _allocation(self, subject: str) -> int:
        """As a watch stream tells it."""
        found = self.world.first.meta.registry.get(Allocation, f"{subject}/{GROUP}")
        return found.version if found is not None else 0

    _cut: frozenset[str] = frozenset()

    def _look(self, process: Process) -> None:
        """No pull is given messages by a version that is over."""
        for group, waiting in process.waiting.items():
            rig = self.rigs[group]
            for correlation, versions in waiting.items():
                answer = rig.answers.get(correlation)
                if isinstance(answer, Pulled) and not self._looked[group, (id(rig.broker), correlation)]:
                    self._looked[group, (id(rig.broker), correlation)] += 1
                    for grant in answer.grants:
                        self.checker.given(f"{group}/{grant.subject}", versions[grant.subject])

    # -- messages ----------------------------------------------------------------------------------------------

    def _produce(self) -> None:
        for _ in range(self.chance.choice((0, 0, 0, 1, 2))):
            key = self.chance.choice(KEYS)
            sender = self.chance.choice(self.senders)
            sender.send(SUBJECTS[KEYS.index(key) % len(SUBJECTS)], key, self.chance)

    # -- trouble -----------------------------------------------------------------------------------------------

    def _trouble(self) -> None:
        self._trouble_anybody()
        if self._forward and self.chance.random() < self._forward:
            self._start_again(self.chance.choice(("g1", "g2")), HOUR_MS)

    def _start_again(self, group: str, ahead_ms: int) -> None:
        """A broker, with its clock set by so much."""
        rig = self.rigs[group]
        rig.now_ms += ahead_ms
        rig.restart()
        if ahead_ms > 0:
            for process in self.processes:
                process.clock_set(group, self.world.now_ms / 1000)

    def _trouble_anybody(self) -> None:
        chance = self.chance
        if len(self.processes) < CONSUMERS and chance.random() < 0.1:
            self._join()
        if not self.processes or chance.random() > 0.12:
            return
        number = chance.randrange(len(self.processes))
        process = self.processes[number]
        what = chance.choice(
            (
                "kill",
                "leave",
                "stop",
                "sleep",
                "cut",
                "cut",
                "clock",
                "broker",
                "meta",
                "calm",
                "move",
                "sender",
            )
        )
        self.checker.seen[what] += 1
        match what:
            case "kill":
                process.die()
                self._bury(number)
            case "leave":
                process.die()  # its connections end first: what it held is given back by the brokers
                self.world.first.meta.client_left(process.name, self.world.first.now_ms)
                self._bury(number)
            case "stop":
                process.paused = True
                self.checker.stands_still(process.name)
                self._back[number] = self._step + chance.randint(2, 160)
            case "sleep" if process.wall_ahead_s >= 0:
                process.asleep = True
                self.checker.stands_still(process.name)
                self._back[number] = self._step + chance.randint(2, 160)
            case "cut":
                self._cut = self._cut ^ {process.name}
            case "clock" if not process.asleep:
                process.wall_ahead_s += chance.choice((-3600.0, -5.0, 5.0, 3600.0))
            case "broker":
                self._start_again(chance.choice(("g1", "g2")), chance.choice((0, 0, -HOUR_MS, HOUR_MS)))
            case "meta":
                self._trouble_meta()
            case "move":
                self._move()
            case "sender":
                sender = chance.choice(self.senders)
                sender.cut = not sender.cut
            case _:
                pass

    def _trouble_meta(self) -> None:
        world, chance = self.world, self.chance
        number = chance.randrange(len(world.replicas))
        match chance.randrange(4):
            case 0:
                world.replicas[number].running = not world.replicas[number].running
            case 1 if not world.store.away:
                world.restart(number)
            case 2:
                world.store.away = True
            case _:
                world.store.away = False
                world.replicas[number].running = True

    def _move(self) -> None:
        """A person expands a subject, gives that up, or drains a broker group and takes it back."""
        replica = self.world.replicas[self.chance.randrange(len(self.world.replicas))]
        subject, what = (
            self.chance.choice(SUBJECTS),
            self.chance.choice(("expand", "expand", "give up", "drain")),
        )
        route = replica.meta.registry.get(Route, subject)
        if not replica.running or route is None or len(route.current.partitions) >= PARTITIONS_MAX:
            return
        more = len(route.current.partitions) + self.chance.randint(1, 2)
        asked = Asked({"partitions": more, "version": route.version})
        group = self.chance.choice(("g1", "g2"))
        try:
            match what:
                case "expand":
                    replica.change(
                        lambda draft, now_ms: expand(draft, replica.meta.senses, subject, asked, now_ms)
                    )
                case "give up":  # one of those that lose order keys has closed to them
                    replica.change(
                        lambda draft, now_ms: expand(draft, replica.meta.senses, subject, asked, now_ms)
                    )
                    self.surveys[group].beat(self.world.replicas.index(replica), self.chance)
                    replica.change(lambda draft, _: give_up_move(draft, subject))
                case _:
                    replica.change(lambda draft, now_ms: drain(draft, replica.meta.senses, group, now_ms))
                    again = Asked({"draining": 0})
                    replica.change(lambda draft, _: set_group_state(draft, group, again))
        except (Denied, StoreAway):
            return
        self.checker.seen[what] += 1

    def _join(self) -> None:
        self._born += 1
        subjects = self.chance.choice((SUBJECTS, SUBJECTS, *((one,) for one in SUBJECTS)))
        self.processes.append(Process(f"p{self._born}", self.rigs, self.chance, self.checker, subjects))

    def _bury(self, number: int) -> None:
        del self.processes[number]
        self._back = {place - (place > number): step for place, step in self._back.items() if place != number}

    def _heal(self) -> None:
        self._cut = frozenset()
        for sender in self.senders:
            sender.cut = False
        self.world.store.away = False
        for replica in self.world.replicas:
            replica.running = True
        for process in self.processes:
            process.paused = process.asleep = False
        self._back = {}
        if not any(len(process.tenures) == len(SUBJECTS) for process in self.processes):
            self._born += 1
            self.processes.append(Process(f"p{self._born}", self.rigs, self.chance, self.checker))


def hunt(seeds: Sequence[int]) -> tuple[dict[int, list[str]], Counter[str]]:
    """Seeds that broke something, and what all of them met."""
    found: dict[int, list[str]] = {}
    seen = Counter[str]()
    for seed in seeds:
        storm = Storm(seed)
        if violations := storm.run():
            found[seed] = violations
        seen += storm.checker.seen
    return found, seen


def main() -> int:
    parser = argparse.ArgumentParser(description="consumers in order, in a storm")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=50)
    options = parser.parse_args()
    found, seen = hunt(range(options.first, options.first + options.seeds))
    for seed, violations in found.items():
        sys.stderr.write(f"seed {seed}: {violations[0]}\n")
    print(f"{options.seeds} seeds, {len(found)} broken; met: {dict(sorted(seen.items()))}")
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())
