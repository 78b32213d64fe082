"""A node that runs pods: a machine made of namespaces, with containerd, kubelet and kube-proxy in it.

What is on its disk (images, the pods' volumes, what kubelet noted) lies in a folder and outlives a power cut; its
network, its mounts, its ``/run`` and all that runs are gone then.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.certificates import Authority
from cluster.plane import PODS
from cluster.prerequisites import network_plugins
from cluster.programs import Programs, wait_until

HERE = Path(__file__).parent
BRIDGE = "tidemill-k8s"
NETWORK = "10.217.0"
PLANE = f"{NETWORK}.1"
SOCKET = "/run/containerd.sock"
CGROUPS = Path("/sys/fs/cgroup")
CGROUP = "tidemill-tests"
CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")
BOOT_SECONDS = 120.0
PARTS = ("containerd", "kubelet", "kube-proxy")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a node is."""

    number: int

    @property
    def name(self) -> str:
        return f"node-{self.number}"

    @property
    def address(self) -> str:
        return f"{NETWORK}.{10 + self.number}"

    @property
    def pods(self) -> str:
        return f"10.218.{self.number}.0/24"

    @property
    def link(self) -> str:
        """Its end of the wire, at the bridge."""
        return f"tidemill-n{self.number}"


class Node:
    """Started, cut off, and started again."""

    def __init__(
        self, machine: Machine, folder: Path, programs: Path, processes: Programs, keys: Authority
    ) -> None:
        self.machine = machine
        self._folder = folder / "nodes" / machine.name
        self._programs, self._processes, self._keys = programs, processes, keys

    @property
    def is_on(self) -> bool:
        return self._processes.pid(self.machine.name) is not None

    def begin(self, server: str) -> None:
        """What is done once: who it is, and what its programs are told."""
        for part in ("containerd", "kubelet", "logs", "network"):
            (self._folder / part).mkdir(parents=True)
        name = self.machine.name
        self._keys.client(name, f"/O=system:nodes/CN=system:node:{name}", server)
        for file, text in settings(self.machine, self._folder, self._keys.folder):
            (self._folder / file).write_text(text)

    def power_on(self, others: list[Machine]) -> None:
        """Boot it: until containerd answers, which is before the node is ready."""
        name = self.machine.name
        assert not self.is_on, f"{name} is on"
        if (Path("/sys/class/net") / self.machine.link).exists():
            run(
                "ip", "link", "delete", self.machine.link
            )  # of the boot before, whose namespace is still on its way out
        make_cgroups(name)
        self._processes.start(name, [
            "unshare", "--net", "--mount", "--pid", "--fork", "--uts", "--ipc", "--kill-child=SIGKILL",
            "--mount-proc", HERE / "node.sh", name,
        ])  # fmt: skip
        wait_until(f"{name} has booted", self._has_booted, BOOT_SECONDS, lambda: self._processes.check(name))
        self._connect(others)
        inside = self.inside()
        self._start("containerd", *inside, "containerd", "--config", self._folder / "containerd.toml")
        wait_until("containerd answers", lambda: self._control("version") == 0, BOOT_SECONDS, self._check)
        self._start(
            "kubelet", *inside, self._programs / "kubelet", f"--config={self._folder}/kubelet.json",
            f"--kubeconfig={self._keys.folder}/{name}.kubeconfig", f"--hostname-override={name}",
            f"--node-ip={self.machine.address}", f"--root-dir={self._folder}/kubelet",
            f"--node-labels=topology.kubernetes.io/zone=zone-{self.machine.number}",
        )  # fmt: skip
        proxy = self._programs / "kube-proxy"
        self._start("kube-proxy", *inside, proxy, f"--config={self._folder}/kube-proxy.json")

    def power_cut(self) -> None:
        """Everything that runs there is gone at once, and seen to be gone, so that it can boot again."""
        name = self.machine.name
        self._processes.stop(name, number=signal.SIGKILL)
        self._processes.stop(*(f"{name}.{part}" for part in PARTS), number=signal.SIGKILL)

    def import_image(self, archive: Path) -> None:
        done = subprocess.run(
            [*self._client(), "images", "import", str(archive)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{self.machine.name} cannot import {archive}: {done.stderr.strip()}"

    def name_image(self, image: str, name: str) -> None:
        """Another name for an image that is there."""
        assert self._control("images", "tag", "--force", image, name) == 0, (
            f"{self.machine.name} has no {image}"
        )

    def kill(self, container: str) -> None:
        """The first process of a container, as ``kill -9`` does; the kubelet starts it again."""
        self._control("tasks", "kill", "--signal", "SIGKILL", container)  # it may be on its way already

    def inside(self) -> tuple[str, ...]:
        """The beginning of a command that runs on the node."""
        pid = self._first_process()
        assert pid is not None, f"{self.machine.name} is off"
        return "nsenter", "-t", str(pid), "--net", "--mount", "--pid", "--uts", "--ipc", "--"

    def _start(self, part: str, *command: str | Path) -> None:
        self._processes.start(f"{self.machine.name}.{part}", command)

    def _check(self) -> None:
        self._processes.check(f"{self.machine.name}.containerd")

    def _client(self) -> tuple[str, ...]:
        return *self.inside(), "ctr", "--address", SOCKET, "--namespace", "k8s.io"

    def _control(self, *words: str) -> int:
        return subprocess.run([*self._client(), *words], capture_output=True, check=False).returncode

    def _first_process(self) -> int | None:
        """That of its namespaces: the only child of what made them."""
        outer = self._processes.pid(self.machine.name)
        try:
            found = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        except FileNotFoundError:
            return None
        return int(found[0]) if found else None

    def _has_booted(self) -> bool:
        pid = self._first_process()
        return pid is not None and Path(f"/proc/{pid}/root/run/node-is-up").exists()

    def _connect(self, others: list[Machine]) -> None:
        """To the bridge. What is for pods of another node goes there; there is no way out of the cluster."""
        machine, pid = self.machine, self._first_process()
        run("ip", "link", "add", machine.link, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        run("ip", "link", "set", machine.link, "master", BRIDGE, "up")
        run("ip", "route", "replace", machine.pods, "via", machine.address, "dev", BRIDGE)
        there = ("nsenter", "-t", str(pid), "--net", "ip")
        run(*there, "address", "add", f"{machine.address}/24", "dev", "eth0")
        run(*there, "link", "set", "eth0", "up")
        run(*there, "route", "add", "default", "via", PLANE)
        for other in others:
            if other != machine:
                run(*there, "route", "add", other.pods, "via", other.address)


def settings(machine: Machine, folder: Path, keys: Path) -> Iterator[tuple[str, str]]:
    """Files by name. JSON is YAML, and the kubelet and the proxy read that."""
    yield (
        "containerd.toml",
        f"""\
version = 2
root = "{folder}/containerd"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true # nobody here may lower it
  disable_apparmor = true
  disable_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{network_plugins()}"
    conf_dir = "{folder}/network"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{"native" if is_overlay(folder) else "overlayfs"}"
    default_runtime_name = "runc"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = false
""",
    )
    addresses = {
        "type": "host-local", "ranges": [[{"subnet": machine.pods}]], "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/pod-addresses",
    }  # fmt: skip
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    plugins = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}
    yield "network/10-pods.conflist", json.dumps(plugins)
    yield "resolv.conf", f"nameserver {PLANE}\n"
    yield "kubelet.json", json.dumps(of_kubelet(machine, folder, keys))
    yield "kube-proxy.json", json.dumps(of_proxy(machine, keys))


def of_kubelet(machine: Machine, folder: Path, keys: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,  # machines with version 1 are still about, and this one may be such
        "podLogsDir": f"{folder}/logs",  # not the machine's, where each node would clear away what others write
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP}/{machine.name}",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True},
                           "x509": {"clientCAFile": f"{keys}/ca.crt"}},
        "authorization": {"mode": "Webhook"},
        "clusterDNS": ["10.219.0.10"],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{folder}/resolv.conf",
        "failSwapOn": False,
        "oomScoreAdj": 0,  # lower than its own takes a right that root of a container has not
        "makeIPTablesUtilChains": False,
        "evictionHard": {"memory.available": "200Mi", "nodefs.available": "2%", "imagefs.available": "2%",
                         "nodefs.inodesFree": "1%"},
        "imageGCHighThresholdPercent": 100,  # what was imported cannot be pulled again
        "imageGCLowThresholdPercent": 99,
        "nodeStatusUpdateFrequency": "3s",
        "maxPods": 60,
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},  # tests kill more often than programs crash
    }  # fmt: skip


