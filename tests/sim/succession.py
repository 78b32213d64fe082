"""An experiment with a delay group: timers are cancelled and moved while the master falls silent, frame by frame, and
its slave is the next one. What was answered as cancelled never comes, what was answered as moved not before its new
time, what is gone comes, and nothing comes twice.

After every number of frames the connection between the two ends; then the slave goes on as it is, or from a checkpoint
that it has written, or from its disk after a kill or a power cut. The former master lives on, and hears of nothing.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

from samples.calendars import Calendars
from samples.delays import NOW_MS, SUBJECT, id_of
from tidemill_wire.commands import Command
from tidemill_wire.replication import Chunk
from tidemill_wire.timing import Cancel, Changed, Reschedule, Target

FIRST, SECOND = "a", "b"
DUE_MS = NOW_MS + 20_000
MOVED_MS = NOW_MS + 60_000
CANCELLED, MOVED, LEFT = (1, 2, 3, 4), (5, 6), (7, 8)
"""Batches of one message each, by what is asked of them: two by their timer keys, the others by their ids."""
BY_KEY = (2, 5)
PASSES = ("as it is", "with a checkpoint", "killed", "without power")
FRAMES_MAX = 200
BEATS, BEAT_MS = 3, 1_100
"""With these the slave hears what is committed, without which it writes no checkpoint."""


class Succession:
    """One run."""

    def __init__(self, frames: int, passes: str) -> None:
        self.seen = 0
        """Frames for the slave, from the first change on."""
        self._frames = frames
        self._passes = passes
        self._counting = False
        self._asked: dict[int, int] = {}
        """The number of the question about each batch."""
        events = 1 if passes == "with a checkpoint" else 1 << 20
        self._group = Calendars(FIRST, SECOND, checkpoint_events=events, checkpoint_pause_ms=0)
        self._group.passes = self._arrives

    def _arrives(self, target: str, command: Command) -> bool:
        if not self._counting or target != SECOND or not isinstance(command, Chunk):
            return self.seen <= self._frames
        self.seen += 1
        return self.seen <= self._frames

    def problem(self) -> str:
        """What it breaks."""
        group = self._group
        group.lead(1, FIRST, SECOND)
        sends = [self._send(number) for number in (*CANCELLED, *MOVED, *LEFT)]
        group.run()
        assert all(group.taken(FIRST, number) for number in sends)
        self._counting = True
        for batch in (*CANCELLED, *MOVED):
            self._change(batch)
        for _ in range(BEATS):
            group.tick(BEAT_MS)
        self._counting, self.seen = False, min(self.seen, self._frames)
        self._succeed()
        group.pass_time(35_000)
        early = Counter(group.arrived)
        group.pass_time(30_000)
        return self._judge(early, Counter(group.arrived))

    def _send(self, number: int) -> int:
        body = b"%d" % number
        master = self._group[FIRST]
        return master.send_later([body], DUE_MS, number=number, timer_keys=[body.decode()])

    def _change(self, batch: int) -> None:
        target = Target(id=id_of(batch))
        if batch in BY_KEY:
            target = Target(subject=SUBJECT, timer_key=str(batch))
        command = Cancel(target) if batch in CANCELLED else Reschedule(target, MOVED_MS)
        self._asked[batch] = self._group[FIRST].say(command)
        self._group.run()

    def _succeed(self) -> None:
        """The next master, in its own way."""
        group = self._group
        if self._passes == "with a checkpoint":
            group[SECOND].tick(600)
            group[SECOND].tick(600)
        group.cut = {FIRST}
        group.unlink(SECOND)
        if self._passes in ("killed", "without power"):
            group.restart(SECOND, power=self._passes == "without power")
        group.appoint(2, SECOND, [SECOND], to=SECOND)
        group[SECOND].meet()
        group.run()

    def _judge(self, early: Counter[bytes], arrived: Counter[bytes]) -> str:
        answers = self._group[FIRST].answers
        for batch in (*CANCELLED, *MOVED, *LEFT):
            body = b"%d" % batch
            told = answers.get(self._asked.get(batch, -1))
            if arrived[body] > 1:
                return f"twice: {batch}"
            if told == Changed(1, 0) and batch in CANCELLED and arrived[body]:
                return f"cancelled and delivered: {batch}"
            if told == Changed(1, 0) and batch in MOVED and early[body]:
                return f"moved, and delivered at its former time: {batch}"
            if batch not in CANCELLED and not arrived[body]:
                return f"lost: {batch}"
            if told is not None and told != Changed(1, 0):
                return f"{told} for {batch}"
        return ""


def first_problem() -> str:
    """Of all frames and ways, the first that breaks a promise; empty when none does."""
    whole = Succession(FRAMES_MAX, PASSES[0])
    problem = whole.problem()
    if problem:
        return f"Cut(after all frames): {problem}"
    assert len(CANCELLED) + len(MOVED) <= whole.seen < FRAMES_MAX
    for frames, passes in product(range(whole.seen + 1), PASSES):
        problem = Succession(frames, passes).problem()
        if problem:
            return f"Cut(after {frames} frames, {passes}): {problem}"
    return ""


if __name__ == "__main__":
    raise SystemExit(first_problem() or None)
