"""What is said: batches, frames, commands, errors, limits and declarations. Bytes and values only, no I/O."""
