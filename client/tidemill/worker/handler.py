"""What ``@worker.on`` was told, proven: a function, and how it wants to be called."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal, TypeAlias, cast

from tidemill.chain import Match, parse_match
from tidemill.message import parse_delay
from tidemill.subscription import SHARED, From, Sharing, Subscription
from tidemill_wire.filters import is_pattern

Pool: TypeAlias = Literal["thread", "process"]
RetryDelay: TypeAlias = float | Sequence[float] | Callable[[int], float] | None
Function: TypeAlias = Callable[..., Any]

CONCURRENCY_DEFAULT = 10
CONCURRENCY_MAX = 10_000
GIVE_UP_AFTER_DEFAULT = 32


class Mode(Enum):
    """Where a handler runs."""

    LOOP = "async"
    THREAD = "thread"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Wish:
    """The arguments of ``@worker.on`` that are about calling the handler, and about what it is given."""

    concurrency: int = CONCURRENCY_DEFAULT
    timeout: float | None = None
    pool: Pool | None = None
    tags: Iterable[str] = ()
    match: Match = "any"
    retry_after: RetryDelay = None
    prefetch: int | None = None
    sharing: Sharing = SHARED
    consumer: str | None = None
    by_key: bool = False
    give_up_after: int | None = None


@dataclass(frozen=True, slots=True)
class Handler:
    """One subscription and the function for its messages."""

    function: Function
    subscription: Subscription
    mode: Mode
    concurrency: int
    prefetch: int
    timeout_s: float | None
    takes_context: bool
    retry_after: RetryDelay = field(default=None, repr=False)
    by_key: bool = False
    """Keys side by side, each in its order; a message that fails is tried again here, up to ``give_up_after`` times."""
    give_up_after: int | None = None

    @classmethod
    def parse(
        cls, function: Function, subjects: str | Iterable[str], group: str, start: From, wish: Wish
    ) -> Handler:
        """The handler, or an error with what is wrong with it."""
        wanted = parse_match(wish.tags, wish.match)
        if wish.sharing.broadcast and wish.consumer is None:
            raise ValueError(
                "a broadcast worker goes on where its consumer was: give it a name that stays, "
                "as in name=os.environ['HOSTNAME']"
            )
        subscription = Subscription.parse(subjects, group, start, wish.consumer, wish.sharing, wanted)
        mode = _mode(function, wish.pool)
        wants = _parameters(function)
        name = name_of(function)
        if mode is Mode.PROCESS and wants > 1:
            raise ValueError(
                f"{name} runs in another process, where there is no context: take the message only"
            )
        if not 0 < wish.concurrency <= CONCURRENCY_MAX:
            raise ValueError(
                f"concurrency {wish.concurrency} of {name} is not within 1 and {CONCURRENCY_MAX}"
            )
        prefetch = wish.concurrency if wish.prefetch is None else wish.prefetch
        if prefetch < 1:
            raise ValueError(f"prefetch {prefetch} of {name} is not positive")
        if wish.timeout is not None and wish.timeout <= 0:
            raise ValueError(f"timeout {wish.timeout} of {name} is not positive: leave it out for no timeout")
        if wish.by_key and wish.sharing.at_most_once:
            raise ValueError(
                f"{name} is by_key, which tries again what fails, and at_most_once, which does not"
            )
        if wish.by_key and any(is_pattern(one) for one in subscription.subjects):
            raise ValueError(
                f"{name} is by_key, which needs subjects by their names: write them instead of a pattern"
            )
        if wish.give_up_after is not None and wish.give_up_after < 1:
            raise ValueError(
                f"give_up_after {wish.give_up_after} of {name} is not positive: leave it out to go on for ever"
            )
        _check_delays(wish.retry_after)
        return cls(
            function,
            subscription,
            mode,
            wish.concurrency,
            prefetch,
            wish.timeout,
            wants > 1,
            wish.retry_after,
            wish.by_key,
            wish.give_up_after,
        )

    @property
    def name(self) -> str:
        """The function and the group, for people and metrics."""
        return f"{name_of(self.function)}/{self.subscription.group}"

    def with_concurrency(self, concurrency: int) -> Handler:
        """The same with another bound; what is pulled ahead grows and shrinks with it."""
        prefetch = max(1, round(self.prefetch * concurrency / self.concurrency))
        return replace(self, concurrency=concurrency, prefetch=prefetch)

    def delay(self, attempts: int) -> float | None:
        """Seconds until a failed message comes again. ``None``: as the group's policy says.

        Of a list the last one counts for all further attempts.
        """
        match self.retry_after:
            case None:
                return None
            case int() | float():
                return float(self.retry_after)
            case Sequence():
                return float(self.retry_after[min(attempts, len(self.retry_after) - 1)])
            case _:
                return self.retry_after(attempts)


def name_of(function: Function) -> str:
    """What a function is called."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def _mode(function: Function, pool: Pool | None) -> Mode:
    call = getattr(function, "__call__", None)  # noqa: B004 - what kind of function it is is asked, not whether
    asked = inspect.unwrap(function), call
    if any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in asked):
        raise TypeError(
            f"{name_of(function)} is a generator, because it has a yield, and calling it runs nothing of it: "
            "a handler returns when the message is handled"
        )
    is_async = any(map(inspect.iscoroutinefunction, asked))
    if pool not in {None, "thread", "process"}:
        raise ValueError(f"pool {pool!r} is none of thread, process and None")
    if is_async and pool is not None:
        raise ValueError(
            f"{name_of(function)} is async and runs in the event loop: a pool is for plain functions"
        )
    if is_async:
        return Mode.LOOP
    return Mode.PROCESS if pool == "process" else Mode.THREAD


