"""The command line: run, sweep, shrink, and prove determinism.

    python -m sim run --seed 7 [--plan file.json] [--trace]
    python -m sim sweep --from 0 --count 10000 --jobs 2       (``soak --seeds 10000`` is the same)
    python -m sim sweep --all --count 10000                   every family, some with a part of the seeds
    python -m sim shrink --seed 7                             writes the smallest failing plan as a file
    python -m sim twice --seed 7                              in two processes with different hash seeds

A scenario is ``module:function`` (seed to ``Scenario``). A seed is valid for one commit, one Python minor and one set
of dependencies: all three are printed. A sweep fails when a class of faults never fired: silent injectors rot unseen.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from sim.faults import Plan, plan_from_json, shrink
from sim.seal import collect
from sim.world import Outcome, Scenario, draw_plan, run_plan

DEFAULT_SCENARIO = "sim.cluster:make"
FAMILIES = {
    DEFAULT_SCENARIO: 1,
    "sim.steered:make": 1,
    "sim.replicated:make": 1,
    "sim.routed:make": 1,
    "sim.shelved:make": 1,
    "sim.spooled:make": 1,
    "sim.adopted:make": 1,
    "sim.repeated:make": 1,
    "sim.deduped:make": 1,
    "sim.archived:make": 1,
    "sim.granted:make": 1,
    "sim.held:make": 1,
    "sim.worked:make": 1,
    "sim.later:make": 1,
    "sim.halves:make": 1,
    "sim.aside:make": 2,
    "sim.calendars:make": 1,
    "sim.couriers:make": 1,
    "sim.hoarded:make": 1,
    "sim.watched:make": 1,
    "sim.whole:make": 1,
    "sim.shut:make": 2,
    "sim.forgotten:make": 2,
    "sim.crontabs:make": 2,
    "sim.traded:make": 2,
    "sim.accounted:make": 2,
    "sim.inherited:make": 2,
    "sim.together:make": 4,
}
"""Of how many seeds each gets one, when all are swept: those that cost most get fewer."""
SEEDS_PER_JOB = 20
COLLECT_EVERY = 10
COVERAGE_SEEDS_MIN = 200
PROBES_EXPECTED = ("chunked_reads", "lost_segments", "retransmitted", "short_io", "torn_pages")
PACKAGES = ("aiohttp", "msgpack", "crc32c")
VIOLATIONS_PRINTED = 10

_frozen: list[bool] = []


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    if os.environ.get("PYTHONHASHSEED") is None:
        # Sets of text iterate by hash; a process cannot change its own.
        os.environ["PYTHONHASHSEED"] = "0"
        words = sys.argv[1:] if arguments is None else arguments
        os.execv(sys.executable, [sys.executable, "-m", "sim", *words])
    match options.command:
        case "run":
            return _run(options)
        case "shrink":
            return _shrink(options)
        case "twice":
            return 0 if twice(options.scenario, options.seed) else 1
        case _:
            shares = FAMILIES if options.all else {options.scenario: 1}
            return max(
                sweep(name, options.first, max(1, options.count // share), options.jobs)
                for name, share in shares.items()
            )


def load(scenario: str) -> Callable[[str], Scenario]:
    module, _, name = scenario.partition(":")
    make: Callable[[str], Scenario] = getattr(importlib.import_module(module), name)
    return make


def run_seed(scenario: str, seed: str) -> Outcome:
    make = load(scenario)
    return run_plan(draw_plan(seed, make(seed)), make)


def run_seeds(scenario: str, seeds: Sequence[int]) -> list[Outcome]:
    """One process's share. What was imported is frozen out of the collector's sight."""
    if not _frozen:
        load(scenario)
        gc.collect()
        gc.freeze()
        _frozen.append(True)
    outcomes = []
    for number, seed in enumerate(seeds):
        try:
            outcomes.append(run_seed(scenario, str(seed)))
        except Exception as error:
            error.add_note(f"the simulator itself failed; replay: {replay_command(scenario, str(seed))}")
            raise
        if number % COLLECT_EVERY == 0:
            collect()
    return outcomes


def sweep(scenario: str, first: int, count: int, jobs: int) -> int:
    """Every seed, failing ones with their command, then the coverage. What the services log is for ``run`` to show."""
    fired: Counter[str] = Counter()
    failed, steps, virtual_s = 0, 0, 0.0
    started = time.perf_counter()
    for outcome in _outcomes(scenario, range(first, first + count), jobs):
        fired += outcome.fired
        steps += outcome.steps
        virtual_s += outcome.virtual_s
        if outcome.violations:
            failed += 1
            print(f"FAILED seed {outcome.plan.seed}: {outcome.violations[0]}")
            print(f"  replay: {replay_command(scenario, outcome.plan.seed)}", flush=True)
    seconds = time.perf_counter() - started
    print(versions())
    print(
        f"{scenario}: {count} seeds, {failed} failed, {virtual_s:.0f} virtual s, {steps} steps, {seconds:.1f} s"
    )
    for name, times in sorted(fired.items()):
        print(f"  {name:28} {times}")
    silent = silent_injectors(scenario, fired) if count >= COVERAGE_SEEDS_MIN else []
    for name in silent:
        print(f"SILENT: {name} never fired")
    return 1 if failed or silent else 0


def silent_injectors(scenario: str, fired: Counter[str]) -> list[str]:
    """The faults that the scenario says it meets, and did not."""
    probes = {"SYNC_ERROR": "sync_error", "WRITE_ERROR": "append_error", "READ_ERROR": "read_error"}
    probes |= {"RESET_AT_SEGMENT": "reset_at_segment"}
    met = load(scenario)("coverage")
    kinds = [probes.get(kind.name, kind.name) for kind in met.kinds]
    return [name for name in (*kinds, *PROBES_EXPECTED, *met.probes) if not fired[name]]


def twice(scenario: str, seed: str) -> bool:
    """Two fresh processes with different hash seeds end with one crc."""
    lines = []
    for hash_seed in ("1", "4711"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-m", "sim", "run", "--seed", seed, "--scenario", scenario]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        lines.append(
            next((line for line in done.stdout.splitlines() if line.startswith("crc ")), done.stderr)
        )
    print(f"seed {seed}: {lines[0]} and {lines[1]}")
    return lines[0] == lines[1] and lines[0].startswith("crc ")


def replay_command(scenario: str, seed: str) -> str:
    return f"PYTHONPATH=tests {sys.executable} -m sim run --seed {seed} --scenario {scenario}"


def versions() -> str:
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    known = []
    for package in PACKAGES:
        try:
            known.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            known.append(f"{package} absent")
    commit = head.stdout.strip() if head.returncode == 0 else "none"
    return f"commit {commit}, python {sys.version.split()[0]}, {', '.join(known)}"


def _run(options: argparse.Namespace) -> int:
    make = load(options.scenario)
    if options.plan:
        plan = plan_from_json(Path(options.plan).read_text(encoding="utf-8"))
    else:
        plan = draw_plan(options.seed, make(options.seed))
    started = time.process_time()
    outcome = run_plan(plan, make, trace=options.trace)
    seconds = time.process_time() - started
    print(versions())
    _print_plan(plan)
    print(f"fired {dict(sorted(outcome.fired.items()))}")
    for line in (*outcome.recent, *(f"exit {line}" for line in outcome.exits)):
        print(f"  {line}")
    print(f"crc {outcome.crc:08x}")
    print(f"{outcome.virtual_s:.3f} virtual s, {outcome.steps} steps, {seconds:.3f} CPU s")
    for sentence in outcome.violations[:VIOLATIONS_PRINTED]:
        print(f"VIOLATION {sentence}")
    print(f"{len(outcome.violations)} violations; replay: {replay_command(options.scenario, plan.seed)}")
    return 1 if outcome.violations else 0


def _shrink(options: argparse.Namespace) -> int:
    make = load(options.scenario)
    plan = draw_plan(options.seed, make(options.seed))
    wanted = _classes(run_plan(plan, make))
    if not wanted:
        print(f"seed {options.seed} does not fail")
        return 1
    runs = Counter[str]()

    def fails(candidate: Plan) -> bool:
        runs["runs"] += 1
        return bool(_classes(run_plan(candidate, make)) & wanted)

    smallest = shrink(plan, fails)
    path = Path(options.out or f"plan-{options.seed}.json")
    path.write_text(smallest.to_json(), encoding="utf-8")
    print(f"{len(plan.faults)} faults to {len(smallest.faults)} in {runs['runs']} runs")
    _print_plan(smallest)
    print(f"replay: PYTHONPATH=tests {sys.executable} -m sim run --plan {path} --scenario {options.scenario}")
    return 0


def _classes(outcome: Outcome) -> set[str]:
    """The kinds of sentences: a shrunk plan must fail in the same way."""
    return {sentence.partition(":")[0] for sentence in outcome.violations}


def _print_plan(plan: Plan) -> None:
    print(f"seed {plan.seed}")
    print("weather " + ", ".join(f"{name} {value}" for name, value in asdict(plan.weather).items()))
    for fault in plan.faults:
        print(f"  {fault}")


def _outcomes(scenario: str, seeds: range, jobs: int) -> Iterator[Outcome]:
    shares = [seeds[start : start + SEEDS_PER_JOB] for start in range(0, len(seeds), SEEDS_PER_JOB)]
    with ProcessPoolExecutor(jobs, initializer=logging.disable) as pool:
        for outcomes in pool.map(run_seeds, [scenario] * len(shares), shares):
            yield from outcomes


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sim", description="the deterministic simulator")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "shrink", "twice"):
        command = commands.add_parser(name)
        command.add_argument("--seed", default="0")
        command.add_argument("--scenario", default=DEFAULT_SCENARIO)
        if name == "run":
            command.add_argument("--plan", help="a plan as shrink writes it, instead of a seed")
            command.add_argument("--trace", action="store_true", help="print the last steps")
        if name == "shrink":
            command.add_argument("--out", help="the file to write")
    for name in ("sweep", "soak"):
        command = commands.add_parser(name)
        command.add_argument("--from", dest="first", type=int, default=0)
        command.add_argument("--count", "--seeds", dest="count", type=int, default=50)
        command.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
        command.add_argument("--scenario", default=DEFAULT_SCENARIO)
        command.add_argument("--all", action="store_true", help="every family")
    return parser.parse_args(arguments)
