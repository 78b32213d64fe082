"""``tidemill worker`` whose module fails where the command is not to blame."""

from __future__ import annotations

import subprocess
import sys

import pytest

MODULE = """from tidemill import Worker

worker = Worker()


@worker.on("a", group="g")
async def handle(message):
    pass


@worker.on_startup
def connect():
    raise {raised}
"""


@pytest.mark.parametrize("raised", ["ValueError('no DSN')", "ConnectionRefusedError('the database')"])
def test_a_hook_that_fails_is_named_and_no_reason_to_give_up(raised, tmp_path):
    """The code for a module that cannot be used would end ``--processes`` for good, for a database that restarts."""
    (tmp_path / "shop.py").write_text(MODULE.format(raised=raised))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tidemill.cli", "worker", "shop:worker"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stderr
    kind, _, text = raised.partition("('")
    assert done.stderr.endswith(
        f"the worker cannot start: {kind}: {text.rstrip(')').rstrip(chr(39))} at shop.py:13 in connect\n"
    )
