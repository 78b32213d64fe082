"""``tidemill archive …``: what people do with a lake. The client's command line becomes this process."""

from __future__ import annotations

import sys

from tidemill_spark.jobs.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
