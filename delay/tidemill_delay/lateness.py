"""How late messages are: how long after their time a broker had them, as its answer says."""

from __future__ import annotations

from tidemill_wire.metrics.powers import Powers


class Lateness:
    """Counts each delivery, but for what was past when it came: that is late without anybody's mistake."""

    def __init__(self) -> None:
        self.last_ms = 0
        """Of the last answer; 0 of what was past when it came."""
        self.error = Powers(1e-3, 21)  # a millisecond to a quarter of an hour

    def note(self, due_ms: int, now_ms: int, messages: int) -> None:
        """A broker has them; ``due_ms`` is 0 of what was past when it came."""
        self.last_ms = max(0, now_ms - due_ms) if due_ms else 0
        if due_ms:
            self.error.add(self.last_ms / 1000, messages)
