"""Consumers in order over two brokers and one to three replicas of meta, which crash, stand still and are moved about.

The real machines of broker and meta on virtual time, and the client's paper: tenure and strands. What it does not
model: sockets and the client's shell; an answer is there at once, or lost.
"""
