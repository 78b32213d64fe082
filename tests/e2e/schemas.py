"""schemathesis as a process: requests, right and wrong ones, to what a page describes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from e2e.services import environment

EXAMPLES = 10
TESTS = Path(__file__).parents[1]
PROGRAM = "from schemathesis.cli import schemathesis; schemathesis()"


def check_page(server: str, folder: Path, *options: str, transaction: str = "") -> str:
    """What it said after a run in which no answer was other than the page says. A transaction that there is cannot be
    guessed.
    """
    hooks = {"SCHEMATHESIS_HOOKS": "e2e.schema_hooks", "PYTHONPATH": str(TESTS), "TRANSACTION": transaction}
    done = subprocess.run(
        [
            *(sys.executable, "-c", PROGRAM, "run", f"http://{server}/openapi.json", "--checks", "all"),
            *("--max-examples", str(EXAMPLES), "--seed", "1", "--no-color", "--generation-database", "none"),
            *options,
        ],
        env=environment(hooks),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
