"""Jobs on a real Spark of this machine, as spark-submit runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from e2e.queues import wait_until
from e2e.services import environment
from spark import programs
from tidemill_spark.delta import CONF
from tidemill_spark.workers import local_conf

JOBS = Path(__file__).parents[2] / "spark-on-k8s" / "jobs"
DONE_SECONDS = 600


class Job:
    """A job in a process of its own, with the JVM that it begins."""

    def __init__(self, name: str, *arguments: str) -> None:
        programs.installed("java")
        conf = {**local_conf(2), **CONF}
        said = [part for item in conf.items() for part in ("--conf", f"{item[0]}={item[1]}")]
        jars = ",".join(map(str, programs.jars("delta")))
        submit = " ".join(["--jars", jars, *said, "pyspark-shell"])
        self._process = subprocess.Popen(
            [sys.executable, str(JOBS / f"{name}.py"), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            env=environment({"PYSPARK_SUBMIT_ARGS": submit}),
        )  # fmt: skip

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def done(self) -> dict[str, Any]:
        said, errors = self._process.communicate(timeout=DONE_SECONDS)
        assert self._process.returncode == 0, errors.decode()[:2000] + errors.decode()[-6000:]
        found: dict[str, Any] = json.loads(said.decode().strip().rpartition("\n")[2])
        return found


def wait_so_long(job: Job, seconds: float) -> None:
    """A while, or until it has ended."""
    until = time.monotonic() + seconds
    wait_until("a moment passes", lambda: not job.running or time.monotonic() > until, DONE_SECONDS)
