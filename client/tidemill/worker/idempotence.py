"""Handled once, though delivered at least once.

    claim      event                      next
    none       ``claim``                  claimed   new: handle it
    claimed    ``finish``                 done      whoever claims it hears: done
    claimed    ``release``                none      the handler failed: the next attempt may begin
    claimed    its ttl is over            none      whoever claimed it has crashed
    done       its keeping time is over   none

What a handler does outside of the store cannot be undone by it: when a process dies after the handler's work and
before ``finish``, the work is done again after the ttl. A handler whose work is in the same database can finish in
the same transaction, see ``SqlStore.finish_in``; then it is done once.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from enum import Enum
from typing import NamedTuple, Protocol

from tidemill.caught import Caught
from tidemill.message import Message
from tidemill.why import why_of
from tidemill.worker.context import Context
from tidemill.worker.handler import Handler
from tidemill.worker.verdicts import RetryAfter, Skip

TTL_SECONDS = 300.0
KEEP_SECONDS = 7 * 24 * 3600.0
ID_CHARS_MAX = 200
RETRY_SECONDS_MIN = 0.1
MEMORY_ENTRIES_MAX = 100_000
FINISH_AGAIN_S = (0.05, 0.5, 2.0)
"""Waits before ``finish`` is tried again: the work was done, and a connection of a pool may just be an old one."""

log = logging.getLogger("tidemill.worker")


class State(Enum):
    """What a claim finds."""

    NEW = "new"
    IN_PROGRESS = "in progress"
    DONE = "done"


class Claim(NamedTuple):
    """The answer to ``claim``."""

    state: State
    seconds: float = 0.0
    """In progress: until that claim is over."""


class IdempotencyStore(Protocol):
    """Where it is kept what was handled. Each call is atomic; processes share one store."""

    async def claim(self, id: str, owner: str, ttl_seconds: float) -> Claim:  # noqa: A002 - as messages call it
        """Take it, unless somebody has it or it is done."""
        ...

    async def finish(self, id: str, owner: str, keep_seconds: float) -> None:  # noqa: A002
        """It is done, whoever has the claim by now: the work was."""
        ...

    async def release(self, id: str, owner: str) -> None:  # noqa: A002
        """It was not done. Without effect when the claim is not the owner's any more, or is done."""
        ...


class Idempotent:
    """The middleware: ``worker.use(Idempotent(SqlStore(engine)))``.

    ``key`` makes the id of what must happen once out of the message, such as its key; without one it is the
    message's own id, which is the same at every delivery. The group is part of it in any case.
    """

    def __init__(
        self,
        store: IdempotencyStore,
        *,
        ttl_seconds: float = TTL_SECONDS,
        keep_seconds: float = KEEP_SECONDS,
        key: Callable[[Message], str] | None = None,
    ) -> None:
        if ttl_seconds <= 0 or keep_seconds <= 0:
            raise ValueError("ttl_seconds and keep_seconds are positive")
        self._store = store
        self._ttl_seconds = ttl_seconds
        self._keep_seconds = keep_seconds
        self._key = key

    @asynccontextmanager
    async def __call__(self, message: Message, context: Context) -> AsyncGenerator[None]:
        claimed = claim_id(context.group, message.id if self._key is None else self._key(message))
        owner = uuid.uuid4().hex
        claim = await self._store.claim(claimed, owner, self._ttl_seconds)
        if claim.state is State.DONE:
            raise Skip("handled before")
        if claim.state is State.IN_PROGRESS:
            seconds = max(RETRY_SECONDS_MIN, claim.seconds)
            raise RetryAfter(
                seconds, f"another delivery of it is being handled, or crashed within {seconds:.1f} s"
            )
        context.values["claim"] = claimed
        try:
            yield
        except BaseException:
            # A thread that is left behind goes on: its claim stands until the ttl is over, so that nobody handles
            # the same message meanwhile.
            if not context.in_thread:
                with (
                    Caught() as caught
                ):  # else it would be told in place of the handler's failure, or verdict
                    await self._store.release(claimed, owner)
                if caught.error is not None:
                    log.warning("claim_not_released %s: %s", claimed, why_of(caught.error).line)
            raise
        await self._finish(claimed, owner)

    async def _finish(self, claimed: str, owner: str) -> None:
        """What fails in the end is as a crash before it: the claim stands until its ttl is over."""
        for wait_s in FINISH_AGAIN_S:
            with Caught() as caught:
                await self._store.finish(claimed, owner, self._keep_seconds)
                return
            log.warning("claim_not_finished %s: %s", claimed, why_of(caught.error or RuntimeError()).line)
            await asyncio.sleep(wait_s)
        await self._store.finish(claimed, owner, self._keep_seconds)

    def check(self, handler: Handler) -> None:
        """A claim that ends before its handler would let two of them run."""
        if handler.timeout_s is not None and handler.timeout_s >= self._ttl_seconds:
            raise ValueError(
                f"{handler.name} may take {handler.timeout_s:g} s and its claim ends after {self._ttl_seconds:g} s: "
                "make ttl_seconds longer than the timeout"
            )


def claim_id(group: str, key: object) -> str:
    """A long one by its hash: databases have limits."""
    if key is None:  # all without one would be one, and handled once together
        raise ValueError(
            "key= gave None for this message, as message.key is of one without: let it fall back to message.id"
        )
    text = f"{group}/{key}"
    return text if len(text) <= ID_CHARS_MAX else f"{group}/{hashlib.sha256(str(key).encode()).hexdigest()}"


class MemoryStore:
    """Within one process: for tests, and where a repetition after a restart does no harm.

    With ``MEMORY_ENTRIES_MAX`` entries the oldest is forgotten for each new one.
    """

    def __init__(
        self, now: Callable[[], float] = time.monotonic, entries_max: int = MEMORY_ENTRIES_MAX
    ) -> None:
        self._now = now
        self._entries_max = entries_max
        self._entries: dict[str, tuple[str | None, float]] = {}

    async def claim(self, id: str, owner: str, ttl_seconds: float) -> Claim:  # noqa: A002
        now = self._now()
        held, until = self._entries.get(id, (None, 0.0))
        if now < until:
            return Claim(State.DONE) if held is None else Claim(State.IN_PROGRESS, until - now)
        self._put(id, owner, now + ttl_seconds)
        return Claim(State.NEW)

    async def finish(self, id: str, owner: str, keep_seconds: float) -> None:  # noqa: A002
        self._put(id, None, self._now() + keep_seconds)

    async def release(self, id: str, owner: str) -> None:  # noqa: A002
        if self._entries.get(id, (None, 0.0))[0] == owner:
            del self._entries[id]

    def _put(self, id: str, owner: str | None, until: float) -> None:  # noqa: A002
        self._entries.pop(id, None)
        if len(self._entries) >= self._entries_max:
            del self._entries[next(iter(self._entries))]
        self._entries[id] = owner, until
