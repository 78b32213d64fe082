"""Numbers to watch. The host's metrics page is made of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """What the broker has done since it started."""

    batches: int = 0
    messages_in: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    messages_acked: int = 0
    messages_nacked: int = 0
    leases_ended: int = 0
    messages_voided: int = 0
    messages_skipped: int = 0
    batches_skipped: int = 0
    batches_sifted: int = 0
    bytes_sifted: int = 0
    messages_buried: int = 0
    dead_dropped: int = 0
    groups_paused: int = 0
    messages_taken_back: int = 0
    unread: int = 0
    halves_kept: int = 0
    transactions_committed: int = 0
    transactions_rolled_back: int = 0
    transactions_silent: int = 0
    transactions_checked: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
