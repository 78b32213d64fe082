"""What belongs to the handling of one message, beside the message."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tidemill.client import Client
from tidemill.worker.handler import Handler

if TYPE_CHECKING:
    from tidemill.message import Message

T = TypeVar("T")


@dataclass(slots=True)
class Context:
    """The second parameter of a handler, and what middlewares are given."""

    client: Client
    """To send what follows from the message."""

    handler: Handler
    """Whose message it is."""

    message: Message
    """The message, also in a thread; settling it is the worker's task."""

    loop: asyncio.AbstractEventLoop
    """The loop of the worker."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    """What a middleware has for the handler, such as a database session."""

    in_thread: bool = field(default=False, repr=False)
    """A thread handles it now; it goes on though nobody waits for it any more."""

    stuck: asyncio.Future[Any] | None = field(default=None, repr=False)
    """The handler's thread, when it did not come back in time."""

    @property
    def group(self) -> str:
        """The consumer group that the message is handled for."""
        return self.handler.subscription.group

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """For handlers in threads: what a coroutine returns in the worker's loop, such as ``client.send(...)``."""
        if _runs_here(self.loop):  # it would wait for itself, and all handlers with it
            coroutine.close()
            raise RuntimeError(
                "wait_for is for handlers in threads: await it in an async handler, and make a plain hook async"
            )
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
