"""What became of messages in a storm, read from the diaries of ``storm_programs.py``: promises first, then times."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from e2e.queues import wait_until
from e2e.services import environment

PROGRAMS = Path(__file__).with_name("storm_programs.py")
START_SECONDS, DRAIN_SECONDS = 60.0, 120.0
END_SECONDS = 150.0
"""A producer ends when all was answered, or has failed."""


class Program:
    """One process of ``storm_programs.py``."""

    def __init__(self, errors: Path, *words: str, before: Sequence[str] = ()) -> None:
        self._errors = errors
        with errors.open("wb") as file:
            self.process = subprocess.Popen(
                [*before, sys.executable, str(PROGRAMS), *words], stdout=file, stderr=file, env=environment()
            )

    def end(self) -> None:
        """It finishes what it has begun."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(END_SECONDS) == 0, self._errors.read_text()[-2000:]

    def kill(self) -> None:
        """Whatever state it is in."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Tail:
    """A diary that still grows: its whole lines, each once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        path.touch()

    def lines(self) -> Iterator[list[str]]:
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        self._at += len(data)
        for line in data.decode().splitlines():
            yield line.split(" ")


def wait_begun(*diaries: Path) -> None:
    """Until something happened to each: processes take their time to start on a busy machine."""
    for diary in diaries:
        wait_until(f"there is something in {diary.name}", lambda diary=diary: begun(diary), START_SECONDS)


def begun(diary: Path) -> bool:
    return diary.exists() and diary.stat().st_size > 0


class Sent(NamedTuple):
    """A call that was answered: of which kind, when it began and ended, and its messages or whatever it was of."""

    kind: str
    asked: float
    answered: float
    rest: list[str]


class Produced:
    """All that a producer was told. ``begun`` of the answers are in the order in which they came."""

    def __init__(self, path: Path) -> None:
        self.failed: list[str] = []
        self.sends: list[Sent] = []
        for kind, asked, answered, *rest in Tail(path).lines():
            if kind == "failed":
                self.failed.append(" ".join(rest))
            else:
                self.sends.append(Sent(kind, float(asked), float(answered), rest))

    def of(self, *kinds: str) -> list[Sent]:
        return [one for one in self.sends if one.kind in kinds]

    @property
    def shared(self) -> set[int]:
        """Numbers that were answered."""
        return {number for one in self.of("shared") for number in range(int(one.rest[0]), int(one.rest[1]))}

    @property
    def ordered(self) -> set[tuple[int, int]]:
        """Keys and steps that were answered."""
        return {(int(one.rest[0]), int(one.rest[1])) for one in self.of("ordered")}

    def slowest(self, kind: str) -> float:
        return max((one.answered - one.asked for one in self.of(kind)), default=0.0)

    def probes(self, group: str) -> list[Sent]:
        return [one for one in self.of("probe") if one.rest[0] == group]

    def writes_again(self, group: str, moment: float) -> float:
        """How long after a moment a write that was begun after it was answered by a broker group."""
        later = (one.answered for one in self.probes(group) if one.asked > moment)
        return min(later, default=float("inf")) - moment

    def longest_gap(self, group: str, first: float, last: float) -> float:
        """Between two answers of a broker group, in a span of time."""
        moments = [one.answered for one in self.probes(group) if first <= one.answered <= last]
        return gaps(moments)[0][0]


def gaps(moments: Sequence[float]) -> list[tuple[float, float]]:
    """How long nothing came, and from when on; the longest first. One at least."""
    found = [(later - earlier, earlier) for earlier, later in pairwise(sorted(moments))]
    return sorted(found, reverse=True) or [(float("inf"), 0.0)]


def wait_drained(
    produced: Produced, consumed: Consumed, handled: Handled, groups: Callable[[], list[dict[str, Any]]]
) -> int:
    """Until all that was answered was handled, and brokers say that nothing is left; how much they say is left."""
    shared, ordered, deadline = produced.shared, produced.ordered, time.monotonic() + DRAIN_SECONDS
    while True:
        consumed.read()
        handled.read()
        rest = left(groups())
        if shared <= consumed.given and ordered <= handled.ended and not rest:
            return 0
        if time.monotonic() > deadline:
            return rest
        time.sleep(0.5)


def left(groups: list[dict[str, Any]]) -> int:
    """Messages that somebody would be given yet, or has."""
    return sum(row["lag"] + row["in_flight"] + row["failed"] for row in groups)


class Consumed:
    """What the shared group was given and acked, in the order of the diary."""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path)
        self.given: set[int] = set()
        self.acked: set[int] = set()
        self.again: list[int] = []
        """Given after their ack was answered: none, is the promise."""
        self.repeated = 0
        """Given once more, and not acked before."""

    def read(self) -> None:
        for word, numbers in self._tail.lines():
            found = [int(number) for number in numbers.split(",")]
            if word == "acked":
                self.acked.update(found)
                continue
            again = [number for number in found if number in self.acked]
            self.again += again
            self.repeated += sum(number in self.given for number in found) - len(again)
            self.given.update(found)


class Handled:
    """What workers by key did, in the order of the diary."""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path)
        self._begun: set[tuple[int, int]] = set()
        self._reached: dict[int, int] = defaultdict(lambda: -1)
        self._at_work: dict[int, set[str]] = defaultdict(set)
        self.ended: set[tuple[int, int]] = set()
        self.acked: set[tuple[int, int]] = set()
        self.wrong: list[str] = []
        """Out of order, or two at once: none, is the promise."""
        self.again: list[tuple[int, int]] = []
        self.repeated = 0

    def read(self) -> None:
        for word, pid, key, step, _ in self._tail.lines():
            message = int(key), int(step)
            match word:
                case "began":
                    self._began(pid, message)
                case "ended":
                    self._at_work[message[0]].discard(pid)
                    self._reached[message[0]] = max(self._reached[message[0]], message[1])
                    self.ended.add(message)
                case _:
                    self.acked.add(message)

    def _began(self, pid: str, message: tuple[int, int]) -> None:
        key, step = message
        if step > self._reached[key] + 1:
            self.wrong.append(f"k-{key} {step} was begun before {self._reached[key] + 1} was handled")
        if self._at_work[key]:
            self.wrong.append(f"k-{key} {step} was begun beside another one in {self._at_work[key]}")
        if message in self.acked:
            self.again.append(message)
        elif message in self._begun:
            self.repeated += 1
        self._begun.add(message)
        self._at_work[key].add(pid)
