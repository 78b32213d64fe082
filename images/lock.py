"""Writes the locks of the image: ``make lock``. Every version and every sum of what is installed into it.

``requirements.lock`` is what the image of services has, ``spark.lock`` what that with Spark has, and ``tools.lock``
what their builds need and do not leave in them. One lock is for all Pythons and processors that are supported: uv
resolves for all at once, and is itself pinned here. Pins that still satisfy pyproject.toml stay;
``make lock OPTIONS=--upgrade`` looks for newer ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
UV = "0.13.8"
EXTRAS = ("server", "operator")
"""Of pyproject.toml: what the services of the image need."""
SPARK_EXTRAS = ("spark",)
SPARK = "pyspark>=4.2,<4.3"
"""Of what the extra takes, the newest for which there is a build of Delta: tests have the same."""
BUILDERS = ("pip", "setuptools")
"""The latter packs up Spark, which the index has as a source only."""
OLDEST_PYTHON = "3.11"
HEADING = "# Made by `make lock` of pyproject.toml; tests/unit/images compares them.\n"


def main(options: Sequence[str]) -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tools = [*project["build-system"]["requires"], *BUILDERS]
    with tempfile.TemporaryDirectory() as folder:
        uv = put_uv(folder)
        write("images/requirements.lock", uv, wanted(project, EXTRAS), options)
        write("images/spark.lock", uv, [*wanted(project, SPARK_EXTRAS), SPARK], options)
        write("images/tools.lock", uv, tools, options)
    return 0


def wanted(project: Mapping[str, Any], extras: Sequence[str]) -> list[str]:
    found = project["project"]
    return [
        *found["dependencies"],
        *(one for extra in extras for one in found["optional-dependencies"][extra]),
    ]


def put_uv(folder: str) -> str:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, f"uv=={UV}"]
    subprocess.run(pip, check=True)
    return f"{folder}/bin/uv"


def write(name: str, uv: str, wanted: Sequence[str], options: Sequence[str]) -> None:
    path = ROOT / name
    command = [uv, "pip", "compile", "-", "--quiet", "--universal", "--generate-hashes", "--no-header"]
    command += ["--no-annotate", "--python-version", OLDEST_PYTHON, "--output-file", str(path), *options]
    subprocess.run(command, input="\n".join(wanted), text=True, check=True, env=surroundings(), cwd=ROOT)
    path.write_text(HEADING + path.read_text().removeprefix(HEADING))
    sys.stdout.write(f"{name}: {path.read_text().count('==')} packages\n")


def surroundings() -> dict[str, str]:
    """Of uv, which does not read pip's configuration: the index and the certificates come from there."""
    told = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        check=False,
    )
    index = {"UV_DEFAULT_INDEX": told.stdout.strip()} if told.returncode == 0 else {}
    return {**index, **os.environ, "UV_SYSTEM_CERTS": "true", "UV_NATIVE_TLS": "true"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
