"""Runs machines: sockets, disk, clock, signals, health. It has no idea what a message is for."""
