"""``python -m tidemill.canary`` is `tidemill canary`, for who starts it as one of several services."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tidemill.cli import run


def main(arguments: Sequence[str]) -> int:
    """Run it; its exit code."""
    return run(["canary", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
