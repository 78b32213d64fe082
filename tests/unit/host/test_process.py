"""One owner of a data folder, and a clock that only goes forward."""

from __future__ import annotations

import asyncio
import json
import os
from types import SimpleNamespace

import pytest

from tidemill_host import clock as clock_module
from tidemill_host.clock import RealClock
from tidemill_host.kernel import KernelSync
from tidemill_host.log import LOG
from tidemill_host.persist import Lanes
from tidemill_host.process import FolderInUse, FolderLock, make_lanes, report, tell_recovered
from tidemill_ledger.opening import Report
from tidemill_wire.log_lines import Form


def test_folder_has_one_owner_until_it_lets_go(tmp_path) -> None:
    folder = str(tmp_path / "data")
    lock = FolderLock(folder)
    with pytest.raises(FolderInUse, match=f"process id {os.getpid()}"):
        FolderLock(folder)
    lock.release()

    FolderLock(folder).release()


def test_lock_of_a_longer_process_id_leaves_no_digits_behind(tmp_path) -> None:
    (tmp_path / "lock").write_text("99999999999999999999\n")
    lock = FolderLock(str(tmp_path))

    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    lock.release()


def test_lanes_of_logs_are_one_thread_each() -> None:
    async def make() -> Lanes:
        lanes = make_lanes()
        if isinstance(lanes.kernel, KernelSync):
            lanes.kernel.close()
        return lanes

    lanes = asyncio.run(make())
    assert [lanes.write._max_workers, lanes.sync._max_workers] == [1, 1]
    for lane in (lanes.write, lanes.sync, lanes.read):
        lane.shutdown()


def test_clock_counts_on_when_the_wall_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    times = SimpleNamespace(wall=1_780_000_000_000_000_000, counter=5_000_000_000)
    fake = SimpleNamespace(
        time_ns=lambda: times.wall, monotonic_ns=lambda: times.counter, monotonic=lambda: times.counter / 1e9
    )
    monkeypatch.setattr(clock_module, "time", fake)
    clock = RealClock()
    assert clock.now_ms() == 1_780_000_000_000
    times.wall -= 10**15
    times.counter += 1_500_000

    assert clock.now_ms() == 1_780_000_000_001
    assert clock.seconds() == 5.0015


def test_what_nobody_had_foreseen_is_one_line_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """One line a mistake: a collector of logs keeps it whole."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(report)

    def wrong() -> None:
        raise ValueError("on\ntwo lines")

    loop.call_soon(wrong)
    loop.call_soon(loop.call_exception_handler, {"message": "without an exception"})
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()

    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first["error"] == "ValueError('on\\ntwo lines')"
    assert "in wrong" in first["traceback"]
    assert second == {"event": "without an exception"}


def test_a_start_says_what_it_found_and_warns_of_checkpoints_that_it_could_not_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LOG, "form", Form.JSON)
    tell_recovered(Report(3, 1, 2, {"message": 512}, 1), "data")

    torn, passed, recovered = map(json.loads, capsys.readouterr().err.splitlines())
    assert (torn["event"], torn["log"], torn["bytes"]) == ("torn_tail", "message", 512)
    assert torn["text"] == "cut 512 bytes of a torn message log; a copy is in data/aside"
    assert (passed["event"], passed["level"], passed["checkpoints"]) == (
        "checkpoints_passed_over",
        "warning",
        1,
    )
    assert recovered["text"] == "recovered data from checkpoint 3, 1 action and 2 batches"
    told = {"event": "recovered", "checkpoint": 3, "actions": 1, "batches": 2, "cut_bytes": 512}
    assert told.items() <= recovered.items()


def test_a_start_in_an_empty_folder_has_nothing_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    tell_recovered(Report(), "data")

    assert capsys.readouterr().err == ""
