"""Whole runs of the toy: replayed bit by bit, sealed from the real world, and with teeth."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
import uuid
from pathlib import Path

import pytest

from sim import runner
from sim.families import FAMILIES
from sim.faults import Fault, Kind, Plan, shrink
from sim.seal import EPOCH_S, collect
from sim.toy import Bug, Toy, make, make_buggy
from sim.weather import CALM
from sim.world import Phases, draw_plan, run_plan


@pytest.fixture(autouse=True)
def collected():
    yield
    collect()


def run(seed, maker=make):
    return run_plan(draw_plan(seed, maker(seed)), maker)


def play(faults, maker=make, weather=CALM):
    return run_plan(Plan("play", weather, tuple(faults)), maker)


def called(module, name, *arguments):
    """By name, for tidy takes it for the real one; inside of a run it is not, and that is what is tested."""
    return getattr(module, name)(*arguments)


class OneServer:
    """A scenario of one server and nothing else."""

    servers = ("s1",)
    clients = ()
    kinds = ()
    phases = Phases(warm_up_s=0.5, faults_s=5.0, linger_s=0.5)

    def __init__(self, serve):
        self.serve = serve
        self.world = None

    def build(self, world):
        self.world = world
        world.add_server("s1", self.serve)

    def drained(self):
        return True

    def check(self, world):
        return []


def play_server(serve, faults=()):
    scenario = OneServer(serve)
    outcome = run_plan(Plan("one", CALM, tuple(faults)), lambda seed: scenario)
    return outcome


def test_a_seed_replays_to_the_same_crc_in_one_process():
    for seed in ("1", "2", "5"):
        first, second = run(seed), run(seed)

        assert (first.crc, first.steps, first.fired) == (second.crc, second.steps, second.fired)


def test_a_seed_replays_in_processes_with_different_hash_seeds(monkeypatch, capsys):
    root = Path(__file__).resolve().parents[3]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root / "tests"), str(root / "host")]))

    assert runner.twice("sim.toy:make", "8")


def test_the_toy_without_bugs_passes():
    for seed in range(25):
        assert run(str(seed)).violations == []


@pytest.mark.parametrize(
    "bug", [Bug.ANSWER_BEFORE_SYNC, Bug.ACK_BEFORE_SYNC, Bug.NO_FOLDER_SYNC, Bug.TORN_TAIL_KEPT]
)
def test_planted_bugs_are_found_by_random_faults(bug):
    assert any(run(str(seed), make_buggy(bug)).violations for seed in range(25))


def test_a_failed_sync_that_is_not_undone_loses_answered_messages_at_the_next_power_cut():
    faults = []
    for number in range(5):
        faults.append(Fault(0.6 + number, Kind.SYNC_ERROR, "s1"))
        faults.append(Fault(1.4 + number, Kind.POWER_CUT, "s1", lasts_s=0.1))

    phases = Phases(warm_up_s=0.5, faults_s=5.0, drain_max_s=10.0)

    def seeds_failing(bug):
        plans = (Plan(str(seed), CALM, tuple(faults)) for seed in range(10))
        toys = (run_plan(plan, lambda seed: Toy(bug, sends_per_s=100.0, phases=phases)) for plan in plans)
        return sum(bool(outcome.violations) for outcome in toys)

    assert seeds_failing(Bug.NONE) == 0
    assert seeds_failing(Bug.FAILED_SYNC_KEPT) > 0


def test_a_failing_plan_shrinks_to_few_faults():
    maker = make_buggy(Bug.ANSWER_BEFORE_SYNC)
    plans = (draw_plan(str(seed), maker("")) for seed in range(25))
    plan = next(plan for plan in plans if run_plan(plan, maker).violations)

    smallest = shrink(plan, lambda candidate: bool(run_plan(candidate, maker).violations))

    assert 1 <= len(smallest.faults) < len(plan.faults)
    assert run_plan(smallest, maker).violations


def test_a_kill_keeps_what_a_power_cut_does_not():
    maker = make_buggy(Bug.ANSWER_BEFORE_SYNC)

    def seeds_failing(kind):
        faults = tuple(Fault(1.0 + number, kind, "s1", lasts_s=0.1, value=40) for number in range(4))
        return sum(bool(run_plan(Plan(str(seed), CALM, faults), maker).violations) for seed in range(12))

    assert seeds_failing(Kind.KILL_AT_OPERATION) == 0
    assert seeds_failing(Kind.POWER_CUT_AT_OPERATION) > 0


def test_a_server_that_returns_or_fails_is_started_again():
    lives = []

    async def serve(env):
        lives.append(env.life)
        if env.life == 1:
            return
        if env.life == 2:
            raise OSError("disk")
        if env.life == 3:
            raise SystemExit(3)
        await env.loop.create_future()

    outcome = play_server(serve)

    assert lives == [1, 2, 3, 4]
    assert len(outcome.exits) == 3
    assert outcome.violations == []


def test_a_server_that_never_stays_is_a_crash_loop():
    async def serve(env):
        raise OSError("disk")

    assert (
        "exits after the heal" in " ".join(play_server(serve).violations) or len(play_server(serve).exits) > 5
    )


def test_overlapping_faults_end_one_by_one():
    seen = []

    async def serve(env):
        while True:
            seen.append((round(env.loop.now, 1), env.clock.now_ms() - round((EPOCH_S + env.loop.now) * 1000)))
            await env.loop.run_in_executor(None, lambda: None)
            await asyncio.sleep(0.1)

    play_server(
        serve,
        [
            Fault(1.0, Kind.PAUSE, "s1", lasts_s=1.0),
            Fault(1.5, Kind.PAUSE, "s1", lasts_s=1.5),
            Fault(3.5, Kind.CLOCK_STEP, "s1", lasts_s=1.0, value=5000),
            Fault(4.0, Kind.KILL, "s1", lasts_s=0.1),
            Fault(5.0, Kind.KILL, "s1", lasts_s=0.1),
        ],
    )

    assert not [at for at, _ in seen if 1.2 < at < 2.9]
    assert {round(offset, -2) for at, offset in seen if 4.1 < at < 4.9} == {5000}
    assert {round(offset, -2) for at, offset in seen if at < 3.9 or at > 5.1} == {0}


def test_what_a_dead_process_does_in_its_finally_changes_nothing():
    async def serve(env):
        file = env.disk.open("log", create=True)
        try:
            await env.loop.create_future()
        finally:
            file.append([b"from beyond"])

    scenario = OneServer(serve)
    run_plan(Plan("one", CALM, (Fault(1.0, Kind.KILL, "s1", lasts_s=0.1),)), lambda seed: scenario)

    disk = scenario.world.nodes["s1"].disk
    assert disk.mount().open("log").size() == 0


@pytest.mark.parametrize(
    "reach",
    [
        lambda: called(time, "sleep", 0),
        lambda: threading.Thread(target=print).start(),
        lambda: Path("/tmp/never-written").write_text("x"),
    ],
)
def test_the_real_world_is_out_of_reach(reach):
    async def serve(env):
        reach()

    exits = play_server(serve).exits

    assert "Escape" in exits[0]


def test_clocks_and_chance_are_the_seed_s():
    def draw():
        drawn = []

        async def serve(env):
            clocks = [called(time, name) for name in ("time", "monotonic", "perf_counter")]
            drawn.append((clocks, os.urandom(8), uuid.uuid4(), random.random()))
            await env.loop.create_future()

        play_server(serve)
        return drawn

    assert draw() == draw()


def test_a_sweep_names_injectors_that_never_fired():
    outcome = play([Fault(1.0, Kind.KILL, "s1", lasts_s=0.1)])
    silent = runner.silent_injectors("sim.toy:make", outcome.fired)

    assert "POWER_CUT" in silent
    assert "KILL" not in silent


def test_every_module_that_makes_scenarios_is_a_family_but_the_toy():
    modules = Path(runner.__file__).parent.glob("*.py")
    makers = {path.stem for path in modules if "\ndef make(" in path.read_text(encoding="utf-8")}

    assert sorted(one.name for one in FAMILIES) == sorted(makers - {"toy"})


def test_a_sweep_of_all_families_gives_those_that_cost_most_fewer_seeds(monkeypatch):
    swept: dict[str, int] = {}

    def sweep(name: str, _first: int, count: int, _jobs: int) -> int:
        swept[name] = count
        return 0

    monkeypatch.setattr(runner, "sweep", sweep)
    monkeypatch.setenv("PYTHONHASHSEED", "0")

    assert runner.main(["sweep", "--all", "--count", "200"]) == 0

    assert swept.keys() == {one.scenario for one in FAMILIES}
    assert (swept["sim.cluster:make"], swept["sim.together:make"]) == (200, 50)


def test_every_fault_of_the_toy_fires_in_some_seed():
    outcomes = runner.run_seeds("sim.toy:make", range(60))
    fired = sum((outcome.fired for outcome in outcomes), outcomes[0].fired)

    assert runner.silent_injectors("sim.toy:make", fired) == []


def test_the_toy_drains_quickly_in_calm_weather():
    outcome = play([])

    assert outcome.violations == []
    assert outcome.virtual_s < Toy().phases.warm_up_s + Toy().phases.faults_s + 3
