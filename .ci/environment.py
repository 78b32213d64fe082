"""Makes a virtual environment with pip in it, also where the machine's Python came without ensurepip.

``python3 .ci/environment.py .venv``. Debian, for one, ships ``venv`` without ``ensurepip``; then pip's own wheel is
taken from PyPI: a wheel of pip can run from the zip file it is, and install itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import venv
from importlib.util import find_spec
from pathlib import Path

PIP = "https://pypi.org/pypi/pip/json"
DEADLINE_S = 60


def fetched_pip(folder: str) -> Path:
    """The newest wheel of pip."""
    with urllib.request.urlopen(PIP, timeout=DEADLINE_S) as answer:
        wheel = next(url for url in json.load(answer)["urls"] if url["filename"].endswith(".whl"))
    address = urllib.parse.urljoin(PIP, wheel["url"])  # a mirror may answer with relative addresses
    with urllib.request.urlopen(address, timeout=DEADLINE_S) as answer:  # noqa: S310 -- https, or as the mirror says
        path = Path(folder, wheel["filename"])
        path.write_bytes(answer.read())
    return path


def make(folder: str) -> None:
    """An environment in ``folder``; whatever was there before is replaced."""
    with_ensurepip = find_spec("ensurepip") is not None
    venv.create(folder, clear=True, symlinks=True, with_pip=with_ensurepip)
    if with_ensurepip:
        return
    with tempfile.TemporaryDirectory() as downloads:
        pip = fetched_pip(downloads)
        subprocess.run([f"{folder}/bin/python", f"{pip}/pip", "install", "--quiet", str(pip)], check=True)


def main() -> None:
    folder = sys.argv[1]
    try:
        make(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        named = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        sys.exit(
            f"{sys.executable} cannot make an environment in {Path(folder).resolve()} ({error}): "
            f"install its venv package (on Debian: apt install {named}) "
            f"or name another Python: make PYTHON=/path/to/python3.11"
        )


if __name__ == "__main__":
    main()
