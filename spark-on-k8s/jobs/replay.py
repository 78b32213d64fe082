"""What spark-submit runs for a Replay."""

import sys

from tidemill_spark.jobs.replay import main

sys.exit(main(sys.argv[1:]))
