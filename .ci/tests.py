"""All tests in three runs of pytest side by side: ``.ci/tests.py PYTEST MARKS-WITH-SERVERS MARKS-ON-KUBERNETES``.

Those with servers, disks and clocks are seen. They wait most of the time, so three files of them go at once; those on
Kubernetes wait, too, first of all for its build. What needs nothing but processors has what is left, at a lower
priority and on all cores. What the runs say that are not seen comes last.

Real clocks go on while a busy machine stands still. So what has failed beside other tests is run once more when nothing
else runs: it is listed as failed all the same, and it has failed for good when it fails alone, too.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from typing import IO

SLOWEST = ["--durations", "15", "--durations-min", "20"]
NICE = ["nice", "-n", "5"]
ON_ALL_CORES = ["-n", "auto", "--dist", "worksteal"]
THREE_FILES = ["-n", "3", "--dist", "loadfile"]
SOME_FAILED = 1
"""What pytest ends with then; with anything else there is nothing to try again."""


def main(pytest: str, with_servers: str, on_kubernetes: str) -> int:
    seen = run_of(pytest, "seen", f"({with_servers}) and not ({on_kubernetes})")
    kubernetes = run_of(pytest, "kubernetes", on_kubernetes)
    others = run_of(pytest, "others", f"not ({with_servers} or {on_kubernetes})")
    with ExitStack() as stack:
        beside = []
        for command in (kubernetes, [*NICE, *others, *ON_ALL_CORES]):
            beside.append(Beside(command, stack.enter_context(tempfile.TemporaryFile("w+"))))
            stack.callback(beside[-1].end)
        tell(
            "tests on Kubernetes, and those without servers, run beside the following; what they say comes last"
        )
        codes = [
            subprocess.run([*seen, *THREE_FILES], check=False).returncode,
            *(one.told() for one in beside),
        ]
    runs = zip((seen, kubernetes, others), codes, strict=True)
    ended = [alone(run) if code == SOME_FAILED else code for run, code in runs]
    # Not the greatest of them: who was ended by a signal has a number below nothing.
    return int(any(ended))


def run_of(pytest: str, name: str, marks: str) -> list[str]:
    """A run remembers by itself what has failed."""
    return [pytest, "-m", marks, "-o", f"cache_dir=.pytest_cache/{name}", *SLOWEST]


class Beside:
    """A run that is heard when it has ended."""

    def __init__(self, command: list[str], said: IO[str]) -> None:
        self._said = said
        self._run = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def told(self) -> int:
        code = self._run.wait()
        self._said.seek(0)
        sys.stdout.writelines(self._said)
        sys.stdout.flush()
        return code

    def end(self) -> None:
        if self._run.poll() is None:
            self._run.terminate()
            self._run.wait()


def alone(run: list[str]) -> int:
    tell("what has failed, once more, with nothing beside it")
    return subprocess.run(
        [*run, "--last-failed", "--last-failed-no-failures", "none"], check=False
    ).returncode


def tell(text: str) -> None:
    sys.stdout.write(f"\n{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
