"""All tests in two runs of pytest side by side: ``.ci/tests.py PYTEST MARKS-OF-THOSE-THAT-COME-ONE-BY-ONE``.

Those with servers, disks and clocks come one by one, and are seen. They wait most of the time; meanwhile those that
need nothing but processors have what is left, at a lower priority and on all cores, and what they say comes last.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

NICE = ["nice", "-n", "5"]
ON_ALL_CORES = ["-n", "auto", "--dist", "worksteal"]


def main(pytest: str, by_themselves: str) -> int:
    with tempfile.TemporaryFile("w+") as said:
        others = [*NICE, pytest, *ON_ALL_CORES, "-m", f"not ({by_themselves})"]
        beside = subprocess.Popen(others, stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            sys.stdout.write("tests without servers run beside the following; what they say comes last\n")
            sys.stdout.flush()
            seen = subprocess.run([pytest, "-m", by_themselves], check=False).returncode
            unseen = beside.wait()
        finally:
            if beside.poll() is None:
                beside.terminate()
                beside.wait()
        said.seek(0)
        for line in said:
            sys.stdout.write(line)
        return seen or unseen


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
