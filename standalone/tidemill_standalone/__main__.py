"""``python -m tidemill_standalone``: what ``tidemill up`` runs. Wiring only."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tidemill_broker import __main__ as broker

REPLICATED = "TIDEMILL_REPLICATED"


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    if os.environ.get(REPLICATED, "").lower() == "true":
        return broker.main(argv)  # one of a group: its meta is somewhere else
    from tidemill_standalone.beside import MetaBeside

    return broker.main(argv, MetaBeside)


if __name__ == "__main__":
    sys.exit(main())
