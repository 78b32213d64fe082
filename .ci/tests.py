"""All tests in two runs of pytest side by side: ``.ci/tests.py PYTEST MARKS-OF-THOSE-THAT-COME-ONE-BY-ONE``.

Those with servers, disks and clocks come one by one, and are seen. They wait most of the time; meanwhile those that
need nothing but processors have what is left, at a lower priority and on all cores, and what they say comes last.

Real clocks go on while a busy machine stands still. So what has failed beside other tests is run once more when nothing
else runs: it is listed as failed all the same, and it has failed for good when it fails alone, too.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

NICE = ["nice", "-n", "5"]
ON_ALL_CORES = ["-n", "auto", "--dist", "worksteal"]
SEEN, BESIDE = ["-o", "cache_dir=.pytest_cache/seen"], ["-o", "cache_dir=.pytest_cache/beside"]
SOME_FAILED = 1
"""What pytest ends with then; with anything else there is nothing to try again."""


def main(pytest: str, by_themselves: str) -> int:
    ours = [pytest, "-m", by_themselves, *SEEN]
    others = [pytest, "-m", f"not ({by_themselves})", *BESIDE]
    with tempfile.TemporaryFile("w+") as said:
        command = [*NICE, *others, *ON_ALL_CORES]
        beside = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            tell("tests without servers run beside the following; what they say comes last")
            codes = [subprocess.run(ours, check=False).returncode, beside.wait()]
        finally:
            if beside.poll() is None:
                beside.terminate()
                beside.wait()
        said.seek(0)
        sys.stdout.writelines(said)
    again = [run if code == SOME_FAILED else [] for run, code in zip((ours, others), codes, strict=True)]
    ended = [alone(run) if run else code for run, code in zip(again, codes, strict=True)]
    # Not the greatest of them: who was ended by a signal has a number below nothing.
    return int(any(ended))


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
