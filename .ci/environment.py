"""Makes a virtual environment with pip in it: ``python3 .ci/environment.py .venv``.

Debian, for one, ships ``venv`` without ``ensurepip``; then this says what to install rather than how Python failed.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path


def main() -> None:
    folder = sys.argv[1]
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    advice = f"install its venv package (on Debian: apt install {package}) or name another: make PYTHON=/path/to/python"
    if find_spec("ensurepip") is None:
        sys.exit(f"{sys.executable} has no ensurepip, so it cannot make an environment: {advice}")
    try:
        venv.create(folder, clear=True, symlinks=True, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(
            f"{sys.executable} cannot make an environment in {Path(folder).resolve()} ({error}): {advice}"
        )


if __name__ == "__main__":
    main()
