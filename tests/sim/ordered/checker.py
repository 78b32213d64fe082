"""What is promised of messages with an order key, looked at from outside."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Run:
    """A handler at work. ``excused``: its process stood still meanwhile, or its lease was ended by a clock that was set
    and it cannot be told so, which nobody can help.
    """

    process: str
    number: int
    excused: bool = False


@dataclass(slots=True)
class Checker:
    """Notes what happens, and what must not have happened."""

    violations: list[str] = field(default_factory=list[str])
    sent: Counter[str] = field(default_factory=Counter[str])
    completed: Counter[str] = field(default_factory=Counter[str])
    """Of each key, how many messages were handled at least once, from the first on."""
    acked: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    running: dict[str, list[Run]] = field(default_factory=dict[str, list[Run]])
    named: dict[str, int] = field(default_factory=dict[str, int])
    """Of each partition, the latest version of the allocation that a pull came by."""
    seen: Counter[str] = field(default_factory=Counter[str])
    """What the run has met; a run that met nothing proves nothing."""

    def begins(self, process: str, key: str, number: int) -> None:
        runs = self.running.setdefault(key, [])
        others = [run for run in runs if run.process != process and not run.excused]
        if others:
            self._wrong(
                f"{process} begins {key}:{number} while {others[0].process} is at {key}:{others[0].number}"
            )
        if any(run.process == process for run in runs):
            self._wrong(f"{process} begins {key}:{number} beside another one of the key")
        if number > self.completed[key]:
            self._wrong(f"{process} begins {key}:{number}, and {key}:{self.completed[key]} was not handled")
        if (key, number) in self.acked:
            self._wrong(f"{process} begins {key}:{number} after its ack was answered")
        self.seen["again"] += number < self.completed[key]
        self.seen["begun"] += 1
        runs.append(Run(process, number))

    def ends(self, process: str, key: str, number: int, *, handled: bool) -> None:
        self.running[key] = [
            run for run in self.running[key] if (run.process, run.number) != (process, number)
        ]
        if handled:
            self.completed[key] = max(self.completed[key], number + 1)
        self.seen["failed"] += not handled

    def stands_still(self, process: str) -> None:
        for runs in self.running.values():
            for run in runs:
                run.excused |= run.process == process

    def ended_by_clock(self, process: str, key: str, number: int) -> None:
        """The broker's clock was set forward, and this one's lease is over, which the consumer does not hear of."""
        for run in self.running.get(key, ()):
            run.excused |= (run.process, run.number) == (process, number)

    def dies(self, process: str) -> None:
        for key, runs in self.running.items():
            self.running[key] = [run for run in runs if run.process != process]

    def pulls(self, partition: str, version: int) -> None:
        self.named[partition] = max(self.named.get(partition, 0), version)

    def given(self, partition: str, version: int) -> None:
        if version < self.named.get(partition, 0):
            self._wrong(
                f"{partition} gave messages by version {version} after {self.named[partition]} was named"
            )

    def lost(self) -> list[str]:
        """What was sent and never acked, when all is over."""
        return [
            f"{key}:{number}"
            for key, count in self.sent.items()
            for number in range(count)
            if (key, number) not in self.acked
        ]

    def _wrong(self, what: str) -> None:
        self.violations.append(what)
