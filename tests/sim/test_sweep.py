"""The real broker and clients keep their promises, in as many worlds as SEEDS says and in those that broke them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_clusters_keep_their_promises_in_every_seed() -> None:
    done = run_simulator("sweep", "--seeds", os.environ.get("SEEDS", "50"))

    assert done.returncode == 0, done.stdout + done.stderr


def test_groups_that_are_moved_locked_and_broadcast_keep_theirs() -> None:
    seeds = os.environ.get("SEEDS", "50")
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.steered:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_broker_groups_keep_theirs_through_failovers() -> None:
    seeds = os.environ.get("SEEDS", "50")
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.replicated:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_a_canary_beside_failovers_says_nothing_false() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 4))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.watched:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_transactions_are_there_once_or_not_at_all_through_failovers() -> None:
    seeds = os.environ.get("SEEDS", "50")
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.halves:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_messages_with_dedup_keys_are_stored_once_within_their_window() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 2))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.deduped:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_told_to_wait_or_refused_is_told_so_and_nothing_else_is_lost() -> None:
    seeds = os.environ.get("SEEDS", "50")
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.granted:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_nobody_holds_more_than_may_be_and_everybody_is_given_everything() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 2))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.held:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_messages_for_later_come_once_and_not_before_their_time() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 2))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.later:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_messages_for_later_go_past_those_of_a_subject_that_nobody_takes() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 5))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.aside:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_messages_for_later_come_once_from_a_group_that_changes_its_master() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 2))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.calendars:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_messages_that_recur_come_once_from_a_group_that_changes_its_master() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 4))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.crontabs:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_messages_for_later_come_once_over_two_broker_groups_that_come_and_go() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 2))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.couriers:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_messages_for_later_that_lay_in_a_spool_come_once_and_not_before_their_time() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 2))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.hoarded:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_transactions_over_whole_clusters_are_there_once_or_not_at_all() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 4))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.traded:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_actions_of_broker_groups_are_archived_once_through_failovers() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 4))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.accounted:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_clients_over_two_broker_groups_keep_theirs() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 2))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.routed:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_spooled_without_a_route_is_stored_once() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 2))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.shelved:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_acked_into_a_spool_never_comes_again() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 2))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.spooled:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_what_fails_while_its_broker_is_away_comes_from_the_other_one() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 2))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.adopted:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_said_twice_is_done_once() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 2))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.repeated:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_whole_clusters_keep_their_promises_under_the_real_meta() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 2))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.whole:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_brokers_that_are_told_to_stop_leave_nothing_undone() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 2))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.rolled:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_pods_that_are_said_to_be_gone_lose_nothing() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 2))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.vanished:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_of_a_guest_whose_token_is_revoked_nothing_is_taken_two_seconds_later() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 8))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.revoked:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_subjects_that_are_removed_if_they_are_empty_lose_nothing() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 2))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.cleared:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_what_people_closed_is_closed_for_the_next_master_too() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 4))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.shut:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_goes_with_a_broker_group_that_is_drained_retired_and_forgotten() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 4))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.forgotten:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_workers_and_clients_over_http_keep_theirs() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 2))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.worked:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_groups_that_are_steered_keep_theirs_through_failovers() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 2))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.inherited:make")

    assert done.returncode == 0, done.stdout + done.stderr


def test_order_keys_exclusive_groups_and_broadcast_keep_theirs_through_failovers() -> None:
    seeds = str(max(1, int(os.environ.get("SEEDS", "50")) // 4))
    done = run_simulator("sweep", "--seeds", seeds, "--scenario", "sim.together:make")

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
