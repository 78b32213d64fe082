"""The ambient of one seed: how links, disks and the schedule misbehave all the time.

A frozen value, drawn from the seed before the run, printed with it, and calmed field by field when a failing seed is
shrunk. What happens at a certain moment is a fault, not weather: see ``faults``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Weather:
    """The defaults are calm."""

    order: str = "node"
    """FIFO inside a life; ``tasks`` also shuffles task steps, ``shuffle`` everything (see ``loop``)."""
    latency_min_s: float = 0.0003
    latency_max_s: float = 0.0003
    """Base latency of a link is uniform between the two."""
    far_links: float = 0.0
    """Share of links whose base latency is 20..200 ms."""
    chunked_reads: float = 0.0
    """Chance that a read from a connection is cut short."""
    segment_loss: float = 0.0
    """Chance that a segment is one retransmission timeout late."""
    retransmit_max_s: float = 120.0
    give_up_s: float = 900.0
    short_io: float = 0.0
    """Chance that a disk write or read is short."""
    cold_reads: float = 0.0
    """Chance that a read is not in the page cache."""
    torn_pages: float = 0.3
    """Chance that a page kept at a power cut is torn."""
    ordered_names: bool = True
    """Names survive a power cut as a prefix (a journal); else as any subset (POSIX)."""


CALM = Weather()


def draw_weather(seed: str) -> Weather:
    """Each kind of trouble is on in half of the seeds."""
    rng = random.Random(f"{seed}/weather")
    order = rng.choices(("node", "tasks", "shuffle"), (60, 38, 2))[0]
    latency_min_s = rng.uniform(0.0001, 0.002)
    return Weather(
        order=order,
        latency_min_s=latency_min_s,
        latency_max_s=latency_min_s * rng.uniform(1.0, 5.0),
        far_links=rng.choice((0.0, 0.0, 0.0, 0.1)),
        chunked_reads=rng.choice((0.0, rng.uniform(0.02, 0.5))),
        segment_loss=rng.choice((0.0, rng.uniform(0.0, 0.05))),
        retransmit_max_s=rng.choice((2.0, 120.0)),
        short_io=rng.choice((0.0, rng.uniform(0.01, 0.3))),
        cold_reads=rng.choice((0.0, rng.uniform(0.05, 1.0))),
        torn_pages=rng.choice((0.0, 0.3, 1.0)),
        ordered_names=rng.random() < 0.5,
    )
