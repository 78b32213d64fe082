"""Containers of the image by runc alone, as strict as Kubernetes would run them: no root, nothing to write to but a
folder of data and /tmp, no capabilities. The network is this machine's.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

USER = 10001
PATH = "/opt/tidemill/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
END_SECONDS = 60.0


class Container:
    """One process and what it says. ``root`` is the image's file system, unpacked."""

    def __init__(
        self, folder: Path, root: Path, name: str, command: Sequence[str], settings: Mapping[str, str]
    ) -> None:
        self.name = f"tidemill-test-{os.getpid()}-{name}"
        self._bundle, self._runc = folder / name, ["runc", "--root", str(folder / "runc")]
        self._data = self._bundle / "data"
        self._data.mkdir(parents=True, mode=0o750)
        os.chown(self._data, USER, USER)
        (self._bundle / "config.json").write_text(json.dumps(self._config(root, command, settings)))
        self._process: subprocess.Popen[str] | None = None
        self.said = ""

    def _config(self, root: Path, command: Sequence[str], settings: Mapping[str, str]) -> dict[str, Any]:
        told = {"PATH": PATH, "HOME": "/tmp", "PYTHONUNBUFFERED": "1", "LANG": "C.UTF-8", **settings}
        kinds = ("bounding", "effective", "inheritable", "permitted", "ambient")
        return {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": USER, "gid": USER},
                "args": list(command),
                "env": [f"{key}={value}" for key, value in told.items()],
                "cwd": "/data",
                "noNewPrivileges": True,
                "capabilities": {kind: list[str]() for kind in kinds},
            },
            "root": {"path": str(root), "readonly": True},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {
                    "destination": "/dev",
                    "type": "tmpfs",
                    "source": "tmpfs",
                    "options": ["nosuid", "mode=755"],
                },
                {
                    "destination": "/tmp",
                    "type": "tmpfs",
                    "source": "tmpfs",
                    "options": ["nosuid", "size=64m"],
                },
                {
                    "destination": "/data",
                    "type": "bind",
                    "source": str(self._data),
                    "options": ["bind", "rw"],
                },
            ],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]},
        }

    def start(self) -> None:
        self._process = subprocess.Popen(
            [*self._runc, "run", "--bundle", str(self._bundle), self.name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self) -> tuple[int, str]:
        """To its end: exit code, and all that it said."""
        self.start()
        return self.end(), self.said

    def ready(self) -> str:
        """The line in which it says that it serves, for which this waits."""
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said += line
            if "ready " in line:
                return line.strip()
        raise AssertionError(f"it ended with {self.end()}: {self.said}")

    def end(self) -> int:
        """Its exit code, for which this waits."""
        assert self._process is not None
        self.said += self._process.communicate(timeout=END_SECONDS)[0]
        return self._process.returncode

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Another process in it, as an exec probe is."""
        words = [*self._runc, "exec", self.name, *command]
        return subprocess.run(words, capture_output=True, text=True, timeout=END_SECONDS, check=False)

    def terminate(self) -> None:
        subprocess.run([*self._runc, "kill", self.name, "TERM"], check=True)

    def close(self) -> None:
        if self._process is not None and self._process.returncode is None:
            subprocess.run([*self._runc, "kill", self.name, "KILL"], capture_output=True, check=False)
            self.end()
