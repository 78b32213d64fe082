"""The deterministic event loop: virtual time, seeded order, one ready queue a life.

One turn: release the due timers; when nothing can run, jump to the next timer; pick a runnable life by the seeded
stream; run ONE of its handles; advance the clock by ``STEP_S``. A step costs time, so a ``sleep(0)`` poller cannot
stop the clock; ``BUSY_STEPS`` in one second are a livelock. Nothing runnable and no timer is a
deadlock, which names the tasks that wait: a liveness check for free.

Order inside a life is FIFO (``node``, what asyncio documents), FIFO but for task steps (``tasks``), or any
(``shuffle``, a hint at best). Between lives it is always random. A blocking call on the loop charges its time to the
life, which then stalls; in an executor only the result is late. ``at`` schedules what the kernel does: it runs
outside of all lives and costs no step. The crc is over (life, task or callback, time) and never over ids or bytes.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, cast
from zlib import crc32

from sim.handles import Cost, SimFuture, SimHandle, SimTask, SimTimer
from sim.life import JOB_DELAY_MAX_S, JOB_DELAY_MIN_S, LIFE, Job, Life, SimCrash

if TYPE_CHECKING:
    from sim.network import Network

STEP_S = 2e-6
BUSY_STEPS = 100_000
CANCELLED_TIMERS_MIN = 200
TRACE_RING = 200
TASK_SHUFFLE_MAX = 8
CLOSINGS_MAX = 10

Args = TypeVarTuple("Args")
Result = TypeVar("Result")


class Deadlock(Exception):
    """Nothing can ever run again, and the world has not finished."""


class Livelock(Exception):
    """The loop never rests: somebody polls."""


class SimLoop(asyncio.BaseEventLoop):
    """See the module."""

    _stopping: bool
    network: Network

    def __init__(self, seed: str, order: str = "node") -> None:
        super().__init__()
        self.now = 0.0
        self.order = order
        self.steps = 0
        self.jobs = 0
        self.crc = crc32(seed.encode())
        self.errors: list[str] = []
        self.recent: deque[tuple[float, str, str]] = deque(maxlen=TRACE_RING)
        self.tracing = False
        self.inert = False
        self._pick = random.Random(f"{seed}/sched")
        self._jobs_rng = random.Random(f"{seed}/exec")
        self._timers: list[tuple[float, int, Any, Any]] = []
        self._serial = 0
        self._cancelled_timers = 0
        self._runnable: list[Life] = []
        self._second, self._second_steps = 0.0, 0
        self._cost: Cost | None = None
        self._marks: dict[str, int] = {}
        self._graveyard: list[Any] = []
        self.outside = Life(self, "world", 0)
        self.on_exit: Callable[[Life], None] = self.end
        """A life has raised ``SystemExit``."""

    # -- time, numbers, charges --------------------------------------------------------------------------------

    def time(self) -> float:
        return self.now

    def next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def at(self, when: float, function: Callable[..., object], *args: object) -> None:
        """The kernel's timer: ``function`` runs outside of all lives."""
        self._serial += 1
        heappush(self._timers, (when, self._serial, function, args))

    def charge(self, seconds: float) -> None:
        """A blocking call took this long: the job's result is late, or the life stalls."""
        if self._cost is not None:
            self._cost.seconds += seconds
            return
        life = LIFE.get(None)
        if life is not None:
            life.busy_until = max(self.now, life.busy_until) + seconds

    @contextmanager
    def charged_to_job(self) -> Iterator[Cost]:
        cost = self._cost = Cost()
        try:
            yield cost
        finally:
            self._cost = None

    def job_delay(self) -> float:
        return self._jobs_rng.uniform(JOB_DELAY_MIN_S, JOB_DELAY_MAX_S)

    def count_job(self) -> None:
        self.jobs += 1

    # -- what asyncio calls ------------------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: contextvars.Context | None = None
    ) -> SimHandle:
        handle = SimHandle(callback, args, self, context)
        self._push(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Args], object], *args: *Args, context: contextvars.Context | None = None
    ) -> SimHandle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: contextvars.Context | None = None,
    ) -> SimTimer:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: contextvars.Context | None = None,
    ) -> SimTimer:
        timer = SimTimer(when, callback, args, self, context)
        self._serial += 1
        heappush(self._timers, (when, self._serial, timer, None))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled_timers += 1
        if self._cancelled_timers > CANCELLED_TIMERS_MIN and self._cancelled_timers * 2 > len(self._timers):
            live = [entry for entry in self._timers if entry[3] is not None or not entry[2]._cancelled]
            self._timers[:] = live
            heapify(self._timers)
            self._cancelled_timers = 0

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def create_task(
        self, coro: object, *, name: object = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        task = SimTask(cast("Any", coro), loop=self, name=cast("Any", name), context=context)
        if not task.life.alive or self.inert:
            self._bury(task)
        if self.inert:
            cast("Any", coro).close()  # it never begins, and shall not complain of it
        return task

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Args], Result], *args: *Args
    ) -> asyncio.Future[Result]:
        future: asyncio.Future[Result] = self.create_future()
        life = LIFE.get(self.outside)
        if life.alive:
            life.lane(executor).submit(Job(func, args, future))
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        life = LIFE.get(self.outside)
        if not self.inert and life.alive and not isinstance(error, SimCrash):
            self.errors.append(f"{self.now:.6f} {life.node}: {context.get('message')}: {error!r}")

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return self.network.addresses(host, port)

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        return self.network.listen(protocol_factory, host, port, options)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        return await self.network.connect(protocol_factory, host, port, options)

    async def sock_connect(self, sock: Any, address: Any) -> None:
        await self.network.sock_connect(sock, address)

    def _process_events(self, event_list: Any) -> None:
        raise NotImplementedError("the simulated loop has no selector")

    # -- lives -------------------------------------------------------------------------------------------------

    def life_of(self, context: contextvars.Context | None) -> Life:
        # Context.get ignores the default of the variable; without one, everything would look like None.
        return LIFE.get(self.outside) if context is None else context.get(LIFE, self.outside)

    def end(self, life: Life) -> None:
        """The process is gone between two instructions: none of its code runs again, no ``finally`` either."""
        if not life.alive:
            return
        life.alive = False
        self._graveyard.extend(life.ready)
        life.ready.clear()
        self._unqueue(life)
        mine = [task for task in asyncio.all_tasks(self) if isinstance(task, SimTask) and task.life is life]
        for task in sorted(mine, key=lambda task: task.serial):
            self._bury(task)
        self._graveyard.extend(life.waiting)
        self._graveyard.extend(life.lanes.values())
        life.waiting = []

    def pause(self, life: Life) -> None:
        """SIGSTOP: the process stands, its kernel does not."""
        life.paused = True
        self._unqueue(life)

    def resume(self, life: Life) -> None:
        if life.paused and life.alive:
            life.paused = False
            waiting, life.waiting = life.waiting, []
            for action in waiting:
                action()
            self._wake(life)

    def _bury(self, task: SimTask) -> None:
        # Referenced until the end: a collected coroutine would run its `finally` in the middle of the run.
        task._log_destroy_pending = False
        self._graveyard.append(task)

    def _push(self, handle: SimHandle) -> None:
        life = handle._context.get(LIFE, self.outside)
        if not life.alive or self.inert:
            self._graveyard.append(handle)
            return
        life.ready.append(handle)
        if not life.queued and not life.paused and life.busy_until <= self.now:
            life.queued = True
            self._runnable.append(life)

    def _wake(self, life: Life) -> None:
        if life.ready and life.alive and not life.paused and not life.queued and life.busy_until <= self.now:
            life.queued = True
            self._runnable.append(life)

    def _unqueue(self, life: Life) -> None:
        if life.queued:
            life.queued = False
            self._runnable.remove(life)

    # -- the turn ----------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        timers, runnable, random_of = self._timers, self._runnable, self._pick.random
        while not self._stopping:
            while timers and timers[0][0] <= self.now:
                _, _, item, args = heappop(timers)
                if args is not None:
                    item(*args)
                elif not item._cancelled:
                    self._push(item)
                else:
                    self._cancelled_timers -= 1
            if not runnable:
                self._idle()
                continue
            life = runnable[int(random_of() * len(runnable)) if len(runnable) > 1 else 0]
            handle = life.ready.popleft() if self.order == "node" else self._choose(life.ready)
            if not life.ready:
                self._unqueue(life)
            if not handle._cancelled:
                self._step(life, handle)

    def _idle(self) -> None:
        if not self._timers:
            raise Deadlock(self.waiting_tasks())
        self.now = self._timers[0][0]

    def _step(self, life: Life, handle: SimHandle) -> None:
        self.now += STEP_S
        self.steps += 1
        self._trace(life, handle._callback)
        try:
            handle._context.run(handle._callback, *handle._args)
        except SimCrash:
            pass
        except SystemExit as caught:
            life.exit_code = caught.code
            self.on_exit(life)
        except Exception as caught:
            message = f"exception in callback {_name_of(handle._callback)}"
            life.context.run(self.call_exception_handler, {"message": message, "exception": caught})
        if life.slowness > 1.0:
            life.busy_until = max(self.now, life.busy_until) + STEP_S * (life.slowness - 1.0)
        if life.busy_until > self.now:
            self._unqueue(life)
            self.at(life.busy_until, self._wake, life)
        if self.steps - self._second_steps > BUSY_STEPS:
            if self.now < self._second + 1.0:
                what = f"{life.node} runs {_name_of(handle._callback)}"
                raise Livelock(f"{BUSY_STEPS} steps since {self._second:.6f} s; now {what}")
            self._second, self._second_steps = self.now, self.steps

    def _choose(self, ready: deque[SimHandle]) -> SimHandle:
        if self.order == "shuffle":
            count = len(ready)
        else:
            count = 0
            while count < min(len(ready), TASK_SHUFFLE_MAX) and _task_of(ready[count]._callback) is not None:
                count += 1
        index = int(self._pick.random() * count) if count > 1 else 0
        handle = ready[index]
        del ready[index]
        return handle

    def _trace(self, life: Life, callback: Callable[..., object]) -> None:
        task = getattr(callback, "__self__", None)
        name = ""
        if type(task) is SimTask:
            mark = task.serial
        else:
            name = _name_of(callback)
            mark = self._marks.get(name) or self._marks.setdefault(name, crc32(name.encode()))
        # Times repeat to the last bit, so the hash of a float is as good a witness as its text.
        self.crc = (self.crc * 1_000_003 ^ life.tag ^ mark ^ hash(self.now)) & 0xFFFF_FFFF
        if self.tracing:
            self.recent.append((self.now, life.node, task.get_name() if type(task) is SimTask else name))

    # -- the end -----------------------------------------------------------------------------------------------

    def waiting_tasks(self) -> str:
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, SimTask) and task.life.alive]
        lines = [f"{task.life.node}/{task.get_name()}: {task.get_coro()!r}" for task in tasks]
        return f"at {self.now:.6f} s nothing can run; waiting: " + "; ".join(sorted(lines))

    def dissolve(self) -> None:
        """Close every coroutine in order, with the loop inert, so that the collector finds nothing to finish."""
        self.inert = True
        self.network.dissolve()
        # Else what a ``finally`` gathers lands in a loop that Python makes for it, and keeps this world for ever.
        asyncio._set_running_loop(self)
        try:
            self._close_coroutines()
        finally:
            asyncio._set_running_loop(None)
        self._timers.clear()
        self._runnable.clear()
        self._graveyard.clear()
        self.outside.ready.clear()
        self.close()

    def _close_coroutines(self) -> None:
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, SimTask)]
        for task in sorted(tasks, key=lambda task: task.serial):
            self._bury(task)
            coroutine = task.get_coro()
            if isinstance(coroutine, (Coroutine, Generator)):
                # Whatever a dead process thinks of its closing is nobody's business any more.
                for _ in range(CLOSINGS_MAX):  # One that awaits in its ``finally`` is asked again.
                    try:
                        coroutine.close()
                        break
                    except BaseException:
                        continue


def _name_of(callback: Callable[..., object]) -> str:
    return getattr(callback, "__qualname__", "") or type(callback).__qualname__


def _task_of(callback: Callable[..., object]) -> SimTask | None:
    owner = getattr(callback, "__self__", None)
    return owner if type(owner) is SimTask else None
