"""Debian's Chromium, installed by apt when it is missing and one is root; and the arguments it is started with."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
FOREIGN = "evil.example"
"""A name of somebody else, which leads to this machine in the browsers of these tests."""
INSTALL = ("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium")


def program() -> str:
    """Its path. Without one, and without a way to get one, a test is skipped; not so in CI."""
    if found := _found():
        return found
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return _without("Chromium is not here: install Debian's package chromium")
    lock = Path(tempfile.gettempdir()) / "tidemill-chromium.lock"
    with lock.open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)  # modules may be distributed over processes
        if found := _found():
            return found
        said = ""
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (INSTALL, ("apt-get", "update", "--quiet"), INSTALL):  # lists may be old, or none
            done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
            said = done.stderr.strip()
            if found := _found():
                return found
    return _without(f"Chromium could not be installed: {said[-300:]}")


def _found() -> str:
    return next((path for name in NAMES if (path := shutil.which(name))), "")


def _without(why: str) -> str:
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(why, pytrace=False)
    pytest.skip(why)
