"""Seed after seed, until one breaks a promise: what is planted must be found soon."""

from __future__ import annotations

import logging
import sys

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


if __name__ == "__main__":
    logging.disable()  # what clients say of their broker's deaths is not what was found
    raise SystemExit(first_problem(int(sys.argv[1]), *sys.argv[2:]) or None)
