"""What the log has said already: a warning that comes again in each try tells nothing new, and hides what does.

A cause is told once for what it is about, and again when it is another one, or an hour later, so that who looks at the
log of today finds it. What went well is forgotten: the next failure is news.

Pure.
"""

from __future__ import annotations

from collections import OrderedDict

AGAIN_S = 3_600.0
KEPT_MAX = 20_000
"""More are forgotten, the oldest first, and may be told once more."""


class Told:
    """See the module."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def is_news(self, about: str, cause: str, now_s: float) -> bool:
        """Whether it is to be told now; it counts as told then."""
        known, told_s = self._told.get(about, ("", 0.0))
        if about in self._told and known == cause and now_s - told_s < AGAIN_S:
            return False
        self._told[about] = cause, now_s
        self._told.move_to_end(about)
        if len(self._told) > KEPT_MAX:
            self._told.popitem(last=False)
        return True

    def well(self, about: str) -> None:
        """It went well."""
        self._told.pop(about, None)
