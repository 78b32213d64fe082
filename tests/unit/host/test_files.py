"""Files: whole writes on a disk that takes as little as it likes, names that last, handles that are bounded."""

from __future__ import annotations

import errno
import random

import pytest

from samples.brokers import empty_disk, files_of, put_file, read_file
from sim.disk import SimDisk
from sim.life import SimCrash
from sim.weather import Weather
from tidemill_host import files as files_module
from tidemill_host.disk import RealDisk
from tidemill_host.files import BUFFERS_PER_CALL, SUSPECT, TEMPORARY, Files
from tidemill_host.machine import Append, Read, Remove, Replace, Slice, Unread
from tidemill_host.storage import Storage

LOG = "message/0.log"


def append(*parts: bytes, file: str = LOG) -> Append:
    return Append(file, parts, sum(map(len, parts)))


@pytest.mark.parametrize("seed", range(20))
def test_short_writes_are_carried_on_until_all_is_there(seed: int) -> None:
    rng = random.Random(seed)
    disk = empty_disk(seed, Weather(short_io=0.7))
    files = Files(disk.mount())
    whole = b""
    for _ in range(10):
        parts = [rng.randbytes(rng.randrange(50)) for _ in range(rng.randrange(6))]
        files.write(append(*parts))
        whole += b"".join(parts)

    assert read_file(disk, LOG) == whole
    assert files.read(Slice(LOG, 3, len(whole))) == whole[3:]


@pytest.mark.parametrize("count", [0, 1, BUFFERS_PER_CALL, 2 * BUFFERS_PER_CALL + 1])
def test_many_buffers_are_one_write(count: int, tmp_path) -> None:
    disk = RealDisk(str(tmp_path))
    files = Files(disk)
    files.write(append(*(bytes([index % 256]) for index in range(count))))

    assert files.read(Slice(LOG, 0, 10_000)) == bytes(index % 256 for index in range(count))
    files.close()


@pytest.mark.parametrize("short", [0.0, 0.7])
def test_replaced_file_is_the_old_one_or_the_new_one_whenever_the_power_goes(short: float) -> None:
    old, new = b"old" * 3000, b"new" * 5000
    for crash_at in range(1, 60):
        disk = SimDisk(random.Random(crash_at), Weather(short_io=short))
        put_file(disk, "checkpoint/1", old)
        disk.crash_at = crash_at
        try:
            Files(disk.mount()).write(Replace("checkpoint/1", lambda: new))
        except SimCrash:
            assert read_file(disk, "checkpoint/1") in {old, new}
        else:
            disk.power_cut()
            assert read_file(disk, "checkpoint/1") == new


def test_synced_file_survives_a_power_cut_with_its_name() -> None:
    for seed in range(30):
        disk = empty_disk(seed, Weather(ordered_names=False))
        files = Files(disk.mount())
        files.write(append(b"synced"))
        files.sync([LOG])
        files.write(append(b" and not"))
        disk.power_cut()
        assert read_file(disk, LOG).startswith(b"synced")


def test_write_that_fails_says_so() -> None:
    disk = empty_disk()
    files = Files(disk.mount())
    disk.fail_at["append"] = 0
    with pytest.raises(OSError) as caught:
        files.write(append(b"x"))
    assert caught.value.errno == errno.EIO
    disk.fail_at["sync"] = 0
    files.write(append(b"x"))
    with pytest.raises(OSError):
        files.sync([LOG])


def test_what_a_machine_reads_is_asked_for_twice_before_the_disk_is_believed() -> None:
    disk = empty_disk()
    put_file(disk, LOG, b"here")
    files = Files(disk.mount())
    piece = Slice(LOG, 0, 4)

    disk.fail_at["read"] = 0
    assert files.answer(Read(1, piece)) == b"here"
    disk.refuse(LOG, 3)
    assert files.answer(Read(1, piece)) == Unread(piece, "Input/output error")
    with pytest.raises(FileNotFoundError):
        files.answer(Read(1, Slice("message/1.log", 0, 4)))


def test_slices_of_a_send_are_given_together_or_the_first_bad_one_is_named() -> None:
    disk = empty_disk()
    put_file(disk, LOG, b"heretherenever")
    files = Files(disk.mount())
    pieces = [Slice(LOG, 0, 4), Slice(LOG, 4, 5), Slice(LOG, 9, 5)]

    disk.fail_at["read"] = 0
    assert files.gather(pieces) == [b"here", b"there", b"never"]
    disk.refuse(LOG, 6)
    assert files.gather(pieces) == Unread(pieces[1], "Input/output error")


def test_full_disk_says_so_after_a_part() -> None:
    disk = empty_disk()
    disk.capacity = 10
    with pytest.raises(OSError) as caught:
        Files(disk.mount()).write(append(bytes(20)))

    assert caught.value.errno == errno.ENOSPC
    assert len(read_file(disk, LOG)) == 10


