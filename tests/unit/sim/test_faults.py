"""Plans are data: drawn alike for ever, written to a file and read again, and shrunk to what matters."""

from __future__ import annotations

from dataclasses import replace

from sim.faults import Fault, Kind, Plan, draw_faults, plan_from_json, shrink
from sim.weather import CALM, draw_weather

EVERY_KIND = tuple(Kind)


def draw(seed, kinds=EVERY_KIND):
    return draw_faults(seed, kinds, ("s1", "s2"), ("c1",), 1.0, 10.0)


def test_a_seed_draws_the_same_plan_and_every_kind_is_drawn_by_some_seed():
    plans = [draw(str(seed)) for seed in range(100)]

    assert plans[7] == draw("7")
    assert plans[7] != plans[8]
    assert {fault.kind for plan in plans for fault in plan} == set(Kind)
    assert 1 <= sum(not plan for plan in plans) <= 15


def test_taking_a_kind_away_moves_no_other():
    fewer = [kind for kind in Kind if kind is not Kind.PAUSE]

    for seed in ("1", "2", "3"):
        assert draw(seed, fewer) == tuple(fault for fault in draw(seed) if fault.kind is not Kind.PAUSE)


def test_faults_lie_in_their_phase():
    for seed in range(50):
        for fault in draw(str(seed)):
            assert 1.0 <= fault.at_s <= 11.0
            assert fault.node in ("s1", "s2", "c1")
            assert fault.other != fault.node


def test_a_plan_survives_its_file():
    plan = Plan("7", draw_weather("7"), draw("8"))

    assert plan_from_json(plan.to_json()) == plan


def test_shrinking_finds_the_two_faults_that_matter_and_calms_the_weather():
    faults = tuple(Fault(float(number), Kind.KILL, "s1") for number in range(20))
    plan = Plan("7", replace(draw_weather("7"), chunked_reads=0.3, short_io=0.2), faults)
    runs = []

    def fails(candidate):
        runs.append(candidate)
        return faults[3] in candidate.faults and faults[11] in candidate.faults and candidate.weather.short_io

    smallest = shrink(plan, fails)

    assert smallest.faults == (faults[3], faults[11])
    assert smallest.weather == replace(CALM, short_io=0.2)
    assert len(runs) < 80