def of_proxy(machine: Machine, keys: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": f"{keys}/kube-proxy.kubeconfig"},
        "mode": "iptables",
        "clusterCIDR": PODS,
        "hostnameOverride": machine.name,
        "oomScoreAdj": 0,
        "iptables": {"syncPeriod": "10s", "minSyncPeriod": "100ms"},
        # The machine's own limits stay as they are.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }  # fmt: skip


def is_overlay(folder: Path) -> bool:
    """In a container everything may lie on an overlay, which bears no other: layers are copied then."""
    done = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "overlayfs"


def run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.strip()}"


def hierarchies() -> list[Path]:
    """Of control groups: the one of version 2, or those of version 1, with the one that is there for names only."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]


def make_cgroups(name: str) -> None:
    """Where the kubelet of this node keeps its pods. A new cpuset has no processors and takes no process."""
    for hierarchy in hierarchies():
        for folder in (hierarchy / CGROUP, hierarchy / CGROUP / name):
            folder.mkdir(exist_ok=True)
            for file in ("cpuset.cpus", "cpuset.mems"):
                if hierarchy.name.startswith("cpuset") and (folder / file).exists():
                    (folder / file).write_text((folder.parent / file).read_text())
            if hierarchy == CGROUPS:
                allowed = (folder.parent / "cgroup.controllers").read_text().split()
                wanted = " ".join(f"+{name}" for name in CONTROLLERS if name in allowed)
                (folder.parent / "cgroup.subtree_control").write_text(wanted)


def remove_cgroups() -> bool:
    """Whether all are gone. One that a process is just leaving cannot be removed yet."""
    for hierarchy in hierarchies():
        for folder, _, _ in os.walk(hierarchy / CGROUP, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                pass  # the next time
    return not any((hierarchy / CGROUP).exists() for hierarchy in hierarchies())


def remove_folder(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
