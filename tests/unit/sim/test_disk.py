"""What is left after a kill and after a power cut, and what a disk may do before."""

from __future__ import annotations

import errno
import random

import pytest

from sim.disk import SimDisk
from sim.life import SimCrash
from sim.weather import Weather
from tidemill_host.disk import Disk, File

DRAWS = range(200)


def make_disk(draw=0, **weather):
    return SimDisk(random.Random(draw), Weather(**weather))


def contents(disk, name="log"):
    file = disk.mount().open(name)
    return file.read(0, file.size())


def durable_file(disk, name="log"):
    mount = disk.mount()
    file = mount.open(name, create=True)
    mount.sync_folder("")
    return file


def test_it_is_the_disk_that_the_host_knows():
    mount = make_disk().mount()
    disk: Disk = mount
    file: File = mount.open("log", create=True)

    assert file.append([b"ab", memoryview(b"cd"), bytearray(b"e")]) == 5
    assert file.read(1, 3) == b"bcd"
    assert file.read(4, 100) == b"e"
    assert file.read(100, 1) == b""
    assert file.read_now(0, 2) == b"ab"
    assert disk.list("") == ["log"]


def test_names_behave_as_files_do():
    mount = make_disk().mount()

    with pytest.raises(FileNotFoundError):
        mount.open("log")
    with pytest.raises(FileNotFoundError):
        mount.open("message/1", create=True)
    mount.make_folder("message")
    mount.open("message/2", create=True).append([b"two"])
    mount.open("message/1", create=True)
    assert mount.list("message") == ["1", "2"]
    mount.rename("message/2", "message/1")
    assert mount.list("message") == ["1"]
    assert mount.open("message/1").size() == 3
    mount.remove("message/1")
    assert mount.list("message") == []
    assert mount.list("missing") == []


def test_a_kill_keeps_the_page_cache_and_a_power_cut_keeps_what_was_synced():
    lengths = set()
    for draw in DRAWS:
        disk = make_disk(draw)
        file = durable_file(disk)
        file.append([b"synced"])
        file.sync()
        file.append([b"written"])
        disk.kill()
        assert contents(disk) == b"syncedwritten"
        disk.power_cut()
        kept = contents(disk)
        assert kept.startswith(b"synced")
        lengths.add(len(kept))

    assert {len(b"synced"), len(b"syncedwritten")} <= lengths


def test_old_handles_are_fenced_after_a_death():
    disk = make_disk()
    mount = disk.mount()
    file = mount.open("log", create=True)
    disk.kill()

    for act in (lambda: file.append([b"x"]), lambda: mount.open("log"), file.sync, file.size, mount.space):
        with pytest.raises(OSError, match="Bad file") as caught:
            act()
        assert caught.value.errno == errno.EBADF
    file.close()
    assert contents(disk) == b""


def test_closed_files_are_closed():
    file = make_disk().mount().open("log", create=True)
    file.close()

    with pytest.raises(OSError, match="Bad file"):
        file.append([b"x"])


def test_a_name_that_was_not_synced_may_be_lost_with_its_file():
    outcomes = set()
    for draw in DRAWS:
        disk = make_disk(draw)
        file = disk.mount().open("log", create=True)
        file.append([b"x"])
        file.sync()
        disk.power_cut()
        outcomes.add(tuple(disk.mount().list("")))

    assert outcomes == {(), ("log",)}


def test_a_rename_that_was_not_synced_leaves_the_old_or_the_new_and_a_synced_one_the_new():
    for synced, expected in ((False, {b"old", b"new"}), (True, {b"new"})):
        outcomes = set()
        for draw in DRAWS:
            disk = make_disk(draw)
            old = durable_file(disk, "table")
            old.append([b"old"])
            old.sync()
            mount = disk.mount()
            new = mount.open("table.tmp", create=True)
            new.append([b"new"])
            new.sync()
            mount.rename("table.tmp", "table")
            if synced:
                mount.sync_folder("")
            disk.power_cut()
            outcomes.add(contents(disk, "table"))
        assert outcomes == expected


def test_changes_of_names_survive_as_a_prefix_or_as_any_subset():
    def survivors(ordered):
        found = set()
        for draw in DRAWS:
            disk = make_disk(draw, ordered_names=ordered)
            mount = disk.mount()
            for name in ("1", "2", "3"):
                mount.open(name, create=True)
            disk.power_cut()
            found.add("".join(disk.mount().list("")))
        return found

    assert survivors(True) == {"", "1", "12", "123"}
    assert {"3", "13", "2"} <= survivors(False)


def test_a_folder_that_was_not_synced_takes_its_files_with_it():
    outcomes = set()
    for draw in DRAWS:
        disk = make_disk(draw)
        mount = disk.mount()
        mount.make_folder("message")
        mount.open("message/1", create=True)
        mount.sync_folder("message")
        disk.power_cut()
        outcomes.add(tuple(disk.mount().list("message")))

    assert () in outcomes


