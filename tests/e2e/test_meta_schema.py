"""schemathesis reads meta's page and finds no request that is answered otherwise than it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from e2e.metas import Meta
from e2e.services import environment

pytestmark = pytest.mark.e2e

EXAMPLES = 10


def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    """Right and wrong requests to every path but the stream, which has no end."""
    meta = Meta(tmp_path / "meta").start()
    try:
        program = "from schemathesis.cli import schemathesis; schemathesis()"
        done = subprocess.run(
            [
                *(sys.executable, "-c", program, "run", f"http://{meta.server}/openapi.json"),
                *("--exclude-path", "/v1/watch", "--exclude-checks", "positive_data_acceptance"),
                *(
                    "--max-examples",
                    str(EXAMPLES),
                    "--seed",
                    "1",
                    "--no-color",
                    "--generation-database",
                    "none",
                ),
            ],
            env=environment({}),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

        assert done.returncode == 0, done.stdout + done.stderr
        assert meta.errors == ""
        assert meta.running
    finally:
        meta.close()
