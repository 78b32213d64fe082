"""What spark-submit is given, and what ``tidemill archive`` does: the same work, with a command line of its own each."""
