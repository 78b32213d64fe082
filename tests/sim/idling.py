"""An experiment without faults: whoever has the lock of a group in order does anything at all, and falls silent.

It stays connected, so nobody counts it as gone: only time can free its lock and end its leases. All its histories of a
few steps are gone through; after each of them the consumer that waits is given messages within ``PATIENCE_MS``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from samples.brokers import SUBJECT, TINY, Rig, pulls
from tidemill_wire.commands import Ack, Extend, Nack, Pull, Pulled, Release
from tidemill_wire.kinds import Mode

GROUP, OWNER, OTHER = "g", "owner", "other"
STEPS = ("pull", "long pull", "ack", "nack", "release", "extend", "a moment", "restart")
LENGTH = 3
MESSAGES = 12
WAIT_MS = 500
GONE_MS = 1_000
MOMENT_MS = 300
LONG_MS = 30_000
PATIENCE_MS = 2 * GONE_MS + WAIT_MS + GONE_MS
"""The lock of a pull that waits lasts that wait and as long as its consumer may be away, a lease as long as that; a
start keeps the others out for as long, in case it has forgotten one.
"""
SETTINGS = replace(TINY, lease_ms=60_000, consumer_gone_ms=GONE_MS, segment_bytes=1 << 20)


def pull(consumer: str, wait_ms: int) -> Pull:
    return Pull(GROUP, consumer, [SUBJECT], 2, 1 << 20, wait_ms, mode=Mode.EXCLUSIVE, held=None)


class Idling:
    """One history."""

    def __init__(self) -> None:
        self._rig = Rig(SETTINGS)
        self._rig.connect()
        for _ in range(MESSAGES):
            self._rig.send(b"tide")
        self._held: list[int] = []

    def problem(self, steps: Sequence[str]) -> str:
        """What it breaks."""
        rig = self._rig
        self._pull(0)
        for step in steps:
            self._take(step)
        answer = rig.ask(pull(OTHER, LONG_MS), 2)
        waited, number = 0, rig.correlation
        while answer is None and waited < PATIENCE_MS:
            rig.wait(MOMENT_MS)
            waited += MOMENT_MS
            answer = rig.answers.get(number)
        if not isinstance(answer, Pulled) or not answer.grants:
            return f"{OTHER} is given nothing {waited} ms after {OWNER} fell silent"
        return ""

    def _pull(self, wait_ms: int) -> None:
        answer = self._rig.ask(pull(OWNER, wait_ms))
        if isinstance(answer, Pulled) and answer.grants:
            self._held += pulls(answer)

    def _take(self, step: str) -> None:
        rig, held = self._rig, self._held
        match step:
            case "pull" | "long pull":
                self._pull(WAIT_MS if step == "long pull" else 0)
            case "a moment":
                rig.wait(MOMENT_MS)
            case "restart":
                rig.restart()
                rig.connect()
            case "extend" if held:
                rig.ask(Extend(GROUP, OWNER, SUBJECT, held))
            case "ack" | "nack" | "release" if held:
                said = {
                    "ack": Ack(GROUP, OWNER, SUBJECT, held),
                    "nack": Nack(GROUP, OWNER, SUBJECT, held, 0),
                    "release": Release(GROUP, OWNER, SUBJECT, held),
                }
                rig.ask(said[step])
                self._held = []
            case _:
                return


def histories() -> Iterator[tuple[str, ...]]:
    for length in range(LENGTH + 1):
        yield from product(STEPS, repeat=length)


def first_problem() -> str:
    """Of all histories, the first that breaks a promise; empty when none does."""
    for steps in histories():
        problem = Idling().problem(steps)
        if problem:
            return f"Cut(after {', '.join(steps) or 'nothing'}): {problem}"
    return ""


if __name__ == "__main__":
    raise SystemExit(first_problem() or None)
