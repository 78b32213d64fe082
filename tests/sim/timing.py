"""An experiment for crash points: timers are cancelled and given other times while they come due, life after life.

The clock of each life stands elsewhere than that of the life before it ended, before or behind it; and at its beginning
it is asked to cancel what the life before it may have sent. The broker never dies: what it has stored was delivered.
"""

from __future__ import annotations

from samples.brokers import Rig
from samples.delays import BROKER, HOUR_MS, NOW_MS, SMALL, SUBJECT, DelayRig, id_of
from sim.crashpoints import first_problem
from sim.delaying import STORM
from sim.disk import Mount
from tidemill_delay.settings import DelaySettings
from tidemill_wire.timing import Cancel, Changed, Reschedule, Target

AHEAD_MS = (
    90_000, 2_600, 300, 900, 5_000, 700, 5_100, 2 * HOUR_MS, 1_200, 2_700, 1_000, 45_000, HOUR_MS + 10, 20_000, -1_000,
)  # fmt: skip
"""How far ahead the messages of a life are due. Of three the first is cancelled and the second moved, two steps later,
which is too late for some; the third is left alone.
"""
MOVED_MS = (1_000, 300, HOUR_MS, 0)
PAUSE_MS = 700
DEAF = range(4, 9)
"""Steps of a life in which answers of the broker get lost. At each of them there is a new connection, for to
one that is silent nothing more is sent.
"""
CLOCK_STEPS_MS = (-3_000, -20_000, 400_000, -700)


class Timing:
    """See the module."""

    def __init__(self, settings: DelaySettings = SMALL) -> None:
        self._settings = settings
        self._broker = Rig(now_ms=NOW_MS)
        self._now_ms = NOW_MS
        self._arrived: list[tuple[int, str, bytes]] = []
        self._names: dict[bytes, int] = {}
        """The producer's batch of each message."""
        self._due: dict[bytes, set[int]] = {}
        """When it is due; in doubt all times that it may have."""
        self._kept: set[bytes] = set()
        """Those that senders were told are kept."""
        self._cancelled: set[bytes] = set()
        self._doubtful: set[bytes] = set()
        """Nobody knows whether they are cancelled."""
        self._gone: set[bytes] = set()
        self._problems: list[str] = []

    def live(self, life: int, disk: Mount) -> None:
        rig = self._begin(life, disk)
        for index, body in enumerate(list(self._names)):
            if index % 2 and body not in self._cancelled:
                self._change(rig, body, None, by_key=False)
        for step, ahead_ms in enumerate(AHEAD_MS):
            rig.deaf = life == 1 and step in DEAF
            if rig.deaf:
                rig.delay.disconnected(BROKER, rig.now_ms)
                rig.meet()
            self._send(rig, life, step, ahead_ms)
            before = list(self._names)[-3:][0]
            match int(before.split(b".")[1]) % 3:
                case 0:
                    self._change(rig, before, None, by_key=step % 2 == 0)
                case 1:
                    due_ms = rig.now_ms + MOVED_MS[step % len(MOVED_MS)]
                    self._change(rig, before, due_ms, by_key=step % 2 == 0)
                case _:
                    pass
            rig.wait(PAUSE_MS)
            self._now_ms = rig.now_ms

    def _begin(self, life: int, disk: Mount) -> DelayRig:
        if life > 1:
            self._now_ms += CLOCK_STEPS_MS[(self._now_ms // PAUSE_MS) % len(CLOCK_STEPS_MS)]
        return DelayRig(self._settings, disk.disk, self._now_ms, self._broker, self._arrived)

    def _send(self, rig: DelayRig, life: int, step: int, ahead_ms: int) -> None:
        body = b"%d.%d" % (life, step)
        self._names[body] = 100 * life + step
        self._due[body] = {_told(rig.now_ms + ahead_ms, rig.now_ms)}
        rig.send_as(self._names[body], [body], rig.now_ms + ahead_ms, timer_keys=[body.decode()])
        self._kept.add(body)

    def _change(self, rig: DelayRig, body: bytes, due_ms: int | None, *, by_key: bool) -> None:
        """Cancel it, or give it another time; until that is answered nobody knows."""
        target = Target(id=id_of(self._names[body]))
        if by_key:
            target = Target(subject=SUBJECT, timer_key=body.decode())
        if due_ms is None:
            self._doubtful.add(body)
        else:
            self._due[body].add(_told(due_ms, rig.now_ms))
        self._now_ms = rig.now_ms
        answer = rig.ask(Cancel(target) if due_ms is None else Reschedule(target, due_ms))
        was_doubtful = body in self._doubtful
        match answer:
            case Changed(1, 0) if due_ms is None:
                self._cancelled.add(body)
            case Changed(1, 0) if due_ms is not None:
                self._due[body] = {_told(due_ms, self._now_ms)}
                self._doubtful.discard(body)  # it was there to be moved
            case Changed(0, 1):
                self._gone.add(body)
            case Changed(0, 0):
                known = body in self._cancelled or body not in self._kept or was_doubtful
                if not known and body not in {body for _, _, body in self._arrived}:
                    self._problems.append(f"not found: {body!r}")
            case _:
                self._problems.append(f"{answer} for {body!r}")

    def check(self, disk: Mount) -> list[str]:
        """The last life, to the end of all times."""
        rig = self._begin(11, disk)
        rig.wait(8 * HOUR_MS)
        arrived = [body for _, _, body in self._arrived]
        kept = self._kept - self._doubtful - self._cancelled
        problems = [*self._problems]
        problems += [f"cancelled and delivered: {body!r}" for body in sorted(self._cancelled & set(arrived))]
        problems += [f"gone and cancelled: {body!r}" for body in sorted(self._cancelled & self._gone)]
        problems += [f"gone and not delivered: {body!r}" for body in sorted(self._gone - set(arrived))]
        problems += [f"lost: {body!r}" for body in sorted(kept - set(arrived))]
        problems += [f"twice: {body!r}" for body in sorted(set(arrived)) if arrived.count(body) > 1]
        problems += [
            f"early: {body!r} by {min(self._due[body]) - at_ms} ms"
            for at_ms, _, body in self._arrived
            if at_ms < min(self._due[body])
        ]
        if rig.delay.state.waiting:
            problems.append(f"{rig.delay.state.waiting} messages wait for ever")
        return problems


def _told(due_ms: int, now_ms: int) -> int:
    """What was due when it was stored goes at once, wherever the next clock stands."""
    return due_ms if due_ms > now_ms else 0


if __name__ == "__main__":
    raise SystemExit(first_problem(Timing, STORM, draws=2) or None)
