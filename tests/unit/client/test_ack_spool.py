"""What the file of a spool of acks promises."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sim.crashpoints import Experiment, enumerate_crashes
from sim.disk import Mount, SimDisk
from sim.spools import SimAckFile
from sim.weather import CALM, Weather
from tidemill import Refused
from tidemill.ack_file import LockedFile
from tidemill.ack_spool import MAGIC, RECORD, AckSpool, Fate, Kept, Place
from tidemill_wire.commands import Ack, Nack, Release

ACK = Ack("g", "c", "a", [1, 5, 7, 7])
NACK = Nack("g", "c", "a", [6, 6], 30_000, "no amount", "ValueError", "shop.py:12 in charge", True)
RELEASE = Release("g", "d", "a", [8, 9])
STORM = Weather(torn_pages=0.5, ordered_names=False)


def opened(path: Path, bytes_max: int = 1 << 20) -> AckSpool:
    return AckSpool(LockedFile(path), str(path), bytes_max)


def fates(spool: AckSpool) -> list[Fate]:
    return [kept.fate for kept in spool.kept.values()]


def at_g0(*said: Fate) -> list[tuple[str, Fate]]:
    return [("g0", one) for one in said]


def test_what_is_kept_is_there_for_the_next_process_in_its_order_and_as_it_was_said(tmp_path):
    spool = opened(tmp_path / "acks")
    assert spool.keep(at_g0(ACK, NACK), 1000) == [1, 2]
    assert spool.keep([("g1", RELEASE)], 2000) == [3]
    spool.close()
    spool = opened(tmp_path / "acks")
    assert list(spool.kept.values()) == [
        Kept(1, 1000, "g0", ACK), Kept(2, 1000, "g0", NACK), Kept(3, 2000, "g1", RELEASE),
    ]  # fmt: skip
    assert [kept.place for kept in spool.kept.values()] == [
        Place("g0", "g", "c"), Place("g0", "g", "c"), Place("g1", "g", "d"),
    ]  # fmt: skip
    assert [kept.messages for kept in spool.kept.values()] == [6, 1, 2]
    assert spool.keep(at_g0(ACK), 3000) == [4]
    assert (spool.cut, spool.unread) == (0, 0)
    spool.close()


def test_what_was_told_is_gone_and_an_empty_spool_is_small(tmp_path):
    path = tmp_path / "acks"
    spool = opened(path)
    spool.keep(at_g0(ACK, NACK, RELEASE), 0)
    spool.told([2, 1, 99])
    spool.told([2])
    spool.close()
    spool = opened(path)
    assert fates(spool) == [RELEASE]
    spool.told([3])
    assert path.read_bytes() == MAGIC
    spool.close()


def test_of_the_delay_of_a_failure_the_time_in_the_file_goes_off():
    kept = Kept(1, 10_000, "g0", NACK)
    delays = [
        fate.delay_ms for now_ms in (0, 10_000, 15_000, 99_000) if isinstance(fate := kept.due(now_ms), Nack)
    ]
    assert delays == [30_000, 30_000, 25_000, 0]
    as_policy_says = Nack("g", "c", "a", [1, 1])
    assert Kept(1, 0, "g0", as_policy_says).due(5_000) == as_policy_says
    assert Kept(1, 0, "g0", ACK).due(5_000) is ACK


def test_a_torn_tail_of_any_length_is_cut_and_counted(tmp_path):
    path = tmp_path / "acks"
    spool = opened(path)
    spool.keep(at_g0(ACK), 0)
    first = path.stat().st_size
    spool.keep(at_g0(NACK), 0)
    spool.close()
    whole = path.read_bytes()
    for length in range(first, len(whole)):
        path.write_bytes(whole[:length])
        spool = opened(path)
        assert fates(spool) == [ACK]
        assert spool.cut == length - first
        assert path.stat().st_size == first
        spool.close()


def test_behind_a_record_that_went_bad_nothing_is_believed(tmp_path):
    path = tmp_path / "acks"
    spool = opened(path)
    spool.keep(at_g0(ACK), 0)
    first = path.stat().st_size
    spool.keep(at_g0(NACK), 0)
    spool.keep(at_g0(RELEASE), 0)
    spool.close()
    data = bytearray(path.read_bytes())
    data[first + RECORD.size + 3] ^= 1
    path.write_bytes(data)
    spool = opened(path)
    assert fates(spool) == [ACK]
    assert spool.cut == len(data) - first
    spool.close()


def test_a_record_of_another_version_is_passed_over_and_counted(tmp_path):
    from tidemill.ack_spool import _record

    path = tmp_path / "acks"
    spool = opened(path)
    spool.keep(at_g0(ACK), 0)
    spool.close()
    path.write_bytes(path.read_bytes() + _record([3, "what is this"]) + _record([1, 5, 0, "g0", b"no frame"]))
    spool = opened(path)
    assert (fates(spool), spool.unread, spool.cut) == ([ACK], 2, 0)
    spool.close()


def test_a_full_spool_says_so_and_has_room_again_when_something_was_told(tmp_path):
    path = tmp_path / "acks"
    spool = opened(path, bytes_max=400)
    count = 0
    while spool.keep(at_g0(ACK), 0) is not None:
        count += 1
    assert count > 2
    assert path.stat().st_size <= 400
    spool.told([1])
    assert spool.keep(at_g0(Nack("g", "c", "a", [1, 1], reason="x" * 300)), 0) is None, (
        "it is larger than an ack"
    )
    assert spool.keep(at_g0(RELEASE), 0) == [count + 1]
    assert path.stat().st_size <= 400
    spool.close()
    spool = opened(path, bytes_max=400)
    assert fates(spool) == [ACK] * (count - 1) + [RELEASE]
    spool.close()


def test_one_process_at_a_time_has_the_file_also_after_it_was_written_anew(tmp_path):
    path = tmp_path / "acks"
    spool = opened(path)
    with pytest.raises(Refused, match="in use by another process"):
        opened(path)
    spool.keep(at_g0(ACK, NACK), 0)
    spool.told([1, 2])
    with pytest.raises(Refused, match="in use by another process"):
        opened(path)
    spool.close()
    opened(path).close()


def test_a_file_that_is_something_else_is_left_alone(tmp_path):
    path = tmp_path / "acks"
    path.write_bytes(b"something else entirely, which somebody needs")
    file = LockedFile(path)
    with pytest.raises(Refused, match=f"{path} is no spool of acks"):
        AckSpool(file, str(path), 1 << 20)
    file.close()
    assert path.read_bytes().startswith(b"something else")


@pytest.mark.parametrize("kind", ["append", "sync"])
def test_after_a_write_that_failed_the_next_one_is_whole(kind):
    disk = SimDisk(random.Random(1))
    spool = AckSpool(SimAckFile(disk.mount(), "acks"), "acks", 1 << 20)
    spool.keep(at_g0(ACK), 0)
    disk.fail_at[kind] = 1
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        spool.keep(at_g0(NACK), 0)
    assert spool.keep(at_g0(RELEASE), 0)
    disk.power_cut()
    spool = AckSpool(SimAckFile(disk.mount(), "acks"), "acks", 1 << 20)
    assert fates(spool) == [ACK, RELEASE]
    assert spool.cut == 0


class Keeping(Experiment):
    """Keeps, tells and fills up, from the beginning in each life; knows what was answered as kept, and told."""

    def __init__(self) -> None:
        self._kept: dict[int, Fate] = {}
        self._trying: list[Fate] = []
        self._told: set[int] = set()
        self._serial = 0
        self.found: list[str] = []

    def live(self, life: int, disk: Mount) -> None:
        spool = AckSpool(SimAckFile(disk, "acks"), "acks", 2_000)
        self._look(spool)
        for _ in range(12):
            self._serial += 1
            said = [Ack("g", "c", "a", [self._serial * 10, self._serial * 10 + part]) for part in range(3)]
            self._trying = list(said)
            numbers = spool.keep(at_g0(*said), 0)
            self._trying = []
            for number, one in zip(numbers or (), said, strict=False):
                self._kept[one.ranges[0] * 10 + one.ranges[1]] = one
                assert spool.kept[number].fate == one
            if len(spool.kept) > 9:
                gone = list(spool.kept)[:6]
                self._told |= {self._identity(spool.kept[number].fate) for number in gone}
                spool.told(gone)
        spool.close()

    def check(self, disk: Mount) -> list[str]:
        self._look(AckSpool(SimAckFile(disk, "acks"), "acks", 2_000))
        return self.found

    def _look(self, spool: AckSpool) -> None:
        there = {self._identity(fate) for fate in fates(spool)}
        missing = set(self._kept) - self._told - there
        strange = there - set(self._kept) - {self._identity(fate) for fate in self._trying}
        self.found += [f"kept and gone: {one}" for one in missing] + [f"never kept: {one}" for one in strange]
        for fate in fates(spool):  # what was on its way may be there as well
            self._kept[self._identity(fate)] = fate
        self._trying = []

    def _identity(self, fate: Fate) -> int:
        return fate.ranges[0] * 10 + fate.ranges[1]


@pytest.mark.parametrize("weather", [CALM, STORM], ids=["calm", "storm"])
def test_whatever_moment_a_process_dies_at_what_was_kept_and_not_told_is_there(weather: Weather):
    make: Callable[[], Experiment] = Keeping
    report = enumerate_crashes(make, weather=weather, draws=2, second_stride=13)
    problems: Sequence[object] = report.problems
    assert problems == []
    assert report.runs > 300
