"""What stands between a message and its handler.

A filter says whether the handler is wanted at all. A middleware surrounds the handler: an async context manager,
entered in the order of ``use`` and left in reverse. What it raises on the way in stands for what the handler
would have raised; ``Skip`` acknowledges without handling. The hooks before, after and error are one middleware.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tidemill.caught import PASSES, Caught
from tidemill.message import Message
from tidemill.why import why_of
from tidemill.worker.context import Context
from tidemill.worker.handler import Hook, called
from tidemill.worker.verdicts import RetryAfter, Skip

Middleware: TypeAlias = Callable[[Message, Context], AbstractAsyncContextManager[Any]]

log = logging.getLogger("tidemill.worker")


@dataclass(slots=True)
class Chain:
    """All that was registered on a worker, in its order."""

    filters: list[Hook] = field(default_factory=list[Hook])
    middlewares: list[Middleware] = field(default_factory=list[Middleware])
    before: list[Hook] = field(default_factory=list[Hook])
    after: list[Hook] = field(default_factory=list[Hook])
    errors: list[Hook] = field(default_factory=list[Hook])

    async def wanted(self, message: Message, context: Context) -> bool:
        """No filter says no."""
        for one in self.filters:
            if not await called(one, message, context):
                return False
        return True

    @asynccontextmanager
    async def around(self, message: Message, context: Context) -> AsyncGenerator[None]:
        """What surrounds the handler."""
        async with AsyncExitStack() as stack:
            for middleware in self.middlewares:
                await stack.enter_async_context(middleware(message, context))
            if self.before or self.after or self.errors:
                await stack.enter_async_context(self._hooks(message, context))
            yield

    @asynccontextmanager
    async def _hooks(self, message: Message, context: Context) -> AsyncGenerator[None]:
        try:
            for one in self.before:
                await called(one, message, context)
            yield
            for one in reversed(self.after):
                await called(one, message, context)
        except (Skip, RetryAfter, *PASSES):
            raise  # said on purpose, or nobody's: no error
        except BaseException as error:
            for one in self.errors:
                with Caught() as caught:
                    await called(one, message, context, error)
                _tell(caught.error, context)
            raise


def _tell(error: BaseException | None, context: Context) -> None:
    """A hook for failures that fails itself must not hide the failure."""
    if error is not None:
        log.error("error_hook_failed %s: %s", context.handler.name, why_of(error).line)
