"""The simulator has teeth: each bug of ``bugs/`` is planted in a copy of the rooms, and found; without it all is well.

A patch that does not apply any more is drawn anew: the bug is told by its name.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(900)  # all there is to try takes long beside other tests

ROOT = Path(__file__).parents[2]
BUGS = sorted((Path(__file__).parent / "bugs").glob("*.patch"))
FOUND_BY_FAMILIES = {
    "sim.cluster:make": {
        "checkpoint-has-a-group-as-it-was": "214",
        "lane-cursor-not-in-checkpoint": "0",
        "lane-never-served": "40",
        "pause-that-burns-attempts": "20",
    },
    "sim.replicated:make": {
        "group-commits-without-a-slave": "193",
        "group-cuts-by-length": "5",
        "group-cuts-too-little": "4",
        "group-shrinks-by-its-master-alone": "66",
    },
    "sim.whole:make": {
        "group-leaves-before-its-slave-has-all": "38",
        "meta-forgets-who-was-heard": "242",
        "meta-promotes-out-of-the-set": "0",
        "slave-shows-what-is-not-committed": "0",
    },
    "sim.watched:make": {
        "canary-expects-what-failed": "5",
    },
    "sim.cleared:make": {
        "taken-while-it-is-asked-what-is-left": "3",
    },
    "sim.revoked:make": {
        "charter-of-the-next-version-is-passed-over": "0",
        "token-believed-while-it-is-connected": "0",
    },
    "sim.shut:make": {
        "master-takes-before-it-is-told": "14",
    },
    "sim.forgotten:make": {
        "drained-group-goes-on-taking": "0",
    },
    "sim.vanished:make": {
        "deliveries-go-with-their-pod": "0",
    },
    "sim.together:make": {
        "renewal-keeps-what-is-not-begun": "12",
    },
    "sim.inherited:make": {
        "suspension-forgotten-by-a-start": "0",
    },
    "sim.worked:make": {
        "idempotency-key-ignored": "16",
        "worker-begins-one-too-many": "0",
    },
    "sim.halves:make": {
        "decisions-not-in-checkpoint": "0",
    },
    "sim.aside:make": {
        "what-is-stuck-fills-the-wheel": "0",
    },
    "sim.calendars:make": {
        "hours-go-before-a-checkpoint-knows": "15",
        "slave-does-not-mark-what-was-sent": "0",
    },
    "sim.crontabs:make": {
        "what-was-missed-comes-late": "28",
    },
    "sim.hoarded:make": {
        "spool-forgets-before-the-answer": "0",
    },
    "sim.shelved:make": {
        "spool-looks-at-no-order-keys": "1",
        "spool-sends-again-what-is-stored": "13",
    },
    "sim.couriers:make": {
        "what-was-sent-goes-elsewhere": "153",
    },
    "sim.later:make": {
        "copy-left-when-it-is-said-again": "146",
        "far-acked-before-it-is-kept": "0",
    },
    "sim.repeated:make": {
        "send-that-comes-twice-stored-twice": "0",
    },
    "sim.held:make": {
        "what-is-settled-stays-in-flight": "0",
    },
    "sim.granted:make": {
        "send-in-doubt-told-as-refused": "127",
        "what-is-told-to-wait-is-taken-for-stored": "0",
    },
    "sim.deduped:make": {
        "dedup-keys-forgotten-by-a-start": "0",
        "dedup-keys-not-in-checkpoint": "0",
        "slave-does-not-learn-dedup-keys": "0",
    },
}
"""What takes a world to happen: its family, and a seed to begin with; one of the next finds it, which saves minutes.
The others are found at crash points.
"""
FOUND_BY_STORMS = {
    "authorisation-time-ignored": "114",
    "heir-open-before-all-is-settled": "0",
    "no-fence-at-send": "0",
}
"""What takes order keys that move."""
FOUND_BY_EXPERIMENTS = {
    "cancel-not-applied-by-slaves": "sim.succession",
    "cancel-not-replicated": "sim.succession",
    "cancel-after-its-tick-has-begun": "sim.timing",
    "cancel-answered-before-it-is-durable": "sim.timing",
    "checkpoint-does-not-wait-for-its-hours": "sim.delaying",
    "commit-answered-before-it-is-kept": "sim.halving",
    "pending-transactions-not-in-checkpoint": "sim.halving",
    "commit-applied-twice": "sim.halving",
    "commit-believed-without-its-copies": "sim.halving",
    "dispatched-before-it-is-delivered": "sim.delaying",
    "group-counts-who-is-only-wished-in": "sim.wishing",
    "half-of-a-copy-is-believed": "sim.late",
    "hours-not-cut-on-start": "sim.delaying",
    "late-insert-not-in-the-wheel": "sim.delaying",
    "log-removed-before-its-checkpoint": "sim.delaying",
    "kept-messages-forget-which-they-were": "sim.delaying",
    "late-extension-taken": "sim.renewing",
    "lease-renewed-after-its-end": "sim.renewing",
    "limit-forgotten-on-restart": "sim.hanging",
    "lock-outlives-its-time": "sim.idling",
    "meta-does-not-wait-for-who-stopped": "sim.electing",
    "meta-elects-who-was-not-heard-since": "sim.electing",
    "meta-elects-whom-it-heard-first": "sim.electing",
    "meta-grants-a-wish-whole-or-not-at-all": "sim.electing",
    "meta-keeps-who-said-goodbye": "sim.electing",
    "moved-message-stays-where-it-was": "sim.timing",
    "occurrence-placed-anew-by-a-start": "sim.recurring",
    "seek-leaves-old-leases-valid": "sim.seeking",
    "refused-and-passed-counts-as-stored": "sim.passed",
    "segment-goes-before-a-checkpoint-remembers": "sim.late",
    "senders-of-all-subjects-are-one": "sim.delaying",
    "series-not-in-checkpoint": "sim.recurring",
    "slave-begins-without-what-is-remembered": "sim.late",
    "slave-takes-another-epoch": "sim.deposed",
    "tick-leaves-before-the-disk-knows": "sim.timing",
    "unwanted-copy-kept": "sim.burying",
    "what-comes-as-a-page-is-read-waits-for-it": "sim.unread",
}
"""What seeds find seldom: each has an experiment of its own, which goes through all there is to try."""
EXPERIMENTS = sorted({"sim.sending", *FOUND_BY_EXPERIMENTS.values()})
NAMED = re.findall(
    r"^\| \d \| .* \| `(.*)` \| `(.*)` \|$",
    (Path(__file__).parent / "bugs" / "README.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
"""The rows of the table of bugs that issues name: the patch, and what finds it."""
ROOMS = ("wire", "journal", "ledger", "host", "broker", "meta", "delay", "client")


def copy_rooms(target: Path) -> None:
    for name in ROOMS:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))


def look_for_problems(rooms: Path, *where: str) -> subprocess.CompletedProcess[str]:
    """Crash points (``sim.sending``) or seeds (``sim.hunting``), in a process that imports these rooms."""
    paths = [str(rooms / name) for name in ROOMS] + [str(ROOT / "tests")]
    return subprocess.run(
        [sys.executable, "-m", *where],
        env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )


def place_of(bug: str) -> tuple[str, ...]:
    """Where it is found."""
    if (storm := FOUND_BY_STORMS.get(bug)) is not None:
        return ("sim.ordered.storm", "--from", storm, "--seeds", "10")
    for family, seeds in FOUND_BY_FAMILIES.items():
        if bug in seeds:
            return ("sim.hunting", seeds[bug], family)
    return (FOUND_BY_EXPERIMENTS.get(bug, "sim.sending"),)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.stem)
def test_a_planted_bug_is_found_at_some_crash_point_or_in_some_seed(bug: Path, tmp_path: Path) -> None:
    copy_rooms(tmp_path)
    alone = os.environ | {
        "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)
    }  # else paths are those of a repository above
    subprocess.run(["git", "apply", str(bug)], cwd=tmp_path, env=alone, check=True)

    done = look_for_problems(tmp_path, *place_of(bug.stem))

    assert done.returncode == 1
    # Brokers may have said before it what they could not read.
    assert any(line.startswith(("Cut(", "seed ")) for line in done.stderr.splitlines()), done.stderr


@pytest.mark.parametrize(("bug", "finder"), NAMED)
def test_what_an_issue_names_is_planted_and_found_as_the_table_says(bug: str, finder: str) -> None:
    where, *rest = place_of(bug)

    assert bug in {path.stem for path in BUGS}
    assert (rest[1].partition(":")[0] if where == "sim.hunting" else where) == finder


def test_the_table_of_named_bugs_is_read() -> None:
    assert len(NAMED) == 16


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_the_same_crash_points_find_nothing_without_a_bug(experiment: str) -> None:
    done = look_for_problems(ROOT, experiment)

    assert done.returncode == 0, done.stderr
