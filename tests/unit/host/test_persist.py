"""The persister: writes in their order, one fsync for all who wait, and nothing said after a failure."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from samples.brokers import empty_disk, files_of, put_file, read_file
from samples.lanes import HandLane, StandingClock, hand_lanes, turns
from sim.disk import SimDisk
from tidemill_host.disk import File
from tidemill_host.files import SUSPECT, Files
from tidemill_host.kernel import Done
from tidemill_host.machine import Append, Mark, Remove, Replace, Slice, Write
from tidemill_host.persist import INLINE_BYTES_MAX, LANE_SECONDS, LANE_SECONDS_LEAST, Persister

LOG = "message/0.log"


def append(data: bytes, file: str = LOG) -> Write:
    return Append(file, [data], len(data))


class Desk:
    """A persister on a simulated disk, with lanes that a test drives."""

    def __init__(self) -> None:
        self.disk: SimDisk = empty_disk()
        self.clock = StandingClock()
        self.lanes = hand_lanes()
        self.marks: list[Mark] = []
        self.errors: list[Exception] = []
        self.syncs: list[str] = []
        self.files = files = Files(self.disk.mount())
        sync = files.sync
        files.sync = lambda names: (self.syncs.extend(names := list(names)), sync(names))[1]  # type: ignore[method-assign]
        self.persister = Persister(
            files, self.lanes, self.clock, lambda: self.marks.append(self.persister.mark), self.errors.append
        )

    @property
    def write(self) -> HandLane:
        assert isinstance(self.lanes.write, HandLane)
        return self.lanes.write

    @property
    def sync(self) -> HandLane:
        assert isinstance(self.lanes.sync, HandLane)
        return self.lanes.sync


def on_a_loop(test: Callable[[Desk], Awaitable[None]]) -> Callable[[], None]:
    async def run() -> None:
        await test(Desk())

    def wrapper() -> None:
        asyncio.run(run())

    wrapper.__name__, wrapper.__doc__ = test.__name__, test.__doc__
    return wrapper


@on_a_loop
async def test_small_appends_are_written_at_once(desk: Desk) -> None:
    desk.persister.submit([append(b"a"), append(b"b")], sync=False)

    assert read_file(desk.disk, LOG) == b"ab"
    assert (desk.persister.mark, desk.persister.idle) == (Mark(1, 0), True)
    assert not desk.write.jobs


@on_a_loop
async def test_large_writes_and_other_files_go_to_the_lane(desk: Desk) -> None:
    desk.persister.submit([append(bytes(INLINE_BYTES_MAX + 1))], sync=False)
    desk.persister.submit([append(b"small")], sync=False)
    assert files_of(desk.disk, "message") == []
    assert (desk.persister.mark, desk.persister.idle) == (Mark(0, 0), False)
    assert desk.persister.backlog_bytes == INLINE_BYTES_MAX + 6

    await desk.write.run()
    assert (desk.persister.mark, desk.persister.backlog_bytes) == (Mark(1, 0), 5)
    await desk.write.run()
    assert (desk.persister.mark, desk.persister.backlog_bytes) == (Mark(2, 0), 0)
    assert read_file(desk.disk, LOG).endswith(b"\0small"), "a small write does not overtake a large one"
    desk.persister.submit([Replace("checkpoint/1", b"x")], sync=False)
    assert len(desk.write.jobs) == 1


@on_a_loop
async def test_all_that_waited_for_the_lane_is_written_in_one_job(desk: Desk) -> None:
    desk.persister.submit([Replace("a", b"x")], sync=False)
    for index in range(5):
        desk.persister.submit([append(b"%d" % index)], sync=False)
    await desk.write.run()
    await desk.write.run()

    assert read_file(desk.disk, LOG) == b"01234"
    assert desk.marks == [Mark(1, 0), Mark(6, 0)]


@on_a_loop
async def test_one_sync_serves_all_who_wait(desk: Desk) -> None:
    desk.persister.submit([append(b"0")], sync=True)
    for _ in range(1, 50):
        desk.persister.submit([append(b"x")], sync=True)
    assert len(desk.sync.jobs) == 1

    await desk.sync.run()
    assert desk.persister.mark == Mark(50, 1), "bytes that came while the sync was under way are not in it"
    assert len(desk.sync.jobs) == 1
    await desk.sync.run()
    assert desk.persister.mark == Mark(50, 50)
    assert (desk.syncs, desk.persister.idle) == ([LOG, LOG], True)


@on_a_loop
async def test_sync_takes_the_files_that_were_written_and_no_others(desk: Desk) -> None:
    desk.persister.submit([append(b"a", "f/a"), append(b"b", "f/b")], sync=True)
    await desk.sync.run()
    desk.persister.submit([append(b"a", "f/a")], sync=True)
    await desk.sync.run()
    desk.persister.submit([append(b"c", "f/c"), Remove("f/c")], sync=True)
    await desk.write.run()
    await desk.sync.run()

    assert desk.syncs == ["f/a", "f/b", "f/a"]
    assert desk.persister.mark == Mark(3, 3)


@on_a_loop
async def test_sync_waits_for_the_write_it_is_for(desk: Desk) -> None:
    desk.persister.submit([append(bytes(INLINE_BYTES_MAX + 1))], sync=True)
    assert not desk.sync.jobs
    await desk.write.run()
    assert len(desk.sync.jobs) == 1
    await desk.sync.run()
    assert desk.persister.mark == Mark(1, 1)


@on_a_loop
async def test_what_was_not_asked_to_be_synced_is_not(desk: Desk) -> None:
    desk.persister.submit([append(b"x")], sync=False)
    assert not desk.sync.jobs
    desk.persister.submit([], sync=True)
    await desk.sync.run()
    assert desk.persister.mark == Mark(1, 1)
    desk.persister.submit([], sync=True)
    assert not desk.sync.jobs


@on_a_loop
async def test_file_that_grows_during_its_sync_is_synced_again(desk: Desk) -> None:
    desk.persister.submit([append(b"a")], sync=True)
    desk.persister.submit([append(b"b")], sync=False)
    await desk.sync.run()
    assert not desk.sync.jobs
    desk.persister.submit([], sync=True)
    await desk.sync.run()

    assert desk.syncs == [LOG, LOG]
    desk.disk.power_cut()
    assert read_file(desk.disk, LOG) == b"ab"


@on_a_loop
async def test_slow_page_cache_hands_over_to_the_lane_for_a_while(desk: Desk) -> None:
    desk.clock.step = 0.02
    desk.persister.submit([append(b"slow")], sync=False)
    desk.clock.step = 0.0
    desk.persister.submit([append(b"lane")], sync=False)
    assert len(desk.write.jobs) == 1
    await desk.write.run()
    desk.clock.now += LANE_SECONDS_LEAST
    desk.persister.submit([append(b"inline")], sync=False)

    assert not desk.write.jobs
    assert read_file(desk.disk, LOG) == b"slowlaneinline"


@on_a_loop
async def test_disk_that_stays_slow_is_left_to_the_lane_for_ever_longer(desk: Desk) -> None:
    desk.clock.step = 0.0012
    desk.persister.submit([append(b"slow")], sync=False)
    waited = 0.0
    while waited < LANE_SECONDS:
        desk.persister.submit([append(b"lane")], sync=False)
        assert desk.write.jobs, f"inline again after {waited} s in the lane"
        await desk.write.run()
        waited = desk.persister.lane_seconds
    desk.clock.step = 0.0
    desk.clock.now += LANE_SECONDS
    desk.persister.submit([append(b"inline")], sync=False)

    assert not desk.write.jobs
    assert desk.persister.lane_seconds == LANE_SECONDS_LEAST


@on_a_loop
async def test_failed_write_breaks_for_good_and_moves_no_mark(desk: Desk) -> None:
    put_file(desk.disk, LOG, b"")
    desk.disk.fail_at["append"] = 0
    desk.persister.submit([append(b"x")], sync=True)
    desk.persister.submit([append(b"y")], sync=True)
    await turns()

    assert len(desk.errors) == 1
    assert (desk.persister.mark, desk.marks) == (Mark(0, 0), [])
    assert read_file(desk.disk, LOG) == b""
    assert not desk.sync.jobs


@on_a_loop
async def test_failed_sync_is_told_once_and_never_tried_again(desk: Desk) -> None:
    """The next one would say that all is well, and it is not."""
    desk.persister.submit([append(b"x")], sync=True)
    desk.persister.submit([append(b"y")], sync=True)
    desk.disk.fail_at["sync"] = 0
    await desk.sync.run()
    desk.persister.submit([append(b"z")], sync=True)

    assert len(desk.errors) == 1
    assert (desk.persister.mark, desk.marks) == (Mark(2, 0), [])
    assert not desk.sync.jobs


@on_a_loop
async def test_write_that_ends_after_a_failure_is_not_told(desk: Desk) -> None:
    desk.persister.submit([append(b"x")], sync=True)
    desk.persister.submit([Replace("f/a", b"x")], sync=False)
    desk.disk.fail_at["sync"] = 0
    await desk.sync.run()
    await desk.write.run()

    assert (len(desk.errors), desk.marks) == (1, [])


@on_a_loop
async def test_lane_that_breaks_down_otherwise_is_told_too(desk: Desk) -> None:
    """A bug in a write must end the process with a message; it once left every answer waiting."""
    desk.persister.submit([Replace("f/a", lambda: b""[1])], sync=True)  # type: ignore[arg-type,return-value]
    await desk.write.run()

    assert [type(error) for error in desk.errors] == [IndexError]
    assert (desk.persister.mark, desk.marks) == (Mark(0, 0), [])


class HandKernel:
    """Takes what is to be synced, and ends it when a test says so."""

    def __init__(self) -> None:
        self.orders: list[tuple[Sequence[File], Done]] = []
        self.full = False

    def sync(self, files: Sequence[File], done: Done) -> bool:
        if not self.full:
            self.orders.append((files, done))
        return not self.full

    def end(self, error: OSError | None = None) -> None:
        files, done = self.orders.pop(0)
        if error is None:
            for file in files:
                file.sync()
        done(error)


async def with_kernel(desk: Desk) -> HandKernel:
    """A desk whose log has its name on the disk: the first sync of a file is the lane's."""
    kernel = HandKernel()
    desk.persister = Persister(
        desk.files, replace(desk.lanes, kernel=kernel), desk.clock,
        lambda: desk.marks.append(desk.persister.mark), desk.errors.append,
    )  # fmt: skip
    desk.persister.submit([append(b"first")], sync=True)
    assert not kernel.orders
    await desk.sync.run()
    return kernel


