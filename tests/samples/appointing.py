"""Meta as planners see it: broker groups, who leads them, who is in sync, and what it does when it is asked.

A broker is dead after five silent seconds; a slave that registers is in sync when it has caught up; a master that is
dead is succeeded by somebody in sync. A broker that begins a new life takes nothing of its former one along.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SILENT_MS = 5_000
CATCHES_UP_MS = 1_500


class Refused(Exception):
    """What the API server or meta does not do."""


@dataclass
class Member:
    """A broker as meta knows it."""

    name: str
    boot: int
    heard_ms: int
    since_ms: int
    epoch: int = 0
    in_sync: bool = False

    def alive(self, now_ms: int) -> bool:
        return now_ms - self.heard_ms < SILENT_MS


@dataclass
class GroupAtMeta:
    """A broker group as meta keeps it."""

    name: str
    epoch: int = 1
    version: int = 1
    master: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    allowed: str = "RW"
    draining: bool = False
    retired: bool = False
    left: int = 0
    begun: set[str] = field(default_factory=lambda: {"billing"})
    """The consumer groups that are in its partition."""
    keyed: int = 0
    """Subjects whose order keys lie there, and do not leave before a drain."""
    position: int = 100

    def row(self, now_ms: int) -> dict[str, Any]:
        led = self.master in self.members
        return {
            "group": self.name, "epoch": self.epoch, "version": self.version, "allowed": self.allowed,
            "state": self.allowed, "draining": self.draining, "retired": self.retired,
            "master": self.master if led else "", "problem": "" if led else "nobody leads",
            "in_sync": sorted(one.name for one in self.members.values() if one.in_sync),
            "brokers": [
                {"name": one.name, "role": "master" if one.name == self.master else "slave",
                 "alive": one.alive(now_ms), "in_sync": one.in_sync, "epoch": one.epoch, "boot": one.boot,
                 "positions": {"messages": self.position, "actions": 0},
                 "addresses": {"data": f"{one.name}:7400", "control": f"{one.name}:7401"}}
                for one in sorted(self.members.values(), key=lambda one: one.name)
            ],
        }  # fmt: skip

    # -- what happens ------------------------------------------------------------------------------------------

    def register(self, name: str, boot: int, now_ms: int) -> None:
        """A broker begins a life."""
        former = self.members.get(name)
        if former is not None and former.boot == boot:
            return
        first = not self.members
        master = self.members.get(self.master)
        led = master is not None and name != self.master and master.alive(now_ms)
        # Who was in sync may lead again when nobody else does; beside a master it has to catch up.
        kept = former is not None and former.in_sync and not led
        self.members[name] = Member(name, boot, now_ms, now_ms, self.epoch, in_sync=first or kept)
        if first:
            self.master = name
        elif self.master == name:
            heirs = [
                one for one in self.members.values() if one.in_sync and one.alive(now_ms) and one.name != name
            ]
            if heirs:
                self.master, self.members[name].in_sync = heirs[0].name, False
            self.epoch += 1
        self.version += 1

    def judge(self, beats: Mapping[str, int], slow: set[str], now_ms: int) -> None:
        """Half a second has gone by. ``beats``: who is there, and in which life."""
        master = self.members.get(self.master)
        for one in self.members.values():
            if beats.get(one.name) != one.boot:
                continue
            one.heard_ms, one.epoch = now_ms, self.epoch
            led = master is not None and master.alive(now_ms) and one is not master
            if led and not one.in_sync and now_ms - one.since_ms >= CATCHES_UP_MS and one.name not in slow:
                one.in_sync, self.version = True, self.version + 1
        if master is not None and master.alive(now_ms):
            for one in self.members.values():
                if one.in_sync and one is not master and not one.alive(now_ms):
                    one.in_sync, self.version = False, self.version + 1
            return
        able = [one for one in self.members.values() if one.in_sync and one.alive(now_ms)]
        if able:
            self.master, self.epoch, self.version = able[-1].name, self.epoch + 1, self.version + 1
            able[-1].epoch = self.epoch

    # -- what it is asked --------------------------------------------------------------------------------------

    def asked(self, what: list[str], body: Mapping[str, Any], now_ms: int) -> None:
        """As its HTTP port would; ``Refused`` says what it says."""
        match what:
            case ["handover"]:
                to = self.members.get(body["to"])
                if body["version"] != self.version or to is None or not to.in_sync or not to.alive(now_ms):
                    raise Refused(f"{body['to']} is no replica in sync of {self.name}")
                self.master, self.epoch = to.name, self.epoch + 1
            case ["drain"]:
                self.draining, self.keyed = True, 0
            case ["retire"]:
                if not self.draining:
                    raise Refused(f"{self.name} is in use")
                if self.keyed:
                    raise Refused(f"order keys have not left {self.name}")
                self.retired = True
            case ["state"]:
                self.allowed = body["state"]
            case ["brokers", said]:
                broker, _, how = said.partition("?")
                if self.members[broker].alive(now_ms):
                    raise Refused(f"{broker} is alive: stop it first")
                in_sync = [one.name for one in self.members.values() if one.in_sync]
                if in_sync == [broker] and len(self.members) > 1 and not (how or self.retired):
                    raise Refused(f"{broker} alone is in sync")
                del self.members[broker]
            case _:
                raise AssertionError(what)
        self.version += 1
