"""Live messages: stored, given out under leases, acknowledged. A machine without I/O; ``doors`` runs it."""
