"""A number and what it counts, as a sentence has them."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "") -> str:
    """``1 message``, ``2 messages``, ``3,000 batches``; ``many`` where an s at the end of ``one`` does not do."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
