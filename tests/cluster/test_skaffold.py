"""`skaffold.yaml` is what skaffold takes: each profile is rendered by the real one, which is built for that."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.build import programs
from cluster.skaffold import skaffold
from samples.scripts import ROOT

pytestmark = [pytest.mark.real_cluster, pytest.mark.timeout(2_700)]  # it may have to be built

IMAGE = "localhost/tidemill:loop"
PROFILES = [profile["name"] for profile in yaml.safe_load((ROOT / "skaffold.yaml").read_text())["profiles"]]


def rendered(profile: str, tmp_path: Path) -> list[dict[str, Any]]:
    folder = tmp_path / "home"
    folder.mkdir()
    path = f"{programs()}{os.pathsep}{os.environ['PATH']}"  # helm
    settings = {
        "PATH": path,
        "HOME": str(folder),
        "SKAFFOLD_UPDATE_CHECK": "false",
        "SKAFFOLD_INTERACTIVE": "false",
    }
    options = ["--offline=true", "--digest-source=none", f"--images=tidemill={IMAGE}"]
    options += [f"--profile={profile}"] if profile else []
    target = tmp_path / "rendered.yaml"
    command = [str(skaffold()), "render", *options, f"--output={target}"]
    done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(target.read_text()) if one]


@pytest.mark.parametrize("profile", ["", *PROFILES])
def test_every_profile_is_rendered_with_the_image_that_was_built(profile: str, tmp_path: Path) -> None:
    objects = rendered(profile, tmp_path)

    (operator,) = [one for one in objects if one["kind"] == "Deployment"]
    (settings,) = [one for one in objects if one["kind"] == "ConfigMap"]
    kinds = {one["kind"] for one in objects}
    assert operator["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE
    assert settings["data"]["TIDEMILL_OPERATOR_IMAGE"] == IMAGE
    assert {"CustomResourceDefinition", "ClusterRole"} <= kinds
    assert ({"QueueCluster", "BrokerGroup"} <= kinds) == (profile != "operator")