@on_a_loop
async def test_kernel_syncs_what_has_its_name_and_serves_all_who_wait(desk: Desk) -> None:
    kernel = await with_kernel(desk)
    desk.persister.submit([append(b"a")], sync=True)
    desk.persister.submit([append(b"b")], sync=True)
    assert (len(kernel.orders), len(desk.sync.jobs)) == (1, 0)

    kernel.end()
    assert desk.persister.mark == Mark(3, 2)
    kernel.end()
    assert (desk.persister.mark, desk.persister.idle) == (Mark(3, 3), True)
    assert desk.marks[-1] == Mark(3, 3)


@on_a_loop
async def test_lane_syncs_when_the_kernel_is_full_or_a_file_is_new(desk: Desk) -> None:
    kernel = await with_kernel(desk)
    desk.persister.submit([append(b"new", "message/1.log")], sync=True)
    assert (len(kernel.orders), len(desk.sync.jobs)) == (0, 1)
    await desk.sync.run()
    kernel.full = True
    desk.persister.submit([append(b"full")], sync=True)
    assert (len(kernel.orders), len(desk.sync.jobs)) == (0, 1)
    await desk.sync.run()
    assert desk.persister.mark == Mark(3, 3)


@on_a_loop
async def test_lane_syncs_while_the_write_lane_may_close_a_handle(desk: Desk) -> None:
    kernel = await with_kernel(desk)
    desk.persister.submit([append(bytes(INLINE_BYTES_MAX + 1))], sync=True)
    desk.persister.submit([append(b"behind")], sync=True)
    await desk.write.run()  # the next write has begun before the sync of this one does
    assert (len(kernel.orders), len(desk.sync.jobs)) == (0, 1)
    await desk.write.run()
    await desk.sync.run()
    kernel.end()
    assert desk.persister.mark == Mark(3, 3)


