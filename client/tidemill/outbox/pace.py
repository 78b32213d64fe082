"""How patient an outbox is, and how much it does at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

SEND_TIMEOUT_S = 10.0
"""Of the client that an outbox makes for itself."""

MIB = 1 << 20


def _nobody_listens(_step: str) -> None:
    """What happens is told to nobody."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Everything about an outbox but its database and its queue."""

    batch_rows: int = 500
    """So many rows are read, sent and deleted together."""

    batch_bytes: int = 8 * MIB
    """Rows of more than that together are read in several turns, at least one in each."""

    linger_s: float = 0.003
    """How long a commit has for getting through, and for company, before it is looked up."""

    looks_max: int = 6
    """How often it is looked for a row that is not there yet; each wait is four times the one before. Then it is left
    to the watchdog: the transaction is slow, or was rolled back.
    """

    pending_max: int = 10_000
    """Rows that this process means to send itself. What comes beyond is left to the watchdog."""

    grace_s: float = 0.0
    """How old a row must be before the watchdog takes it. 0: twice the client's send timeout."""

    poll_s: float = 1.0
    """How often the watchdog looks."""

    lease_s: float = 0.0
    """How long a leader leads without renewing. 0: five seconds more than the client's send timeout."""

    retry_s: float = 1.0
    """How long a row waits that no broker took; it doubles with each attempt."""

    retry_max_s: float = 60.0
    """No row waits longer than this."""

    sender: bool = True
    """Whether this process sends what it has committed. Without it, rows are due for the watchdog at once."""

    watchdog: bool = True
    """Whether this process may be the leader, and send what others left."""

    close_s: float = 10.0
    """How long ``close`` waits for what was committed before it."""

    reached: Callable[[str], None] = _nobody_listens
    """Told of each step. Tests kill there."""

    def __post_init__(self) -> None:
        checks = (
            (self.batch_rows > 0 and self.batch_bytes > 0, "a batch has at least one row and byte"),
            (self.pending_max > 0 and self.looks_max > 0, "pending_max and looks_max are at least 1"),
            (self.linger_s > 0 and self.poll_s > 0, "linger_s and poll_s are positive"),
            (0 < self.retry_s <= self.retry_max_s, "retry_s is positive and at most retry_max_s"),
            (self.grace_s >= 0 and self.lease_s >= 0 and self.close_s >= 0, "times are not negative"),
        )
        for holds, sentence in checks:
            if not holds:
                raise ValueError(f"the pace of an outbox is out of its range: {sentence}")

    def delay_ms(self, attempts: int) -> int:
        """How long a row waits that was tried so often."""
        return round(1000 * min(self.retry_max_s, self.retry_s * 2.0 ** min(attempts, 30)))

    def look_s(self, looks: int) -> float:
        """How long to wait before it is looked again, after so many times."""
        return self.linger_s * 4.0 ** min(looks, 10)

    def grace_for(self, send_timeout_s: float) -> float:
        """The grace beside a client that tries so long. What one process still sends no other may take; what none sends
        anybody may.
        """
        if not self.sender:
            return 0.0
        if not self.grace_s:
            return 2 * send_timeout_s
        if self.grace_s <= send_timeout_s:
            raise ValueError(
                f"grace_s is {self.grace_s:g} and a send may take {send_timeout_s:g} s: make grace_s longer, "
                "or give the outbox a client with a shorter send_timeout_s"
            )
        return self.grace_s

    def lease_for(self, send_timeout_s: float) -> float:
        """The lease beside such a client: one batch fits into it."""
        if not self.lease_s:
            return send_timeout_s + 5.0
        if self.lease_s <= send_timeout_s:
            raise ValueError(
                f"lease_s is {self.lease_s:g} and a send may take {send_timeout_s:g} s: make lease_s longer, "
                "or give the outbox a client with a shorter send_timeout_s"
            )
        return self.lease_s
