"""What spark-submit runs for an Archive."""

import sys

from tidemill_spark.jobs.archive import main

sys.exit(main(sys.argv[1:]))
