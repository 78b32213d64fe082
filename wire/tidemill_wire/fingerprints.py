"""What failures of one mistake have in common, whoever counts them."""

from __future__ import annotations

import re

from tidemill_wire.columns import hash_text

_CHANGING = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d+", re.IGNORECASE)
"""What differs from one failure to the next and makes no other mistake of it."""


def fingerprint_of(reason: str, error: str, place: str) -> str:
    """Eight hex digits that are the same for the same mistake: of the exception's type and place; of the reason when
    there is none. Numbers do not count: an edit above a fault moves its line, and the next order has another id.
    """
    text = f"{error}@{_CHANGING.sub('#', place)}" if error or place else _CHANGING.sub("#", reason)
    return f"{hash_text(text.encode(errors='replace')) & 0xFFFF_FFFF:08x}"
