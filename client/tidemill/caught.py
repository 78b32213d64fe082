"""The border to the user's code. What a handler raises is an answer, and is told to the broker; it is never lost."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

PASSES = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)
"""Said from outside to whoever runs, and nobody's failure."""


class Caught:
    """``with Caught() as caught: ...``: what was raised is ``caught.error``.

    A cancellation and an interrupt are nobody's failure and go on, unless ``everything`` is asked for: in a thread or
    process of its own, nobody is above the handler to see them. ``SystemExit`` is a failure: a handler in which a
    library wants to end the process would else end one worker after the other, with the same message.
    """

    def __init__(self, *, everything: bool = False) -> None:
        self.error: BaseException | None = None
        self._everything = everything

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.error = error
        return self._everything or not isinstance(error, PASSES)
