"""An experiment for crash points: messages that recur, life after life, and cancels of some.

The clock of each life stands elsewhere than that of the life before it ended. The broker never dies: what it has stored
was delivered. Which time an occurrence was planned for stands in its id.
"""

from __future__ import annotations

from samples.brokers import Rig
from samples.delays import NOW_MS, SMALL, SUBJECT, DelayRig, batch_id_of
from sim.crashpoints import first_problem
from sim.delaying import STORM
from sim.disk import Mount
from tidemill_delay.settings import DelaySettings
from tidemill_wire.batch import parse_message_id
from tidemill_wire.columns import Content
from tidemill_wire.recurrence import MISSED, Recurrence
from tidemill_wire.timing import Cancel, Changed, Show, Target, Waiting

MINUTE_MS = 60_000
FIRST_MS = (NOW_MS // MINUTE_MS + 1) * MINUTE_MS
CLOCK_STEPS_MS = (-3_000, 130_000, -20_000, -700)
STEP_MS = 7_300
STEPS = 24
DEAF = range(8, 12)
"""Steps of the first life in which answers of the broker get lost."""
CANCELS = {9: "all.ended", 17: "once.ended", 18: "none.ended"}
"""At which step which series is cancelled: the first of them just when an occurrence of it comes due."""
SERIES = {
    f"{missed}.{end}": 1 + index
    for index, (missed, end) in enumerate((one, end) for one in MISSED for end in ("kept", "ended"))
}
"""Timer keys, and the producer's batch of each."""


class Recurring:
    """See the module."""

    def __init__(self, settings: DelaySettings = SMALL) -> None:
        self._settings = settings
        self._broker = Rig(now_ms=NOW_MS)
        self._now_ms = NOW_MS
        self._arrived: list[tuple[int, str, bytes]] = []
        self._sent: set[str] = set()
        self._ended: dict[str, int] = {}
        """What was answered as cancelled: how many occurrences could have come by then."""
        self._problems: list[str] = []

    def live(self, life: int, disk: Mount) -> None:
        rig = self._begin(life, disk)
        for key, sequence in SERIES.items():
            if key not in self._sent:
                self._send(rig, key, sequence)
        for step in range(STEPS):
            rig.deaf = life == 1 and step in DEAF
            key = CANCELS.get(step)
            if key is not None and key not in self._ended:
                self._cancel(rig, key)
            rig.wait(STEP_MS)
            self._now_ms = rig.now_ms

    def _begin(self, life: int, disk: Mount) -> DelayRig:
        if life > 1:
            self._now_ms += CLOCK_STEPS_MS[(self._now_ms // STEP_MS) % len(CLOCK_STEPS_MS)]
        return DelayRig(self._settings, disk.disk, self._now_ms, self._broker, self._arrived)

    def _send(self, rig: DelayRig, key: str, sequence: int) -> None:
        """The same batch each time: what was stored and not answered is not stored again."""
        said = Recurrence(FIRST_MS, key.partition(".")[0], "UTC", "* * * * *").encode()
        content = Content([key.encode()], timer_keys=[key], cron=said)
        rig.send_as(sequence, content.bodies, FIRST_MS, content=content)
        self._sent.add(key)

    def _cancel(self, rig: DelayRig, key: str) -> None:
        answer = rig.ask(Cancel(Target(subject=SUBJECT, timer_key=key)))
        if not isinstance(answer, Changed):
            self._problems.append(f"{answer} for {key}")
            return
        self._ended[key] = max(rig.now_ms, rig.delay.state.begun_ms)

    def check(self, disk: Mount) -> list[str]:
        """The last life: every series that was not ended goes on, until it is."""
        rig = self._begin(11, disk)
        rig.wait(4 * MINUTE_MS)
        lately = range(rig.now_ms // MINUTE_MS - 2, rig.now_ms // MINUTE_MS + 1)
        planned = {key: [self._planned(key, one) for one in self._ids(key)] for key in SERIES}
        problems = [*self._problems]
        for key, times in planned.items():
            if key in self._ended:
                problems += [f"cancelled and came: {key} {at}" for at in times if at > self._ended[key]]
                continue
            problems += [f"lost: {key} in {at}" for at in lately if at * MINUTE_MS not in times]
            waits = self._waiting(rig, key)
            problems += [f"{waits} of {key} wait"] if waits != 1 else []
        for key, times in planned.items():
            problems += [f"twice: {key} {at}" for at in sorted(set(times)) if times.count(at) > 1]
            wanted = [FIRST_MS + index * MINUTE_MS for index in range(len(times))]
            problems += [f"a gap: {key} {times}"] if key.startswith("all") and times != wanted else []
        problems += [
            f"early: {body!r}"
            for at_ms, identity, body in self._arrived
            if at_ms < self._planned(body.decode(), identity)
        ]
        return problems + self._end(rig)

    def _end(self, rig: DelayRig) -> list[str]:
        """Nothing is left of what is cancelled."""
        for key in SERIES:
            self._cancel(rig, key)
        rig.wait(MINUTE_MS // 2)
        arrived = len(self._arrived)
        rig.wait(3 * MINUTE_MS)
        problems = [f"{rig.delay.state.waiting} messages wait for ever"] if rig.delay.state.waiting else []
        return problems + (["cancelled and came at last"] if len(self._arrived) > arrived else [])

    def _ids(self, key: str) -> list[str]:
        return [identity for _, identity, body in self._arrived if body.decode() == key]

    def _planned(self, key: str, identity: str) -> int:
        batch_id, _ = parse_message_id(identity)
        return FIRST_MS if batch_id == batch_id_of(SERIES[key]) else int.from_bytes(batch_id[:8], "big") >> 16

    def _waiting(self, rig: DelayRig, key: str) -> int:
        answer = rig.ask(Show(Target(subject=SUBJECT, timer_key=key)))
        assert isinstance(answer, Waiting), answer
        return len(answer.rows)


if __name__ == "__main__":
    raise SystemExit(first_problem(Recurring, STORM, draws=1) or None)
