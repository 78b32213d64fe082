"""What spark-submit is given, and what ``tidemill archive`` does: the same work under two command lines."""
