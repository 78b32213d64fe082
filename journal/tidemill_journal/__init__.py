"""How any log is kept: places in segments, records and their sums, checkpoints, runs. Bytes and values, no I/O."""
