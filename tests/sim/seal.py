"""What keeps the real world out while a seed runs: clocks and randomness are the loop's, the rest is refused.

``time.*``, ``os.urandom`` and the global ``random`` give virtual time and seeded bytes; ``time.sleep`` and threads
raise; an audit hook refuses files opened for writing, real connections and processes. Code that did ``from time
import time`` escapes all this and is banned by ruff; aiohttp's own such import is mended here. Other threads of the
process, such as one that tells who runs the tests how far they are, stay in the real world.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from sim.loop import SimLoop

EPOCH_S = 1_750_000_000.0
"""Wall time at the start of every run."""

REFUSED_EVENTS = frozenset(
    {"socket.connect", "socket.bind", "subprocess.Popen", "os.system", "os.remove", "os.rename"}
)
WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT

_sealed: list[int] = []
"""The thread whose world is a simulated one."""


class Escape(RuntimeError):
    """Code inside the simulation reached for the real world."""


@contextmanager
def sealed(loop: SimLoop, seed: str) -> Iterator[None]:
    """One run. The collector is off meanwhile: its finalizers come at moments that depend on allocation."""
    _install_hook()
    rng = random.Random(f"{seed}/entropy")
    swaps: list[tuple[Any, str, Any]] = [
        (time, "time", lambda: EPOCH_S + loop.now),
        (time, "time_ns", lambda: int((EPOCH_S + loop.now) * 1e9)),
        (time, "monotonic", loop.time),
        (time, "monotonic_ns", lambda: int(loop.now * 1e9)),
        (time, "perf_counter", loop.time),
        (time, "perf_counter_ns", lambda: int(loop.now * 1e9)),
        (time, "sleep", _refuse),
        (os, "urandom", rng.randbytes),
        (random, "_urandom", rng.randbytes),
        (threading.Thread, "start", _refuse),
        (sys, "unraisablehook", lambda _: None),
    ]
    connector = sys.modules.get("aiohttp.connector")
    if connector is not None:
        swaps.append((connector, "monotonic", loop.time))
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in swaps]
    here = threading.get_ident()
    state, collecting = random.getstate(), gc.isenabled()
    gc.disable()
    for (owner, name, value), (_, _, real) in zip(swaps, kept, strict=True):
        setattr(owner, name, _in_thread(here, value, real))
    random.seed(f"{seed}/global")
    _sealed.append(here)
    try:
        with warnings.catch_warnings():
            _hush()
            yield
    finally:
        _sealed.pop()
        for owner, name, value in kept:
            setattr(owner, name, value)
        random.setstate(state)
        if collecting:
            gc.enable()


def collect() -> None:
    """Between two runs. What dead processes left open they leave without a warning."""
    with warnings.catch_warnings():
        _hush()
        gc.collect()


def _hush() -> None:
    warnings.filterwarnings("ignore", message="coroutine .* was never awaited")
    warnings.simplefilter("ignore", ResourceWarning)


def _in_thread(here: int, inside: Callable[..., Any], outside: Callable[..., Any]) -> Callable[..., Any]:
    """What the thread of the simulated world gets, and what all others do."""

    def call(*arguments: Any) -> Any:
        return (inside if threading.get_ident() == here else outside)(*arguments)

    return call


def _refuse(*_: object) -> NoReturn:
    raise Escape("no threads and no sleeping in the simulation")


def _install_hook() -> None:
    # A hook cannot be removed, so there is one for ever, and it looks away when nothing is sealed.
    if not getattr(sys, "_tidemill_sim_hook", False):
        setattr(sys, "_tidemill_sim_hook", True)  # noqa: B010
        sys.addaudithook(_audit)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not _sealed or threading.get_ident() != _sealed[-1]:
        return
    if event in REFUSED_EVENTS or (event == "open" and args[2] is not None and args[2] & WRITING_FLAGS):
        raise Escape(f"{event} {args!r} in the simulation")
