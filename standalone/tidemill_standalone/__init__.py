"""tidemill on one machine: a broker with meta beside it in one process, or a whole cluster as child processes."""
