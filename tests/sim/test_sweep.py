"""The real broker and clients keep their promises, in as many worlds as SEEDS says and in those that broke them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim.families import FAMILIES, Family
from sim.faults import plan_from_json
from sim.runner import load
from sim.world import run_plan

pytestmark = pytest.mark.timeout(900)  # all there is to try takes long beside other tests

TESTS = Path(__file__).parents[1]
SCENARIOS = sorted((Path(__file__).parent / "scenarios").rglob("*.json"))
FAMILY_OF = {
    "scenarios": "sim.cluster:make",
    "replicated": "sim.replicated:make",
    "rolled": "sim.rolled:make",
    "together": "sim.together:make",
    "traded": "sim.traded:make",
    "whole": "sim.whole:make",
    "worked": "sim.worked:make",
}


def run_simulator(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sim", *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.sentence)
def test_every_seed_of_a_family_keeps_its_promises(family: Family) -> None:
    seeds = max(1, int(os.environ.get("SEEDS", "50")) // family.tests)
    done = run_simulator("sweep", "--seeds", str(seeds), "--scenario", family.scenario)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("scenario", ["sim.cluster:make", "sim.whole:make", "sim.together:make"])
def test_a_seed_replays_alike_in_another_process(scenario: str) -> None:
    done = run_simulator("twice", "--seed", "3", "--scenario", scenario)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_what_was_broken_once_stays_mended(path: Path) -> None:
    """Each file is the plan of a run that broke a promise; its name says how, its folder in which family."""
    make = load(FAMILY_OF[path.parent.name])
    outcome = run_plan(plan_from_json(path.read_text(encoding="utf-8")), make)

    assert outcome.violations == []
