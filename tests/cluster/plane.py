"""A control plane: etcd, API server, controllers, scheduler; each a real one, with the flags that it needs.

It survives nothing, on purpose: etcd syncs nothing to the disk, and leaders are not elected.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.api import Api, Refused
from cluster.certificates import OF_A_SERVER, Authority
from cluster.programs import Ended, Programs, wait_until

LOOPBACK = "127.0.0.1"
SERVICES = "10.219.0.0/16"
SERVICE = "10.219.0.1"
PODS = "10.218.0.0/16"
"""Not what Kubernetes' own tools take by default: there may be a cluster of a person on this machine."""
NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
         "kubernetes.default.svc.cluster.local")  # fmt: skip
PROVISIONER = "tests.tidemill.dev/folders"
STORAGE_CLASS: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": PROVISIONER,
    "reclaimPolicy": "Delete",
    "volumeBindingMode": "WaitForFirstConsumer",
    "allowVolumeExpansion": True,
}
START_SECONDS = 120.0
"""Ten times what an idle machine needs."""
TAKEN = "address already in use"

PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "volumes")


class PortTaken(Ended):
    """Somebody took a port between our choosing it and our taking it: choose again."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the control plane is, and what its programs are told besides what all are told."""

    address: str
    reconciler: str
    """Of the endpoints of the service ``kubernetes``: ``none`` where no pod could reach them."""
    server: Sequence[str] = ()
    controllers: Sequence[str] = ()
    port: int = 0
    """0: any free one."""


class ControlPlane:
    """In a folder, of programs that were built. ``authority`` and ``api`` serve once it is started."""

    def __init__(self, folder: Path, programs: Path, processes: Programs, place: Place) -> None:
        self._folder, self._programs, self._processes, self._place = folder, programs, processes, place
        self.authority = Authority(folder / "keys")
        self.server = ""

    @property
    def api(self) -> Api:
        return Api(self.server, self.authority.folder)

    @property
    def kubeconfig(self) -> Path:
        return self.authority.folder / "admin.kubeconfig"

    def start(self) -> None:
        """Until it answers, and has what it makes of itself in a new cluster."""
        at_etcd, of_etcd, free = free_ports(3)
        port = self._place.port or free
        self.server = f"https://{self._place.address}:{port}"
        self._make_keys()
        self._start_etcd(at_etcd, of_etcd)
        self._start_server(at_etcd, port)
        self._wait("the API server is ready", self.api.is_ready, "etcd", "kube-apiserver")
        self._start_controllers()
        self.api.send("POST", "/apis/storage.k8s.io/v1/storageclasses", STORAGE_CLASS)
        self._wait("there is a default service account", self._has_account, *PARTS[:4])

    def stop(self) -> None:
        self._processes.stop(*PARTS)

    def start_volumes(self, *options: str | Path) -> None:
        """What makes volumes for claims; ``sys.executable`` may be anything, so it is asked for by the caller."""
        self._processes.start("volumes", [*options, "--server", self.server, "--keys", self.authority.folder])

    def _has_account(self) -> bool:
        try:
            self.api.get("/api/v1/namespaces/default/serviceaccounts/default")
        except Refused:
            return False
        return True

    def _wait(self, what: str, holds: Any, *names: str) -> None:
        try:
            wait_until(what, holds, START_SECONDS, lambda: self._processes.check(*names))
        except Ended as error:
            if any(TAKEN in self._processes.said(name) for name in names):
                raise PortTaken(str(error)) from error
            raise

    def _make_keys(self) -> None:
        authority = self.authority
        authority.begin()
        hosts = dict.fromkeys((self._place.address, LOOPBACK, SERVICE, *NAMES))
        authority.sign("apiserver", "/CN=kube-apiserver", OF_A_SERVER, hosts)
        authority.sign("front-proxy-client", "/CN=front-proxy-client")
        authority.sign("kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client")
        authority.client("admin", "/O=system:masters/CN=admin", self.server)
        authority.client("controllers", "/CN=system:kube-controller-manager", self.server)
        authority.client("scheduler", "/CN=system:kube-scheduler", self.server)

    def _start_etcd(self, port: int, peers: int) -> None:
        folder = self._folder / "etcd"
        folder.mkdir(mode=0o700, exist_ok=True)
        ours, theirs = f"http://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{peers}"
        self._processes.start("etcd", [
            self._programs / "etcd", "--name", "tests", "--data-dir", folder, "--log-level", "warn",
            "--unsafe-no-fsync", "--listen-client-urls", ours, "--advertise-client-urls", ours,
            "--listen-peer-urls", theirs, "--initial-advertise-peer-urls", theirs,
            "--initial-cluster", f"tests={theirs}",
        ])  # fmt: skip

    def _start_server(self, at_etcd: int, port: int) -> None:
        keys, place = self.authority.folder, self._place
        self._processes.start("kube-apiserver", [
            self._programs / "kube-apiserver", f"--etcd-servers=http://{LOOPBACK}:{at_etcd}",
            f"--bind-address={place.address}", f"--secure-port={port}", f"--advertise-address={place.address}",
            f"--endpoint-reconciler-type={place.reconciler}", f"--service-cluster-ip-range={SERVICES}",
            f"--tls-cert-file={keys}/apiserver.crt", f"--tls-private-key-file={keys}/apiserver.key",
            f"--client-ca-file={keys}/ca.crt", "--anonymous-auth=false", "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={keys}/sa.pub", f"--service-account-signing-key-file={keys}/sa.key",
            f"--requestheader-client-ca-file={keys}/ca.crt", "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User",
            f"--proxy-client-cert-file={keys}/front-proxy-client.crt",
            f"--proxy-client-key-file={keys}/front-proxy-client.key", *place.server,
        ])  # fmt: skip

    def _start_controllers(self) -> None:
        """Their own ports are closed: nobody asks there."""
        keys = self.authority.folder
        for name, client, more in (
            ("kube-controller-manager", "controllers", (
                "--use-service-account-credentials=true", f"--root-ca-file={keys}/ca.crt",
                f"--service-account-private-key-file={keys}/sa.key", f"--cluster-signing-cert-file={keys}/ca.crt",
                f"--cluster-signing-key-file={keys}/ca.key", *self._place.controllers,
            )),
            ("kube-scheduler", "scheduler", ()),
        ):  # fmt: skip
            config = f"{keys}/{client}.kubeconfig"
            self._processes.start(name, [
                self._programs / name, f"--kubeconfig={config}", f"--authentication-kubeconfig={config}",
                f"--authorization-kubeconfig={config}", f"--bind-address={LOOPBACK}", "--secure-port=0",
                "--leader-elect=false", *more,
            ])  # fmt: skip


def free_ports(count: int) -> list[int]:
    """Chosen by the kernel, all of them different: each is held until the last one is known."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [one.getsockname()[1] for one in sockets]
