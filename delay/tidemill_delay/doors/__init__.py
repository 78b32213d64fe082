"""Where the world comes in: a delay service on a disk, on the loop, behind a port."""
