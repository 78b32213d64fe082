"""``python -m tidemill_standalone.child PARENT PACKAGE ...``: a service that does not outlive the process PARENT.

The kernel sends SIGTERM when the parent ends, however it ends; so a cluster whose keeper was killed drains, and no
process is left behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from importlib import import_module

PR_SET_PDEATHSIG = 1


def main() -> int:
    """Run the service; its exit code."""
    parent, package, *arguments = sys.argv[1:]
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(parent):
        return 0  # it ended before the kernel was told
    return int(import_module(f"{package}.__main__").main(arguments))


if __name__ == "__main__":
    sys.exit(main())
