"""Time is virtual, order is seeded, lives are separate, and nobody waits for ever unseen."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from sim import loop as loop_module
from sim.life import LIFE, SimCrash
from sim.loop import Deadlock, Livelock
from sim.weather import Weather


def test_an_hour_costs_nothing(stage):
    stage.run("a", asyncio.sleep(3600))

    assert 3600 <= stage.loop.now < 3600.001
    assert stage.loop.steps < 10


def test_cancelled_timers_leave_the_heap(stage):
    async def work():
        for _ in range(2000):
            async with asyncio.timeout(60):
                await asyncio.sleep(0)

    stage.run("a", work())

    assert len(stage.loop._timers) < 500


def test_a_wait_that_cannot_end_is_a_deadlock_and_is_named(stage):
    async def waits_for_nothing():
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="waits_for_nothing"):
        stage.run("a", waits_for_nothing())


def test_a_poller_is_a_livelock(stage, monkeypatch):
    monkeypatch.setattr(loop_module, "BUSY_STEPS", 1000)

    async def poll():
        for _ in range(10_000):
            await asyncio.sleep(0)

    with pytest.raises(Livelock):
        stage.run("a", poll())


def test_sets_of_tasks_iterate_in_the_order_of_their_making(stage):
    async def work():
        tasks = [asyncio.create_task(asyncio.sleep(0)) for _ in range(5)]
        serials = [task.serial for task in set(tasks)]
        await asyncio.gather(*tasks)
        return serials

    first = stage.run("a", work())

    assert [serial - first[0] for serial in first] == [serial - min(first) for serial in first]


def test_what_a_life_starts_belongs_to_it(stage):
    seen = []

    async def note(name):
        seen.append((name, LIFE.get().node))

    async def work(name):
        asyncio.get_running_loop().call_later(1, lambda: seen.append((name, LIFE.get().node)))
        await asyncio.create_task(note(name))
        await asyncio.to_thread(lambda: seen.append((name, LIFE.get().node)))
        await asyncio.sleep(2)

    stage.spawn("a", work("a"))
    stage.run("b", work("b"))

    assert len(seen) == 6
    assert all(name == node for name, node in seen)


def test_an_ended_life_runs_no_more_not_even_its_finally(stage):
    seen = []

    async def work():
        try:
            while True:
                seen.append(stage.loop.now)
                await asyncio.sleep(1)
        finally:
            seen.append("finally")

    stage.spawn("a", work())
    stage.run_for(2.5)
    stage.loop.end(stage.lives["a"])
    stage.run_for(10)

    assert len(seen) == 3
    assert "finally" not in seen


def test_a_paused_life_stands_while_others_run_and_its_jobs_stand_too(stage):
    ticks = {"a": [], "b": []}

    async def tick(name):
        while True:
            ticks[name].append(stage.loop.now)
            await stage.loop.run_in_executor(None, lambda: None)
            await asyncio.sleep(0.1)

    stage.spawn("a", tick("a"))
    stage.spawn("b", tick("b"))
    stage.run_for(1)
    stage.loop.pause(stage.lives["a"])
    stage.run_for(5)
    stage.loop.resume(stage.lives["a"])
    stage.run_for(1)

    assert not [at for at in ticks["a"] if 1.01 < at < 5.99]
    assert len(ticks["b"]) > 60
    assert len(ticks["a"]) > 15


def test_jobs_of_one_worker_are_in_order_and_lanes_are_side_by_side(stage):
    one, other = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    done = []

    async def submit(lane, name, seconds):
        await stage.loop.run_in_executor(lane, stage.loop.charge, seconds)
        done.append((name, stage.loop.now))

    async def work():
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(submit(one, f"one {number}", 1.0))
            group.create_task(submit(other, "other", 0.1))

    stage.run("a", work())

    assert [name for name, _ in done] == ["other", "one 0", "one 1", "one 2"]
    assert done[0][1] < 0.2
    assert 3 < done[-1][1] < 3.1


def test_blocking_on_the_loop_stalls_the_life_and_blocking_in_a_lane_does_not(stage):
    gaps = {}

    async def tick(name):
        last = stage.loop.now
        for _ in range(300):
            await asyncio.sleep(0.01)
            gaps[name] = max(gaps.get(name, 0), stage.loop.now - last)
            last = stage.loop.now

    async def inline():
        stage.loop.charge(1.0)

    async def in_lane():
        await stage.loop.run_in_executor(None, stage.loop.charge, 1.0)

    for name, blocking in (("a", inline()), ("b", in_lane())):
        stage.spawn(name, tick(name))
        stage.spawn(name, blocking)
    stage.run_for(5)

    assert gaps["a"] > 1.0
    assert gaps["b"] < 0.02


def test_an_error_in_a_job_reaches_its_caller_and_a_crash_reaches_nobody(stage):
    def crash():
        stage.loop.end(stage.lives["b"])
        raise SimCrash

    async def work(job):
        await stage.loop.run_in_executor(None, job)

    with pytest.raises(ZeroDivisionError):
        stage.run("a", work(lambda: 1 // 0))
    crashed = stage.spawn("b", work(crash))
    stage.run_for(1)

    assert not crashed.done()


@pytest.mark.parametrize("order", ["node", "tasks", "shuffle"])
def test_the_same_seed_gives_the_same_trace_and_another_one_another(make_stage, order):
    async def work(stage):
        async def worker(number):
            for step in range(20):
                await asyncio.sleep(0.001 * (number * step % 7))
                await stage.loop.run_in_executor(None, lambda: None)

        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(worker(number))

    def crc(seed):
        stage = make_stage(Weather(order=order), seed)
        stage.spawn("a", work(stage))
        stage.run("b", work(stage))
        return stage.loop.crc

    assert crc("1") == crc("1")
    assert crc("1") != crc("2")


def test_an_exception_in_a_callback_is_kept_for_the_report(stage):
    stage.lives["a"].context.run(stage.loop.call_soon, lambda: 1 // 0)
    stage.run_for(0.1)

    assert len(stage.loop.errors) == 1
    assert "ZeroDivisionError" in stage.loop.errors[0]
