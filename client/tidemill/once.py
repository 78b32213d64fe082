"""At most once: everything was settled when it was given out, and nothing can be said of it any more."""

from __future__ import annotations

from tidemill.delivery import Delivery
from tidemill.settler import BrokerSettler
from tidemill.why import Why


class OnceSettler(BrokerSettler):
    """Says nothing."""

    def ack(self, subject: str, ranges: list[int]) -> None:
        """It was before."""

    async def ack_now(self, subject: str, ranges: list[int]) -> bool:
        """It was before."""
        return True

    async def nack(self, subject: str, ranges: list[int], why: Why, of: Delivery | None = None) -> bool:
        """It does not come again."""
        return True

    async def extend(self, subject: str, ranges: list[int], parked: Why | None = None) -> None:
        """It needs no lease."""

    def nack_soon(self, subject: str, ranges: list[int], why: Why) -> None:
        """It does not come again."""

    def release(self, subject: str, ranges: list[int]) -> None:
        """It does not come again."""

    def renew(self) -> None:
        """It needs no lease."""
