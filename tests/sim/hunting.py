"""Seed after seed, until one breaks a promise: what is planted must be found soon."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from sim.faults import plan_from_json
from sim.runner import DEFAULT_SCENARIO, load
from sim.world import draw_plan, run_plan

SEEDS = 200


def first_problem(first: int, scenario: str = DEFAULT_SCENARIO) -> str:
    """The first of ``SEEDS`` seeds from ``first`` on that fails, with what it found; empty when none does."""
    make = load(scenario)
    for seed in map(str, range(first, first + SEEDS)):
        outcome = run_plan(draw_plan(seed, make(seed)), make)
        if outcome.violations:
            return f"seed {seed}: {outcome.violations[0]}"
    return ""


def problem_of(path: str, scenario: str = DEFAULT_SCENARIO) -> str:
    """What a plan finds."""
    plan = plan_from_json(Path(path).read_text(encoding="utf-8"))
    violations = run_plan(plan, load(scenario)).violations
    return f"seed {plan.seed}: {violations[0]}" if violations else ""


if __name__ == "__main__":
    logging.disable()  # what clients say of their broker's deaths is not what was found
    where, *scenario = sys.argv[1:]
    found = problem_of(where, *scenario) if where.endswith(".json") else first_problem(int(where), *scenario)
    raise SystemExit(found or None)
