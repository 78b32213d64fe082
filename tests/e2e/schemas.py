"""schemathesis as a process: requests, right and wrong ones, to what a page describes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from e2e.services import RealService, environment

EXAMPLES = 10
TESTS = Path(__file__).parents[1]
PROGRAM = "from schemathesis.cli import schemathesis; schemathesis()"


def check_page(
    server: str,
    folder: Path,
    *options: str,
    transaction: str = "",
    hooks: str = "e2e.schema_hooks",
    settings: Mapping[str, str] | None = None,
    page: str = "",
) -> str:
    """What it said after a run in which no answer was other than the page says. A transaction that there is cannot be
    guessed. ``page`` is a file that has the page, for who may not read it at the server; ``settings`` are for the
    ``hooks``.
    """
    more = {
        "SCHEMATHESIS_HOOKS": hooks,
        "PYTHONPATH": str(TESTS),
        "TRANSACTION": transaction,
        **(settings or {}),
    }
    where = (page, "--url", f"http://{server}") if page else (f"http://{server}/openapi.json",)
    done = subprocess.run(
        [
            *(sys.executable, "-c", PROGRAM, "run", *where, "--checks", "all"),
            *("--max-examples", str(EXAMPLES), "--seed", "1", "--no-color", "--generation-database", "none"),
            *options,
        ],
        env=environment(more),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def complaints(service: RealService) -> list[str]:
    """What it said of what is wrong, but for what it is, and what it was asked to say: another level of its log, and
    each request.
    """
    asked = re.compile(
        r"tidemill: (?:\S+: )?(?:(?:master|slave) in epoch |the log's level is |[A-Z]+ .* was answered )"
    )
    return [line for line in service.errors.splitlines() if not asked.match(line)]
