"""What a test has of a cluster: kubectl, helm, and where it is."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COMMAND_SECONDS = 120.0
MACHINES_OWN = {"KUBECONFIG", "KUBERC", "KUBECACHEDIR"}
"""What a person may have set for clusters of their own; no test is to find those."""


class Hands:
    """Both kinds of cluster have them. ``bin`` holds kubectl and helm among others."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self.bin = programs
        self.kubeconfig = ""
        """Of one who may do everything; there once the cluster is up."""

    @property
    def environment(self) -> dict[str, str]:
        """For any program that is to speak to this cluster and to no other."""
        plain = {
            name: value
            for name, value in os.environ.items()
            if name not in MACHINES_OWN and not name.startswith("HELM_")
        }
        own: Mapping[str, str] = {
            "KUBECONFIG": self.kubeconfig,
            "KUBERC": "off",
            **{
                name: str(self.folder / "of-clients" / name.lower())
                for name in ("KUBECACHEDIR", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
            },
        }
        return {**plain, **own}

    def kubectl(
        self, *words: str, stdin: str | None = None, seconds: float = COMMAND_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """To its end, which may be a refusal."""
        return self._run("kubectl", words, stdin, seconds)

    def helm(
        self, *words: str, stdin: str | None = None, seconds: float = COMMAND_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        return self._run("helm", words, stdin, seconds)

    def ask(self, *words: str, stdin: str | None = None, seconds: float = COMMAND_SECONDS) -> str:
        """What a kubectl says that has to succeed."""
        done = self.kubectl(*words, stdin=stdin, seconds=seconds)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr.strip()}"
        return done.stdout

    def apply(self, manifests: str, *words: str) -> str:
        """Server-side, as one who applies nothing else; refusals fail the test."""
        return self.ask("apply", "--server-side", *words, "-f", "-", stdin=manifests)

    def json(self, *words: str) -> Any:
        """An object, or a list of them, as in ``cluster.json("get", "pods", "-n", "shop")``."""
        return json.loads(self.ask(*words, "-o", "json"))

    def _run(
        self, program: str, words: tuple[str, ...], stdin: str | None, seconds: float
    ) -> subprocess.CompletedProcess[str]:
        assert self.kubeconfig, "the cluster is not up"
        return subprocess.run(
            [str(self.bin / program), *words], input=stdin or "", capture_output=True, text=True,
            timeout=seconds, env=self.environment, check=False,
        )  # fmt: skip