def _parameters(function: Function) -> int:
    """1: the message; 2: the context as well."""
    parameters = inspect.signature(function).parameters.values()
    places = [one for one in parameters if one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}]
    needed = [one for one in places if one.default is one.empty]
    if any(one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in parameters):
        raise ValueError(
            f"{name_of(function)} has a parameter that only its name can fill: give it a default"
        )
    if any(one.kind is one.VAR_POSITIONAL for one in parameters) and len(needed) <= 1:
        return 1
    if not places or len(needed) > 2:
        raise ValueError(
            f"{name_of(function)} takes {len(needed)} parameters: a handler takes the message, and perhaps the context"
        )
    return max(1, len(needed))


def _check_delays(delays: object) -> None:
    match delays:
        case None:
            return
        case int() | float():
            parse_delay(delays)
        case Sequence() if not isinstance(delays, str):
            if not delays:
                raise ValueError("retry_after is an empty list: write None for the policy of the group")
            for delay in cast("Sequence[float]", delays):
                parse_delay(delay)
        case _ if not callable(delays):
            raise ValueError(f"retry_after {delays!r} is no number, no list of them and no function")
        case _:
            return


def check_found(function: Function, found: object, *, awaited: bool = True) -> None:
    """What a plain function returned is nobody's business, but for that of which nothing has run."""
    if inspect.isawaitable(found) and not awaited:
        if inspect.iscoroutine(found):
            found.close()
        raise TypeError(
            f"{name_of(function)} returned something to be awaited, and its process has no event loop: "
            "let a handler of a pool do its work before it returns"
        )
    if inspect.isgenerator(found) or inspect.isasyncgen(found):
        raise TypeError(
            f"{name_of(function)} returned a generator, of which nothing has run: go through it in the handler"
        )


Hook: TypeAlias = Callable[..., Awaitable[Any] | Any]


async def called(function: Hook, *arguments: Any) -> Any:
    """What a hook returns, whether it is async or not."""
    found = function(*arguments)
    return await found if inspect.isawaitable(found) else found