def test_kept_pages_may_be_torn_and_holes_are_zeros():
    shapes = set()
    for draw in DRAWS:
        disk = make_disk(draw, torn_pages=0.5)
        file = durable_file(disk)
        file.append([b"x" * 20_000])
        disk.power_cut()
        kept = contents(disk)
        assert set(kept) <= {0, ord("x")}
        shapes.add((len(kept), kept.count(0) > 0))

    assert (20_000, False) in shapes
    assert (0, False) in shapes
    assert any(zeros for _, zeros in shapes)


def test_what_lies_durable_in_a_torn_page_stays():
    for draw in DRAWS:
        disk = make_disk(draw, torn_pages=1.0)
        file = durable_file(disk)
        file.append([b"a" * 700])
        file.sync()
        file.append([b"b" * 5000])
        disk.power_cut()
        assert contents(disk)[:700] == b"a" * 700


def test_a_truncation_may_be_lost_unless_synced():
    for synced, expected in ((False, {3, 6}), (True, {3})):
        sizes = set()
        for draw in DRAWS:
            disk = make_disk(draw)
            file = durable_file(disk)
            file.append([b"abcdef"])
            file.sync()
            file.truncate(3)
            if synced:
                file.sync()
            disk.power_cut()
            sizes.add(len(contents(disk)))
        assert sizes == expected


def test_a_failed_sync_loses_pages_that_the_cache_still_shows():
    lost = 0
    for draw in DRAWS:
        disk = make_disk(draw)
        file = durable_file(disk)
        file.append([b"x" * 8192])
        disk.fail_at["sync"] = 0
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        file.sync()
        assert contents(disk) == b"x" * 8192
        disk.power_cut()
        lost += contents(disk) != b"x" * 8192

    assert 0 < lost < len(DRAWS)


def test_reads_and_writes_may_be_short_and_never_empty():
    disk = make_disk(short_io=0.5)
    file = durable_file(disk)

    sizes = {file.append([b"0123456789"]) for _ in range(100)}
    reads = {len(file.read(0, 10)) for _ in range(100)}

    assert sizes == reads == set(range(1, 11))


def test_reads_fail_when_told_and_only_once():
    disk = make_disk()
    file = durable_file(disk)
    file.append([b"x"])
    disk.fail_at["read"] = disk.operations + 2

    assert file.read(0, 1) == b"x"
    with pytest.raises(OSError, match="Input/output"):
        file.read(0, 1)
    assert file.read(0, 1) == b"x"


def test_a_refused_place_is_never_given_and_all_around_it_is():
    disk = make_disk()
    file = durable_file(disk)
    file.append([b"0123456789"])
    [name] = disk.names.cached
    disk.refuse(name, 4, 2)

    assert (file.read(0, 4), file.read(6, 4)) == (b"0123", b"6789")
    for position, size in ((0, 5), (4, 1), (5, 1), (3, 7)):
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                file.read(position, size)


def test_a_full_disk_takes_a_part_and_then_refuses():
    disk = make_disk()
    file = durable_file(disk)
    disk.capacity = 5

    assert file.append([b"0123456789"]) == 5
    with pytest.raises(OSError, match="No space") as caught:
        file.append([b"x"])
    assert caught.value.errno == errno.ENOSPC
    assert disk.mount().space() == (0, 5)


def test_cold_bytes_are_not_read_now():
    disk = make_disk(cold_reads=1.0)
    file = durable_file(disk)
    file.append([b"x"])

    assert file.read_now(0, 1) is None
    assert file.read(0, 1) == b"x"


def test_bit_rot_changes_one_bit_of_what_was_synced():
    disk = make_disk()
    file = durable_file(disk)
    assert not disk.rot()
    file.append([bytes(100)])
    file.sync()

    assert disk.rot()
    assert sum(byte.bit_count() for byte in contents(disk)) == 1


def test_every_operation_costs_time_and_a_slow_disk_more():
    costs = []
    disk = SimDisk(random.Random(0), charge=costs.append)
    file = durable_file(disk)
    file.sync()
    disk.slowness = 100.0
    file.sync()

    assert all(cost > 0 for cost in costs)
    assert costs[-1] == pytest.approx(100 * costs[-2])


@pytest.mark.parametrize("death", ["kill", "power_cut"])
def test_a_crash_inside_of_an_append_leaves_any_part_of_it(death):
    sizes = set()
    for draw in DRAWS:
        disk = make_disk(draw)
        file = durable_file(disk)
        disk.on_crash = getattr(disk, death)
        disk.crash_at = disk.operations + 1
        with pytest.raises(SimCrash):
            file.append([b"0123456789"])
        sizes.add(len(contents(disk)))

    assert {0, 10} <= sizes
    assert len(sizes) > 5
