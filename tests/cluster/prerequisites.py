"""What real nodes need of the machine, beyond what is built: root, and programs that Debian has packages of."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path

from samples import debian

PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "openssl": "openssl",
}
"""Program, and the package that has it."""
NETWORK_PACKAGE = "containernetworking-plugins"
NETWORK_PLUGINS = ("/usr/lib/cni", "/opt/cni/bin")
NETWORK_NEEDS = ("bridge", "host-local", "loopback", "portmap")


class CannotHaveNodes(Exception):
    """One sentence: what is missing, and what to do."""


def network_plugins() -> Path | None:
    """The folder that has all of them."""
    folders = (Path(folder) for folder in NETWORK_PLUGINS)
    return next((it for it in folders if all((it / name).exists() for name in NETWORK_NEEDS)), None)


def missing() -> list[str]:
    """Packages, in the order of the alphabet."""
    found = {package for program, package in PACKAGES.items() if shutil.which(program) is None}
    return sorted(found | ({NETWORK_PACKAGE} if network_plugins() is None else set()))


def obstacle() -> str:
    """Why there can be no real nodes here whatever is installed; nothing when there can."""
    if os.geteuid() != 0:
        return "a real cluster has machines of its own, and only root may make them: run it as root"
    if not Path("/proc/sys/net").exists() or not Path("/proc/self/ns/net").exists():
        return "a real cluster needs Linux with network namespaces"
    if missing() and shutil.which("apt-get") is None:
        return f"a real cluster needs {', '.join(missing())}, and there is no apt-get: install them"
    if shutil.which("unshare") is not None:
        tried = subprocess.run(
            ["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False
        )
        if tried.returncode:
            return "a real cluster has machines of its own, and this root may not make them: give it more privileges"
    return ""


class Verdict(Enum):
    """What becomes of the tests with real nodes."""

    RUN = "they run"
    SKIP = "they are left out, and say why"
    FAIL = "they were to run, and cannot"


def verdict(environment: Mapping[str, str], why: str) -> Verdict:
    """With an obstacle they fail where they must run, in CI and when asked for; elsewhere they are skipped."""
    wish = environment.get("TIDEMILL_REAL_CLUSTER", "")
    if wish == "0":
        return Verdict.SKIP
    if not why:
        return Verdict.RUN
    return Verdict.FAIL if wish == "1" or environment.get("CI") == "true" else Verdict.SKIP


def provide(show: Callable[[str], None]) -> None:
    """Install what is missing, loudly."""
    if why := obstacle():
        raise CannotHaveNodes(why)
    packages = missing()
    if not packages:
        return
    show(f"installing {', '.join(packages)}, which real nodes need")
    said = debian.install(*packages)
    if not missing():
        return
    raise CannotHaveNodes(
        f"a real cluster needs {', '.join(packages)}, and apt-get could not install them: {said}"
    )
