"""One life of a node: what a process is to the simulated loop.

A node (a name, a host, a disk) is lived in by one process after the other. Everything a process schedules carries its
``Life`` in the context variable ``LIFE``: tasks, timers, callbacks and executor jobs inherit it, so the loop knows
whose turn a handle is, and a dead life's handles simply never run.

Model of threads: each executor is a lane of ``max_workers`` workers. A job runs as one step at a seeded instant after
a worker is free, and its result is seen at a second seeded instant, after the time that its disk operations charged.
Lanes with one worker are FIFO; different lanes run side by side.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    from sim.handles import SimHandle
    from sim.loop import SimLoop

DEFAULT_WORKERS = 4
JOB_DELAY_MIN_S, JOB_DELAY_MAX_S = 10e-6, 200e-6

LIFE: contextvars.ContextVar[Life] = contextvars.ContextVar("life")


class SimCrash(BaseException):
    """The process dies inside the call that raises this. Product code must not catch ``BaseException``."""


class Life:
    """A process: its ready queue, its pauses, its lanes, and whether it still lives."""

    __slots__ = (
        "alive", "busy_until", "context", "exit_code", "lanes", "loop", "node", "number", "paused", "queued",
        "ready", "slowness", "tag", "waiting",
    )  # fmt: skip

    def __init__(self, loop: SimLoop, node: str, number: int) -> None:
        self.loop = loop
        self.node = node
        self.number = number
        self.tag = crc32(node.encode())
        self.ready: deque[SimHandle] = deque()
        self.alive = True
        self.paused = False
        self.queued = False
        self.busy_until = 0.0
        self.slowness = 1.0
        self.exit_code: object = None
        self.lanes: dict[int, Lane] = {}
        self.waiting: list[Callable[[], None]] = []
        self.context = contextvars.Context()
        self.context.run(LIFE.set, self)

    def lane(self, executor: Executor | None) -> Lane:
        lane = self.lanes.get(id(executor))
        if lane is None:
            workers = DEFAULT_WORKERS if executor is None else getattr(executor, "_max_workers", 1)
            lane = self.lanes[id(executor)] = Lane(self, executor, workers)
        return lane

    def when_awake(self, action: Callable[[], None]) -> None:
        """Run ``action`` now, when the process is resumed, or never when it is dead."""
        if not self.alive:
            return
        if self.paused:
            self.waiting.append(action)
        else:
            action()


class Job:
    """One submitted function and the future of its caller."""

    __slots__ = ("args", "context", "function", "future")

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], future: asyncio.Future[Any]
    ) -> None:
        self.function = function
        self.args = args
        self.future = future
        self.context = contextvars.copy_context()


class Lane:
    """The workers of one executor in one life."""

    __slots__ = ("executor", "free", "life", "queue")

    def __init__(self, life: Life, executor: Executor | None, workers: int) -> None:
        self.life = life
        self.executor = executor  # Held, so that its id, which is our key, is not given to another.
        self.free = workers
        self.queue: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        self.queue.append(job)
        self._next()

    def _next(self) -> None:
        loop = self.life.loop
        while self.free and self.queue:
            self.free -= 1
            job = self.queue.popleft()
            loop.at(loop.now + loop.job_delay(), self.life.when_awake, lambda job=job: self._begin(job))

    def _begin(self, job: Job) -> None:
        if job.future.cancelled():
            self._release()
            return
        loop = self.life.loop
        error: BaseException | None = None
        result: object = None
        with loop.charged_to_job() as cost:
            try:
                result = job.context.run(job.function, *job.args)
            except SimCrash:
                return
            except BaseException as caught:  # Carried to the caller, as a real executor does.
                error = caught
        if self.life.alive:
            loop.count_job()
            when = loop.now + cost.seconds + loop.job_delay()
            loop.at(when, self.life.when_awake, lambda: self._finish(job, result, error))

    def _finish(self, job: Job, result: object, error: BaseException | None) -> None:
        self._release()
        if job.future.cancelled():
            return
        if error is None:
            job.future.set_result(result)
        else:
            job.future.set_exception(error)

    def _release(self) -> None:
        self.free += 1
        self._next()
