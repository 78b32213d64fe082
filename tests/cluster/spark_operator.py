"""kubeflow's spark-operator, out of its module on Go's proxy, in the cache of what tests run: its kinds, its chart, and
itself in an image.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from cluster.cache import Show, base, turn
from cluster.images import pack_beside
from cluster.modules import Module

OPERATOR = Module(
    "github.com/kubeflow/spark-operator/v2",
    "v2.5.0",
    "h1:NNgTHgQMbrGZSFJtprjssdtCaL/qlYYQY1EyXuRaP78=",
)
CHART = "charts/spark-operator-chart"
REGISTRY, REPOSITORY, TAG = "localhost", "spark-operator", "tests"
PROGRAM = "usr/bin/spark-operator"


def spark_kinds(show: Show = print) -> Path:
    """The folder with its definitions."""
    return copied(f"{CHART}/crds", f"spark-operator-{OPERATOR.version}-crds", show)


def spark_chart(show: Show = print) -> Path:
    """By which people install it."""
    return copied(CHART, f"spark-operator-{OPERATOR.version}-chart", show)


def copied(part: str, name: str, show: Show) -> Path:
    """A folder of the module, of files that may be read where Go's own cache is somebody else's."""
    folder = base() / name
    if not folder.exists():
        with turn(folder, show):
            if not folder.exists():
                with tempfile.TemporaryDirectory(dir=folder.parent) as work:
                    shutil.copytree(
                        OPERATOR.folder() / part, Path(work) / name, copy_function=shutil.copyfile
                    )
                    for path, _, _ in os.walk(Path(work) / name):
                        os.chmod(path, 0o755)
                    os.rename(Path(work) / name, folder)
    return folder


def add_operator(archive: Path, show: Show = print) -> None:
    """Put its image beside that of Spark, with which it submits, and of which it is one layer more."""
    program = OPERATOR.program("./cmd/operator", "spark-operator", "three", show)
    with tempfile.TemporaryDirectory(dir=archive.parent) as work:
        target = Path(work) / "root" / PROGRAM
        target.parent.mkdir(parents=True)
        shutil.copy(program, target)
        name = f"{REGISTRY}/{REPOSITORY}:{TAG}"
        pack_beside(archive, name, Path(work) / "root", ["tini", "-s", "--", f"/{PROGRAM}"])
