"""The kinds of kubeflow's spark-operator, out of its module on Go's proxy, in the cache of what tests run."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from cluster.cache import Show, base, turn
from cluster.toolchain import CannotBuild, go, run

MODULE, VERSION = "github.com/kubeflow/spark-operator/v2", "v2.5.0"
SUM = "h1:NNgTHgQMbrGZSFJtprjssdtCaL/qlYYQY1EyXuRaP78="
CHART = "charts/spark-operator-chart"
HERE = Path(__file__).parent


def spark_kinds(show: Show = print) -> Path:
    """The folder with its definitions."""
    folder = base() / f"spark-operator-{VERSION}-crds"
    if not folder.exists():
        with turn(folder, show):
            if not folder.exists():
                fetch(folder)
    return folder


def fetch(folder: Path) -> None:
    compiler = go(HERE / "kube")
    told = json.loads(run([compiler, "mod", "download", "-json", f"{MODULE}@{VERSION}"]))
    if told["Sum"] != SUM:
        raise CannotBuild(
            f"{MODULE} {VERSION} is {told['Sum']}, and {SUM} was tried: try it, and write its sum"
        )
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        made = Path(work) / "crds"
        made.mkdir()
        for path in sorted((Path(told["Dir"]) / CHART / "crds").glob("*.yaml")):
            shutil.copyfile(path, made / path.name)
        os.rename(made, folder)
