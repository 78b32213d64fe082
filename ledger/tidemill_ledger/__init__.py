"""Two logs that belong together, message log and action log: written, scanned, and opened after a crash."""
