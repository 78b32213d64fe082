"""Debian's Chromium, installed by apt when it is missing and one is root; and the arguments it is started with."""

from __future__ import annotations

import os
import shutil

import pytest

from samples import debian

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
FOREIGN = "evil.example"
"""A name of somebody else, which leads to this machine in the browsers of these tests."""


def program() -> str:
    """Its path. Without one, and without a way to get one, a test is skipped; not so in CI."""
    if found := _found():
        return found
    if not debian.is_debian() or os.geteuid() != 0:
        return _without("Chromium is not here: install Debian's package chromium")
    said = debian.install("chromium")
    return _found() or _without(f"Chromium could not be installed: {said}")


def _found() -> str:
    return next((path for name in NAMES if (path := shutil.which(name))), "")


def _without(why: str) -> str:
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(why, pytrace=False)
    pytest.skip(why)
