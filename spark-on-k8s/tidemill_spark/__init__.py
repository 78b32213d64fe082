"""Archive, search and replay: what tidemill is to Spark."""
