"""schemathesis reads /openapi.json and finds no request that is answered otherwise than the page says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from e2e.queues import Queue
from e2e.services import environment

pytestmark = pytest.mark.e2e

EXAMPLES = 10
TESTS = Path(__file__).parents[1]


def test_schemathesis_runs_clean(queue: Queue, tmp_path: Path) -> None:
    """Right and wrong requests to every path, in chains too; without a deadline for a single one."""
    program = "from schemathesis.cli import schemathesis; schemathesis()"
    done = subprocess.run(
        [
            *(sys.executable, "-c", program, "run", f"http://{queue.server}/openapi.json"),
            *("--checks", "all", "--max-examples", str(EXAMPLES), "--seed", "1", "--no-color"),
        ],
        env=environment({"SCHEMATHESIS_HOOKS": "e2e.schema_hooks", "PYTHONPATH": str(TESTS)}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout
    assert queue.errors == ""
    assert queue.running


def test_page_describes_every_path_there_is(queue: Queue) -> None:
    """What a door serves it has described, and an undescribed path is not served."""
    paths = queue.get("/openapi.json")["paths"]

    assert {path for path, item in paths.items() if "post" in item} == {
        "/v1/subjects/{subject}/messages",
        *(
            f"/v1/subjects/{{subject}}/groups/{{group}}/{verb}"
            for verb in (
                *("receive", "ack", "nack", "extend", "release"),
                *("seek", "suspend", "resume", "dead/redrive", "dead/purge"),
            )
        ),
    }
    for path, item in paths.items():
        if "get" in item and not item["get"].get("parameters"):
            assert queue.get_text(path), path
