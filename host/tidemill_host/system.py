"""What every process tells of itself at ``/v1/system``: what runs here, what time it is, and what it takes."""

from __future__ import annotations

import os
import resource
import time
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tidemill_host.log_door import PATH as LOG_LEVEL
from tidemill_host.log_door import log_paths
from tidemill_host.openapi import Part, reading, record, whole
from tidemill_host.rights import OWN_RIGHTS, rights_paths

SYSTEM = "/v1/system"
OF_EVERY_PROCESS = (SYSTEM, LOG_LEVEL, OWN_RIGHTS)
BEGAN_MS = time.time_ns() // 1_000_000
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def system() -> dict[str, Any]:
    """Now. The time is the wall clock's, which people set; services go by ``clock.py``."""
    return {
        "version": _version(),
        "clock_ms": time.time_ns() // 1_000_000,
        "began_ms": BEGAN_MS,
        "pid": os.getpid(),
        "files": {"open": len(os.listdir("/proc/self/fd")), "max": _files_max()},
        "memory_bytes": _memory_bytes(),
        "cpu_ms": time.process_time_ns() // 1_000_000,
    }


def system_paths() -> dict[str, Part]:
    """Of that, and of the log and one's own rights, which every process has, too: their part of the OpenAPI page."""
    example = {
        "version": "0.1.0", "clock_ms": 1_790_000_000_000, "began_ms": 1_780_000_000_000, "pid": 4711,
        "files": {"open": 60, "max": 1_048_576}, "memory_bytes": 80_000_000, "cpu_ms": 4_200,
    }  # fmt: skip
    fields = {
        "version": {"type": "string", "minLength": 1},
        "clock_ms": whole(0, description="the wall clock, in milliseconds since 1970"),
        "began_ms": whole(0, description="when the process was started"),
        "pid": whole(1),
        "files": record({"open": whole(0), "max": whole(0)}),
        "memory_bytes": whole(0, description="resident"),
        "cpu_ms": whole(0, description="processor time since it was started"),
    }
    told = reading("system", "What runs here, and what it takes", record(fields), example)
    return {SYSTEM: told, **log_paths(), **rights_paths()}


@cache
def _version() -> str:
    try:
        return version("tidemill")
    except PackageNotFoundError:
        return "source"


def _files_max() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 if soft == resource.RLIM_INFINITY else soft


def _memory_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * PAGE_BYTES