@on_a_loop
async def test_failed_sync_of_the_kernel_ends_everything_and_marks_the_file(desk: Desk) -> None:
    kernel = await with_kernel(desk)
    desk.persister.submit([append(b"lost")], sync=True)
    kernel.end(OSError(errno.EIO, "no"))
    assert [error.errno for error in desk.errors if isinstance(error, OSError)] == [errno.EIO]
    assert files_of(desk.disk, "message") == [LOG + SUSPECT]
    assert desk.persister.mark == Mark(2, 1)

    desk.persister.submit([append(b"more")], sync=True)
    assert not kernel.orders


@on_a_loop
async def test_failed_sync_ends_everything_also_when_the_file_can_have_no_other_name(desk: Desk) -> None:
    """A file system that has turned read-only takes no new names; the loop would only log the second error."""
    kernel = await with_kernel(desk)
    told: list[BaseException | None] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, said: told.append(said.get("exception")))

    def refuse(_names: object) -> None:
        raise OSError(errno.EROFS, "read-only")

    desk.files.suspect = refuse  # type: ignore[method-assign]
    desk.persister.submit([append(b"lost")], sync=True)
    with pytest.raises(OSError, match="read-only"):
        kernel.end(OSError(errno.EIO, "no"))

    assert [error.errno for error in desk.errors if isinstance(error, OSError)] == [errno.EIO]
    desk.persister.submit([append(b"more")], sync=False)
    assert desk.persister.mark == Mark(2, 1)


@on_a_loop
async def test_file_that_was_read_on_its_way_out_is_closed(desk: Desk) -> None:
    """An open file keeps its space."""
    desk.persister.submit([append(b"0123")], sync=False)
    desk.persister.submit([Remove(LOG)], sync=False)
    assert desk.files.read_now(Slice(LOG, 0, 4)) is not None  # a slice of it leaves in the same turn
    await desk.write.run()

    assert files_of(desk.disk, "message") == []
    assert desk.files.read_now(Slice(LOG, 0, 4)) is None
