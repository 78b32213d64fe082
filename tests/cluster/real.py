"""A cluster of real nodes and pods, on this machine, for which one has to be root. One at a time.

The control plane runs on the machine itself, at an address of a bridge that nothing else is on; the nodes hang on that
bridge. All that is made outside of their namespaces is the bridge, its links and routes, control groups, and a folder;
``LEASE`` says which one, so that whatever a crash leaves is found and taken away by the next one, or by `stop`.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cluster.api import Api
from cluster.hands import Hands
from cluster.images import COREDNS, PAUSE, pack_program
from cluster.kwok import PACKAGES, is_ready
from cluster.node import BRIDGE, HERE, PLANE, Machine, Node, remove_cgroups, remove_folder, run
from cluster.plane import PARTS, SERVICES, ControlPlane, Place
from cluster.prerequisites import provide
from cluster.programs import Programs, beginning, wait_until

LEASE = Path("/run/tidemill-cluster")
BOUND, STAYS = "bound", "stays"
TURN_SECONDS = 900.0
"""For which one waits for the cluster of other tests."""
PORT = 6443
"""At an address that is this cluster's alone."""
READY_SECONDS = 300.0
"""Ten times what a machine takes that has nothing else to do."""
GONE_SECONDS = 60.0
ANSWER_SECONDS = 20.0
"""More than a command was told to wait."""
NOTICED_SECONDS, EVICTED_SECONDS = 15, 20
"""After which a silent node is not ready, and after which pods that do not say otherwise leave it. Else 50 and 300."""

Show = Callable[[str], None]


class Taken(AssertionError):
    """There is a real cluster on this machine already."""


class RealCluster(Hands):
    """In a folder; ``bound`` ends it with the thread that began it, however that ends."""

    def __init__(self, folder: Path, programs: Path, nodes: int, *, bound: bool = True) -> None:
        super().__init__(folder, programs)
        self._bound = bound
        self._processes = Programs(folder, bound)
        self._machines = [Machine(number) for number in range(nodes)]
        self._plane = ControlPlane(folder, programs, self._processes, place(folder))
        self._nodes = {
            machine.name: Node(machine, folder, programs, self._processes, self._plane.authority)
            for machine in self._machines
        }

    @property
    def api(self) -> Api:
        return self._plane.api

    @property
    def nodes(self) -> list[str]:
        return [*self._nodes]

    # -- life --------------------------------------------------------------------------------------------------

    def start(self, show: Show = print) -> Self:
        provide(show)
        wait_for_lease(self.folder, self._bound, show)
        try:
            self._start(show)
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self, show: Show) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        show("the control plane begins")
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "address", "add", f"{PLANE}/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        self._plane.start()
        self.kubeconfig = str(self._plane.kubeconfig)
        self._plane.authority.client("kube-proxy", "/CN=system:kube-proxy", self._plane.server)
        show(f"{len(self._nodes)} nodes boot")
        for node in self._nodes.values():
            node.begin(self._plane.server)
            node.power_on(self._machines)
        # The machine itself reaches services through the first node's proxy.
        run("ip", "route", "replace", SERVICES, "via", self._machines[0].address, "dev", BRIDGE)
        volumes = self.folder / "volumes"
        self._plane.start_volumes(
            "env", f"PYTHONPATH={PACKAGES}", sys.executable, "-m", "cluster.volumes", "--folder", volumes
        )
        for name, program in ((PAUSE, "pause"), (COREDNS, "coredns")):
            self.import_image(pack_program(self.folder / f"{program}.tar", name, self.bin / program))
        self.apply((HERE / "coredns.yaml").read_text())
        self.wait_ready()
        self.ask(
            "rollout", "status", "-n", "kube-system", "daemonset/coredns",
            f"--timeout={READY_SECONDS:.0f}s", seconds=READY_SECONDS + ANSWER_SECONDS,
        )  # fmt: skip

    def stop(self) -> None:
        """Nothing is left but the logs, whoever began it, and however far it came."""
        with lease():
            owner = current()
            if owner is not None and owner.folder == self.folder:
                sweep(self.folder, self._processes)
        self.kubeconfig = ""

    # -- nodes -------------------------------------------------------------------------------------------------

    def power_cut(self, node: str) -> None:
        """The plug is pulled: no process there does anything any more, and nobody is told."""
        self._nodes[node].power_cut()

    def power_on(self, node: str) -> None:
        """It boots, with what its disk has."""
        self._nodes[node].power_on(self._machines)

    def import_image(self, archive: Path) -> None:
        """Make an image, as `docker save` writes it, known to every node."""
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda node: node.import_image(archive), self._nodes.values()))

    def name_image(self, image: str, name: str) -> None:
        """Another name for an image that every node has."""
        for node in self._nodes.values():
            node.name_image(image, name)

    def kill(self, namespace: str, pod: str) -> None:
        """`kill -9` of a pod's one container: the pod stays, and runs it again."""
        found = self.json("get", "pod", pod, "-n", namespace)
        (status,) = found["status"]["containerStatuses"]
        self._nodes[found["spec"]["nodeName"]].kill(status["containerID"].rpartition("/")[2])

    def wait_ready(self, *names: str, seconds: float = READY_SECONDS) -> None:
        """Until these nodes, or all, are ready."""
        wanted = set(names or self._nodes)

        def holds() -> bool:
            found = self.api.items("/api/v1/nodes")
            return wanted <= {node["metadata"]["name"] for node in found if is_ready(node)}

        wait_until(
            f"{', '.join(sorted(wanted))} ready", holds, seconds, lambda: self._processes.check(*PARTS)
        )


