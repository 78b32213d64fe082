"""A cluster whose nodes and pods are played by kwok: everything but them is real. No root, ten seconds, any number.

A pod is scheduled, and at once running and ready; nothing runs. Volumes are bound, and nothing is on them.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any, Self

from cluster.api import Api
from cluster.hands import Hands
from cluster.plane import LOOPBACK, PARTS, PODS, TAKEN, ControlPlane, Place, PortTaken, free_ports
from cluster.programs import Ended, Programs, wait_until

ATTEMPTS = 3
NODES = 3
NODES_SECONDS = 60.0
LEASE_SECONDS = 40
ROOM = {"cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"}
PACKAGES = str(Path(__file__).parents[1])


class KwokCluster(Hands):
    """In a folder of its own; ``bound`` ends it with this process, however that ends."""

    def __init__(self, folder: Path, programs: Path, nodes: int = NODES, *, bound: bool = True) -> None:
        super().__init__(folder, programs)
        self._nodes = nodes
        self._processes = Programs(folder, bound)
        self._plane: ControlPlane | None = None

    @property
    def api(self) -> Api:
        assert self._plane is not None
        return self._plane.api

    def start(self) -> Self:
        """On free ports, and on others when somebody was faster."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._start(self.folder / f"attempt-{attempt}")
            except PortTaken:
                self.stop()
                if attempt == ATTEMPTS:
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                break
        return self

    def _start(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        plane = ControlPlane(folder, self.bin, self._processes, Place(LOOPBACK, reconciler="none"))
        plane.start()
        plane.start_volumes("env", f"PYTHONPATH={PACKAGES}", sys.executable, "-m", "cluster.volumes")
        for number in range(self._nodes):
            plane.api.send("POST", "/api/v1/nodes", node(number))
        self._start_kwok(plane)
        self._plane, self.kubeconfig = plane, str(plane.kubeconfig)
        wait_until("all nodes are ready", self._is_ready, NODES_SECONDS, self._check)

    def _start_kwok(self, plane: ControlPlane) -> None:
        [port] = free_ports(1)
        self._processes.start(
            "kwok",
            [
                self.bin / "kwok", f"--kubeconfig={plane.kubeconfig}", "--manage-all-nodes=true",
                f"--server-address={LOOPBACK}:{port}", f"--node-ip={LOOPBACK}", f"--cidr={PODS}",
                f"--node-lease-duration-seconds={LEASE_SECONDS}",
                f"--config={self.bin}/kwok-stages/stages-fast.yaml",
            ],
            {"HOME": str(self.folder)},
        )  # fmt: skip

    def _check(self) -> None:
        try:
            self._processes.check("kwok", *PARTS)
        except Ended as error:
            if TAKEN in self._processes.said("kwok"):
                raise PortTaken(str(error)) from error
            raise

    def _is_ready(self) -> bool:
        return all(is_ready(found) for found in self.api.items("/api/v1/nodes"))

    def stop(self) -> None:
        """The logs stay; so does nothing else."""
        self.kubeconfig, self._plane = "", None
        self._processes.stop(*self._processes.names())
        for path in self.folder.iterdir() if self.folder.exists() else ():
            if path.name != "log":
                shutil.rmtree(path)


def is_ready(found: dict[str, Any]) -> bool:
    """An object with conditions."""
    conditions = found.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def node(number: int) -> dict[str, Any]:
    """Each in a zone of its own."""
    name = f"node-{number}"
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64" if os.uname().machine == "aarch64" else "amd64",
        "topology.kubernetes.io/zone": f"zone-{number}",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"allocatable": ROOM, "capacity": ROOM},
    }
