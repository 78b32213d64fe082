"""An experiment for crash points: messages for later, placed, loaded and delivered, life after life, on tiny limits.

The broker that they go to never dies: what it has stored is what was delivered.
"""

from __future__ import annotations

from samples.brokers import Rig
from samples.delays import HOUR_MS, NOW_MS, SMALL, SUBJECTS, DelayRig
from sim.crashpoints import first_problem
from sim.disk import Mount
from sim.weather import Weather
from tidemill_delay.settings import DelaySettings

STORM = Weather(torn_pages=0.5, ordered_names=False, short_io=0.2)
LIFE_MS = HOUR_MS // 2
STEPS_MS = (200, -1_000, 90_000, 700, 2 * HOUR_MS, 45_000, 3_000, 100, HOUR_MS + 10, 20_000)
"""How far ahead the messages of a life are due."""


class Delaying:
    """See the module. ``answered`` is what senders were told is kept."""

    def __init__(self, settings: DelaySettings = SMALL) -> None:
        self._settings = settings
        self._broker = Rig(now_ms=NOW_MS)
        self._due: dict[bytes, int] = {}
        self._answered: dict[bytes, None] = {}
        self._arrived: list[tuple[int, str, bytes]] = []
        self._problems: list[str] = []

    def live(self, life: int, disk: Mount) -> None:
        rig = self._begin(life, disk)
        for number, ahead_ms in enumerate(STEPS_MS):
            self._send(rig, life, number, ahead_ms)
            rig.wait(LIFE_MS // len(STEPS_MS))
        self._note_late(rig)

    def _note_late(self, rig: DelayRig) -> None:
        """What should have come by now."""
        bodies = {body for _, _, body in self._arrived}
        self._problems += [
            f"late: {body!r}"
            for body in self._answered
            if body not in bodies and self._due[body] < rig.now_ms - 2 * self._settings.tick_ms
        ]

    def _begin(self, life: int, disk: Mount) -> DelayRig:
        now_ms = NOW_MS + LIFE_MS * (life - 1)
        return DelayRig(self._settings, disk.disk, now_ms, self._broker, self._arrived)

    def _send(self, rig: DelayRig, life: int, number: int, ahead_ms: int) -> None:
        bodies = [b"%d.%d.%d" % (life, number, index) + b" " * 60 for index in range(1 + number % 3)]
        due = [rig.now_ms + ahead_ms + 10_000 * index for index in range(len(bodies))]
        self._due |= dict(zip(bodies, due, strict=True))
        subject = SUBJECTS[number % len(SUBJECTS)]
        rig.send_as(100 * life + number // len(SUBJECTS), bodies, *due, subject=subject)
        self._answered |= dict.fromkeys(bodies)

    def check(self, disk: Mount) -> list[str]:
        """The last life, to the end of all times: what was answered came once, and nothing before its time."""
        rig = self._begin(11, disk)
        rig.wait(6 * HOUR_MS)
        bodies = [body for _, _, body in self._arrived]
        problems = [*self._problems]
        problems += [f"lost: {body!r}" for body in self._answered if body not in bodies]
        problems += [f"twice: {body!r}" for body in set(bodies) if bodies.count(body) > 1]
        problems += [
            f"early: {body!r} by {self._due[body] - at_ms} ms"
            for at_ms, _, body in self._arrived
            if at_ms < self._due[body]
        ]
        if rig.delay.state.waiting:
            problems.append(f"{rig.delay.state.waiting} messages wait for ever")
        return problems


if __name__ == "__main__":
    raise SystemExit(first_problem(Delaying, STORM, draws=2) or None)
