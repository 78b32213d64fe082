"""The file of a run: the machine it ran on and its rows. Parts that are run again replace their rows in it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

from measure import Row

ROOT = Path(__file__).resolve().parent.parent
KEY = ("workload", "peer", "variant", "size", "durability")


def commit() -> str:
    """The commit that is measured, with a mark when files differ from it."""
    command = [
        "git",
        "--no-optional-locks",
        "-C",
        str(ROOT),
        "describe",
        "--always",
        "--dirty",
        "--exclude",
        "*",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return done.stdout.strip() or "uncommitted"


def default_file(suffix: str = "") -> Path:
    return ROOT / "bench" / "results" / f"{time.strftime('%Y-%m-%d')}-{commit()}{suffix}.json"


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    java = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    return {
        "processor": next(names, platform.machine()),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": (java.stderr.splitlines() or ["none"])[0],
    }


class Results:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.machine = machine()
        self.cores = os.cpu_count() or 1
        self.rows: list[Row] = []
        self.peers: dict[str, str] = {}
        self.runs: list[dict[str, Any]] = []
        if file.exists():
            kept = json.loads(file.read_text())
            self.machine = kept["machine"]
            self.cores = int(self.machine["cores"])
            self.rows, self.peers, self.runs = kept["rows"], kept["peers"], kept["runs"]

    def began(self, arguments: list[str]) -> None:
        self.runs.append(
            {
                "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "commit": commit(),
                "arguments": arguments,
                "load": os.getloadavg(),
            }
        )

    def add(self, row: Row) -> None:
        """A failed try does not replace one that worked."""
        same = [old for old in self.rows if all(old.get(name) == row.get(name) for name in KEY)]
        if "error" in row and any("error" not in old for old in same):
            return
        self.rows = [old for old in self.rows if old not in same]
        self.rows.append({**row, "run": len(self.runs)})
        self.save()

    def save(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        content = {"machine": self.machine, "peers": self.peers, "runs": self.runs, "rows": self.rows}
        draft = self.file.with_suffix(".part")
        draft.write_text(json.dumps(content, indent=1) + "\n")
        draft.replace(self.file)