def test_file_is_removed_once_and_missing_is_fine() -> None:
    disk = empty_disk()
    files = Files(disk.mount())
    files.write(append(b"x"))
    files.read_now(Slice(LOG, 0, 1))
    files.forget(LOG)
    for _ in range(2):
        files.write(Remove(LOG))
    assert files_of(disk, "message") == []
    files.write(append(b"new"))
    assert files.read_now(Slice(LOG, 0, 3)) == b"new"


def test_file_removed_while_its_sync_was_on_the_way_stops_nobody() -> None:
    """Retention may drop a segment that was just sealed: it need not be synced any more."""
    disk = empty_disk()
    files = Files(disk.mount())
    files.write(append(b"x"))
    files.write(append(b"y", file="message/1.log"))
    files.write(Remove(LOG))
    files.sync([LOG, "message/1.log"])

    assert not disk.names.cached["message/1.log"].dirty


def test_what_is_not_in_the_page_cache_is_left_to_the_read_lane() -> None:
    disk = empty_disk(weather=Weather(cold_reads=1.0))
    files = Files(disk.mount())
    files.write(append(b"cold"))

    assert files.read_now(Slice(LOG, 0, 4)) is None
    assert files.read_now(Slice("message/none", 0, 4)) is None
    assert files.read(Slice(LOG, 0, 4)) == b"cold"
    with pytest.raises(FileNotFoundError):
        files.read(Slice("message/none", 0, 4))


def test_open_files_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(files_module, "OPEN_FILES_MAX", 3)
    files = Files(RealDisk(str(tmp_path)))
    for index in range(10):
        files.write(append(b"%d" % index, file=f"f/{index % 5}"))
        assert files.read_now(Slice(f"f/{index % 5}", 0, 1)) == b"%d" % (index % 5)
    assert len(files._written) == len(files._read) == 3
    assert files.read(Slice("f/0", 0, 9)) == b"05"
    files.close()


def test_real_disk_reads_what_is_there_and_no_more(tmp_path) -> None:
    disk = RealDisk(str(tmp_path / "data"))
    disk.make_folder("f")
    file = disk.open("f/a", create=True)
    assert file.append([b"ab", memoryview(b"cd")]) == 4
    file.sync()
    assert (file.size(), file.read(1, 9), file.read(9, 9)) == (4, b"bcd", b"")
    assert file.read_now(0, 5) is None
    file.truncate(1)
    file.close()
    disk.rename("f/a", "f/b")
    disk.sync_folder("f")
    assert (disk.list("f"), disk.list("none"), disk.list("")) == (["b"], [], [])
    free, total = disk.space()
    assert 0 < free <= total
    disk.remove("f/b")
    with pytest.raises(FileNotFoundError):
        disk.open("f/b")


def test_storage_sets_bad_bytes_aside_before_it_cuts_them() -> None:
    disk = empty_disk(weather=Weather(short_io=0.5))
    put_file(disk, LOG, b"good" + b"bad" * 1000)
    storage = Storage(disk.mount(), ["message"])
    storage.set_aside(LOG, 4)

    assert read_file(disk, LOG) == b"good"
    assert read_file(disk, "aside/message-0.log.4") == b"bad" * 1000
    disk.power_cut()
    assert read_file(disk, LOG) == b"good"
    assert read_file(disk, "aside/message-0.log.4") == b"bad" * 1000
    storage = Storage(disk.mount(), ["message"])
    storage.set_aside(LOG, 0)
    assert files_of(disk, "message") == []
    storage.close()


def test_name_of_what_takes_the_place_of_a_removed_file_is_made_durable() -> None:
    disk = empty_disk()
    put_file(disk, LOG, b"torn")
    storage = Storage(disk.mount(), ["message"])
    storage.set_aside(LOG, 0)
    storage.write_now([append(b"new")])

    disk.power_cut()

    assert read_file(disk, LOG) == b"new"
    storage.close()


def test_storage_begins_without_temporary_files() -> None:
    disk = empty_disk()
    put_file(disk, "checkpoint/1.ckpt.tmp", b"half")
    put_file(disk, "checkpoint/1.ckpt", b"whole")
    storage = Storage(disk.mount(), ["checkpoint", "new"])

    assert storage.names("checkpoint") == ["1.ckpt"]
    assert storage.names("new") == []
    assert (storage.size("checkpoint/1.ckpt"), storage.size("none")) == (5, None)
    assert storage.reader("checkpoint/1.ckpt")(1, 3) == b"hol"
    storage.write_now([append(b"a"), Replace("new/x", b"b")])
    disk.power_cut()
    assert (read_file(disk, LOG), read_file(disk, "new/x")) == (b"a", b"b")


def test_a_suspect_that_was_being_written_anew_is_written_anew() -> None:
    disk = empty_disk()
    put_file(disk, LOG + SUSPECT, b"whole")
    put_file(disk, LOG + TEMPORARY, b"wh")

    storage = Storage(disk.mount(), ["message"])

    assert storage.names("message") == ["0.log"]
    assert read_file(disk, LOG) == b"whole"
