"""The simulator has teeth: each bug of ``bugs/`` is planted in a copy of the rooms, and found; without it all is well.

A patch that does not apply any more is drawn anew: the bug is told by its name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUGS = sorted((Path(__file__).parent / "bugs").glob("*.patch"))
EXPERIMENTS = ("sim.seeking", "sim.sending")
ROOMS = ("wire", "journal", "host", "broker", "client")


def copy_rooms(target: Path) -> None:
    for name in ROOMS:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))


def look_for_problems(rooms: Path) -> subprocess.CompletedProcess[str]:
    """The crash points of each experiment until one finds something, in a process that imports these rooms."""
    paths = [str(rooms / name) for name in ROOMS] + [str(ROOT / "tests")]
    for experiment in EXPERIMENTS:
        done = subprocess.run(
            [sys.executable, "-m", experiment],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            break
    return done


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.stem)
def test_a_planted_bug_is_found_at_some_crash_point(bug: Path, tmp_path: Path) -> None:
    copy_rooms(tmp_path)
    alone = os.environ | {
        "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)
    }  # else paths are those of a repository above
    subprocess.run(["git", "apply", str(bug)], cwd=tmp_path, env=alone, check=True)

    done = look_for_problems(tmp_path)

    assert done.returncode == 1
    assert done.stderr.startswith("Cut("), done.stderr


def test_the_same_crash_points_find_nothing_without_a_bug() -> None:
    done = look_for_problems(ROOT)

    assert done.returncode == 0, done.stderr