def place(folder: Path) -> Place:
    keys = folder / "keys"
    return Place(
        PLANE,
        reconciler="lease",
        port=PORT,
        server=(
            f"--kubelet-client-certificate={keys}/kubelet-client.crt",
            f"--kubelet-client-key={keys}/kubelet-client.key",
            "--kubelet-preferred-address-types=InternalIP",
            f"--default-not-ready-toleration-seconds={EVICTED_SECONDS}",
            f"--default-unreachable-toleration-seconds={EVICTED_SECONDS}",
        ),
        controllers=(
            "--node-monitor-period=2s",
            f"--node-monitor-grace-period={NOTICED_SECONDS}s",
        ),
    )


@contextmanager
def lease() -> Iterator[None]:
    """Nobody else begins or ends a real cluster meanwhile."""
    with LEASE.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose cluster is up, or was left by a crash: what is written in the lease."""

    folder: Path
    stays: bool
    """Until somebody ends it; else as long as the process that began it."""
    pid: int
    began: str

    @property
    def lives(self) -> bool:
        """Or is just beginning."""
        return beginning(self.pid) == self.began or Programs(self.folder, bound=False).pid("etcd") is not None


def current() -> Owner | None:
    """A crash may have left half of what is to be said; then what is up stays until somebody ends it."""
    try:
        said = LEASE.read_text().splitlines()
    except FileNotFoundError:
        return None
    match said:
        case [folder, how, pid, began]:
            return Owner(Path(folder), how == STAYS, int(pid), began)
        case [folder, *_]:
            return Owner(Path(folder), stays=True, pid=0, began="0")
        case _:
            return None


def wait_for_lease(folder: Path, bound: bool, show: Show) -> None:
    """Until the tests of somebody else are done with theirs. What a person has brought up stays until it is ended."""
    deadline = time.monotonic() + TURN_SECONDS
    told = False
    while True:
        with lease():
            owner = current()
            if owner is None or not owner.lives:
                if owner is not None:
                    sweep(owner.folder)
                pid = os.getpid()
                LEASE.write_text(f"{folder}\n{BOUND if bound else STAYS}\n{pid}\n{beginning(pid)}\n")
                return
        if owner.stays or time.monotonic() >= deadline:
            raise Taken(f"a real cluster is up in {owner.folder}: `make cluster-down` ends it")
        if not told:
            show(f"the real cluster in {owner.folder} is another test's: this one begins when that has ended")
            told = True
        time.sleep(1.0)


def sweep(folder: Path, processes: Programs | None = None) -> None:
    """Take away all that a cluster made outside of its nodes' namespaces, which go with their first processes."""
    processes = processes or Programs(folder, bound=False)
    names = processes.names()
    machines = [name for name in names if name.startswith("node-")]
    processes.stop(*(name for name in machines if "." not in name), number=signal.SIGKILL)
    processes.stop(*machines, number=signal.SIGKILL)
    processes.stop(*processes.names())
    wait_until("the nodes' control groups are empty", remove_cgroups, GONE_SECONDS)
    for link in Path("/sys/class/net").glob("tidemill-n*"):
        run("ip", "link", "delete", link.name)
    if (Path("/sys/class/net") / BRIDGE).exists():
        run("ip", "link", "delete", BRIDGE)
    if folder.exists():
        for path in folder.iterdir():
            if path.is_dir() and path.name != "log":
                remove_folder(path)
            elif path.is_file():
                path.unlink()
    LEASE.unlink(missing_ok=True)
