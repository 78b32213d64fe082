"""An experiment for crash points: a clock that runs hours ahead, closes hours of the calendar, and is set back.

In the first life the clock is right, then somebody sets it ahead: what was due is given out, and the hours are closed.
From the next life on it is right again, and messages are sent for times in hours that are closed: each comes once, not
before its time by that clock, and not much later; what is moved there, too. The broker never dies.
"""

from __future__ import annotations

from samples.brokers import Rig
from samples.delays import HOUR_MS, NOW_MS, SMALL, SUBJECT, DelayRig
from sim.crashpoints import first_problem
from sim.delaying import STORM
from sim.disk import Mount
from tidemill_delay.settings import DelaySettings
from tidemill_wire.timing import Changed, ListTimers, Reschedule, Target, Waiting

AHEAD_MS = 3 * HOUR_MS + 12_345
BEFORE_MS = (700, 20_000, 2 * HOUR_MS)
AFTER_MS = (1_000, 90_000, HOUR_MS + 10, 2 * HOUR_MS, 3 * HOUR_MS, 4 * HOUR_MS, -1_000)
MOVED_MS = 2 * HOUR_MS + 5_000
LATE_MS = 3_000
"""A tick, and what a cut costs."""


class Backwards:
    """See the module."""

    def __init__(self, settings: DelaySettings = SMALL) -> None:
        self._settings = settings
        self._broker = Rig(now_ms=NOW_MS)
        self._now_ms = NOW_MS
        """As it is, whatever the clock says."""
        self._arrived: list[tuple[int, str, bytes]] = []
        self._due: dict[bytes, int] = {}
        """By a clock that is right; of what was sent before, not judged."""
        self._kept: set[bytes] = set()
        self._problems: list[str] = []
        self._closed = 0

    def live(self, life: int, disk: Mount) -> None:
        rig = self._begin(disk)
        if life == 1:
            for number, ahead_ms in enumerate(BEFORE_MS):
                self._send(rig, b"before.%d" % number, number, ahead_ms)
            rig.now_ms += AHEAD_MS
            rig.wait(5_000)
            self._send(rig, b"ahead", 10, -500)
            rig.wait(65_000)
            self._closed = rig.delay.state.closed_ms
            return
        for number, ahead_ms in enumerate(AFTER_MS):
            self._send(rig, b"%d.%d" % (life, number), 100 * life + number, ahead_ms)
            self._pass(rig, 700)
        listed = rig.ask(ListTimers(SUBJECT, f"{life}.", 0, rig.now_ms + HOUR_MS, "", 100))
        assert isinstance(listed, Waiting), listed
        if f"{life}.1" not in [row.timer_key for row in listed.rows]:
            self._problems.append("what is due soon is not listed")
        self._send(rig, b"%d.moved" % life, 100 * life + 50, 5 * HOUR_MS)
        key, due_ms = (b"%d.moved" % life).decode(), rig.now_ms + MOVED_MS
        if rig.ask(Reschedule(Target(subject=SUBJECT, timer_key=key), due_ms)) == Changed(1, 0):
            self._due[key.encode()] = due_ms
        self._pass(rig, 20_000)

    def _begin(self, disk: Mount) -> DelayRig:
        return DelayRig(self._settings, disk.disk, self._now_ms, self._broker, self._arrived)

    def _pass(self, rig: DelayRig, milliseconds: int) -> None:
        rig.wait(milliseconds)
        self._now_ms = rig.now_ms

    def _send(self, rig: DelayRig, body: bytes, number: int, ahead_ms: int) -> None:
        self._due[body] = min(self._due.get(body, 1 << 60), rig.now_ms + ahead_ms)
        rig.send_as(number, [body], rig.now_ms + ahead_ms, timer_keys=[body.decode()])
        self._kept.add(body)

    def check(self, disk: Mount) -> list[str]:
        """The last life, to the end of all times."""
        rig = self._begin(disk)
        rig.wait(8 * HOUR_MS)
        arrived = [body for _, _, body in self._arrived]
        problems = [*self._problems]
        problems += [f"lost: {body!r}" for body in sorted(self._kept - set(arrived))]
        problems += [f"twice: {body!r}" for body in sorted(set(arrived)) if arrived.count(body) > 1]
        for at_ms, _, body in self._arrived:
            wrong_ms = at_ms - self._due[body]
            if not body[:1].isdigit():
                continue
            if wrong_ms < 0:
                problems.append(f"early: {body!r} by {-wrong_ms} ms")
            if wrong_ms > LATE_MS and b".6" not in body and body in self._kept:
                problems.append(f"late: {body!r} by {wrong_ms} ms")
        if rig.delay.state.waiting:
            problems.append(f"{rig.delay.state.waiting} messages wait for ever")
        return problems


if __name__ == "__main__":
    raise SystemExit(first_problem(Backwards, STORM, draws=2) or None)
