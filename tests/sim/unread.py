"""An experiment for crash points: an hour with more messages than the wheel has room for, and a disk that refuses to
read it.

The index of such an hour is read once more for each page of it. In each life one of these reads is refused, just after
a message has come for the part of the hour that is loaded already. A minute later it is read, and at the end of its
life the service has brought all that was due by then: nothing waits for the next life.
"""

from __future__ import annotations

from dataclasses import replace

from samples.delays import NOW_MS, SMALL, DelayRig
from sim.crashpoints import first_problem
from sim.delaying import LIFE_MS, STORM, Delaying
from sim.disk import Mount
from tidemill_delay.settings import DelaySettings

PAGED = replace(SMALL, wheel_messages=4, checkpoint_pause_ms=20_000)
SENDS = 6
APART_MS = 3_000
STEP_MS = 500
SOON_MS = 700
PAGE = 0
"""The token of the reads of an index."""


class Unread(Delaying):
    """See the module."""

    def __init__(self, settings: DelaySettings = PAGED) -> None:
        super().__init__(settings)

    def live(self, life: int, disk: Mount) -> None:
        rig = self._begin(life, disk)
        end_ms = rig.now_ms + LIFE_MS
        for number in range(SENDS):
            self._send(rig, life, number, (2 + number) * APART_MS)
        rig.holds_reads = True
        while not self._reads_more(rig):
            rig.load()
            rig.pump()
            if not rig.reads:
                rig.wait(STEP_MS)
        self._send(rig, life, SENDS, SOON_MS)
        rig.reads.sort(key=lambda read: read.token != PAGE)
        disk.disk.fail_at["read"] = 0
        rig.holds_reads = False
        rig.load()
        rig.pump()
        rig.wait(end_ms - rig.now_ms)
        self._note_late(rig)

    def _begin(self, life: int, disk: Mount) -> DelayRig:
        disk.disk.fail_at.clear()  # the life before may have ended within that read
        return super()._begin(life, disk)

    def _reads_more(self, rig: DelayRig) -> bool:
        """It waits for a page that is not the first one of its hour."""
        return rig.delay.nearing.high_ms(NOW_MS) is not None and any(read.token == PAGE for read in rig.reads)


if __name__ == "__main__":
    raise SystemExit(first_problem(Unread, STORM, draws=2) or None)
