"""Batches and commands that the tests of several kinds use: by name, and as hypothesis makes them."""
