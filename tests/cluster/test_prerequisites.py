"""Tests with real nodes are never left out in silence where they have to run; what they miss is installed loudly."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

import pytest

from cluster import prerequisites
from cluster.prerequisites import CannotHaveNodes, Verdict, obstacle, provide, verdict


@pytest.mark.parametrize(
    "environment, why, wanted",
    [
        ({}, "", Verdict.RUN),
        ({}, "not root", Verdict.SKIP),
        ({"CI": "true"}, "not root", Verdict.FAIL),
        ({"TIDEMILL_REAL_CLUSTER": "1"}, "not root", Verdict.FAIL),
        ({"CI": "true", "TIDEMILL_REAL_CLUSTER": "0"}, "not root", Verdict.SKIP),
        ({"TIDEMILL_REAL_CLUSTER": "0"}, "", Verdict.SKIP),
        ({"CI": "true"}, "", Verdict.RUN),
    ],
)
def test_obstacle_fails_where_the_tests_have_to_run(
    environment: Mapping[str, str], why: str, wanted: Verdict
) -> None:
    assert verdict(environment, why) is wanted


def test_whoever_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    assert "only root" in obstacle()
    with pytest.raises(CannotHaveNodes, match="run it as root"):
        provide(print)


def test_what_is_missing_is_installed_after_a_look_for_newer_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first try fails, as it does where apt has no lists yet."""
    absent, told, ran = ["runc"], list[str](), list[str]()

    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append("install" if "install" in words else "update")
        if len(ran) == 3:
            absent.clear()
        return subprocess.CompletedProcess(words, 0 if len(ran) > 1 else 100, "", "there is no such package")

    monkeypatch.setattr(prerequisites, "obstacle", lambda: "")
    monkeypatch.setattr(prerequisites, "missing", lambda: [*absent])
    monkeypatch.setattr("subprocess.run", run)

    provide(told.append)

    assert told == ["installing runc, which real nodes need"]
    assert ran == ["install", "update", "install"]


def test_package_that_cannot_be_had_is_named_with_what_apt_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(words, 100, "", "E: Unable to locate package runc")

    monkeypatch.setattr(prerequisites, "obstacle", lambda: "")
    monkeypatch.setattr(prerequisites, "missing", lambda: ["runc"])
    monkeypatch.setattr("subprocess.run", run)

    with pytest.raises(
        CannotHaveNodes, match="needs runc, and apt-get could not install them: E: Unable to locate"
    ):
        provide(print)
