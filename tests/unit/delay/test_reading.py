"""What is due is read a bounded part at a time, and a piece whose messages are due at many ticks seldom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.batches import CREATED_MS
from samples.delays import NOW_MS, SMALL, SUBJECT, DelayRig, id_of
from tidemill_delay import courier, kept, reading
from tidemill_delay.settings import DelaySettings
from tidemill_host.machine import Ready, Slice
from tidemill_host.zones import offset_in
from tidemill_wire.columns import Content
from tidemill_wire.recurrence import Recurrence
from tidemill_wire.timing import Cancel, Changed, Target

TICK_MS = SMALL.tick_ms
BEGIN_MS = NOW_MS + 60_000
LARGE = replace(
    SMALL,
    segment_bytes=1 << 20,
    action_segment_bytes=1 << 20,
    checkpoint_events=100_000,
    kept_bytes=DelaySettings().kept_bytes,
)


class CountingRig(DelayRig):
    """It knows what was read of the files of hours, and the most that was asked for together."""

    def begin_life(self, machine: object) -> None:
        self.read: list[int] = []
        self.most = self.under_way = 0
        super().begin_life(machine)  # type: ignore[arg-type]

    def carry_out(self, ready: Ready) -> None:
        for read in ready.reads:
            if isinstance(read.slice, Slice) and read.slice.size and read.slice.file.endswith("pieces"):
                self.read.append(read.slice.size)
        self.under_way = len(self.reads) + len(ready.reads)
        self.most = max(self.most, self.under_way)
        super().carry_out(ready)

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self.arrived]


def spread(rig: DelayRig, count: int, seconds: int, size: int = 100) -> list[bytes]:
    """One batch whose messages are due over so many seconds."""
    bodies = [b"%05d" % index + bytes(size) for index in range(count)]
    rig.send(bodies, *(BEGIN_MS + 1000 * seconds * index // count for index in range(count)))
    return bodies


@pytest.mark.parametrize("seconds", [10, 120])
def test_a_piece_is_read_once_for_half_a_minute_in_which_its_messages_are_due(
    monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    monkeypatch.setattr(kept, "KEPT_MS", 30_000)
    rig = CountingRig(LARGE)
    bodies = spread(rig, 100, seconds)
    rig.wait(60_000 + 1000 * seconds + TICK_MS)
    assert rig.bodies == bodies
    assert len(rig.read) == -(-seconds * 1000 // kept.KEPT_MS)
    assert all(
        0 <= at - BEGIN_MS - 10 * seconds * index <= TICK_MS for index, (at, _, _) in enumerate(rig.arrived)
    )
    assert rig.delay.state.waiting == 0
    assert rig.delay.courier.reading.kept.size == 0


def test_little_is_not_kept() -> None:
    rig = CountingRig(LARGE)
    bodies = spread(rig, 10, 10, size=10)
    rig.wait(80_000)
    assert rig.bodies == bodies
    assert len(rig.read) == len(bodies)


def test_when_much_is_kept_less_is_kept_of_the_next() -> None:
    rig = CountingRig(replace(LARGE, kept_bytes=40_000))
    bodies = [body for _ in range(20) for body in spread(rig, 100, 20)]
    most = 0
    while rig.now_ms < BEGIN_MS + 20_000 + TICK_MS:
        rig.wait(TICK_MS)
        most = max(most, rig.delay.courier.reading.kept.size)
    assert sorted(rig.bodies) == sorted(bodies)
    assert 40_000 <= most < 40_000 + 100 * 150 + kept.OBJECT_BYTES
    assert 20 < len(rig.read) < 20 * 40 / 2, "all in a tick are read in one go, and few of them need it"


def test_what_is_kept_and_cancelled_does_not_come_and_goes_from_memory() -> None:
    rig = CountingRig(LARGE)
    bodies = spread(rig, 40, 20)
    rig.wait(60_000 + 5_000)
    held = rig.delay.courier.reading.kept.size
    assert held
    came = len(rig.arrived)
    for index in range(came + 2, 40):
        assert rig.ask(Cancel(Target(id_of(1, index)))) == Changed(1, 0)
    rig.wait(60_000)
    assert rig.bodies == bodies[: came + 2]
    assert rig.delay.courier.reading.kept.size == 0
    assert rig.delay.state.waiting == 0


def test_part_of_a_unit_that_is_cancelled_is_left_out_of_what_was_kept() -> None:
    rig = CountingRig(LARGE)
    bodies = [b"%02d" % index + bytes(200) for index in range(40)]
    rig.send(bodies, *(BEGIN_MS + 5_000 * (index // 10) for index in range(40)))
    rig.wait(60_000 + TICK_MS)
    assert rig.bodies == bodies[:10]
    assert rig.ask(Cancel(Target(id_of(1, 15)))) == Changed(1, 0)
    rig.read.clear()
    rig.wait(20_000)
    assert rig.bodies == bodies[:15] + bodies[16:]
    assert rig.read == []


@pytest.mark.parametrize("death", ["restart", "power_cut"])
def test_what_was_sent_of_what_was_kept_is_known_when_it_is_sent_of_the_piece(death: str) -> None:
    rig = CountingRig(LARGE)
    bodies = spread(rig, 40, 20)
    rig.wait(60_000 + 5_000)
    rig.deaf = True  # the broker takes what it is sent, and nobody hears that
    rig.wait(5_000)
    rig.deaf = False
    getattr(rig, death)()
    rig.wait(20_000)
    assert rig.bodies == bodies
    assert rig.delay.state.waiting == 0


def test_many_small_pieces_that_are_due_together_are_read_some_at_a_time() -> None:
    """Nobody else has the loop while they are."""
    rig = CountingRig(LARGE)
    count = 3 * reading.UNITS_MAX
    bodies = [b"%05d" % index for index in range(count)]
    for index, body in enumerate(bodies):
        due = BEGIN_MS if index % 2 else BEGIN_MS + 30_000  # no neighbours
        rig.send([body + bytes(3000)], due)
    rig.wait(60_000 - TICK_MS)
    rig.holds_reads = True
    rig.wait(TICK_MS)
    rounds = 0
    while rig.reads:
        sizes = [read.slice.size for read in rig.reads if isinstance(read.slice, Slice)]
        assert len(sizes) <= reading.UNITS_MAX
        assert sum(sizes) <= courier.AHEAD_BYTES
        rig.load()
        rig.pump()
        rounds += 1
    assert rounds >= count // 2 // reading.UNITS_MAX
    rig.holds_reads = False
    rig.wait(40_000)
    assert len(rig.arrived) == count


def recurring(count: int) -> CountingRig:
    """Series that all recur each minute."""
    rig = CountingRig(LARGE)
    rig.delay.intake.zones = rig.delay.recurring.zones = offset_in
    first_ms = (NOW_MS // 60_000 + 1) * 60_000
    assert first_ms > CREATED_MS
    for number in range(count):
        said = Recurrence(first_ms, "once", "UTC", "* * * * *").encode()
        content = Content([b"%d" % number], timer_keys=["k"], cron=said)
        rig.send([b"%d" % number], first_ms, content=content)
    return rig


def test_many_series_that_recur_together_are_looked_at_some_at_a_time() -> None:
    from tidemill_delay.recurring import READS_MAX

    count = 5 * READS_MAX
    rig = recurring(count)
    rig.most = 0
    rig.wait(2 * 60_000 + 10)
    assert len(rig.arrived) == 2 * count
    assert rig.most <= READS_MAX + reading.UNITS_MAX
    assert rig.ask(Cancel(Target("", SUBJECT, "k"))) == Changed(count, 2 * count)


def test_while_the_disk_is_full_few_series_are_looked_at() -> None:
    from tidemill_delay.recurring import READS_MAX
    from tidemill_wire.errors import Unavailable

    count = 5 * READS_MAX
    rig = recurring(count)
    rig.delay.intake.refusal = Unavailable("disk_full", "it is")
    rig.wait(65_000)
    rig.read.clear()
    rig.wait(10_000)
    assert rig.arrived == []
    assert len(rig.read) <= 11 * READS_MAX
    rig.delay.intake.refusal = None
    rig.wait(2_000)
    assert len(rig.arrived) == count
