"""An experiment: a master loses its power, beside a slave that stops, is silent, or is started again, at every moment.

The rules are the real meta's, on a store in memory; of the two brokers only what matters here: a message is answered
when both of the set have it in their page caches, and is on a disk when that was synced. Everything happens in steps of
a quarter of a second, a heartbeat each second. Of each pair of moments, and of each way the slave goes, what was
answered must be with whoever is elected; and somebody is, in the end.

    stops     it says goodbye, goes on for a second, stops with all on its disk, and is back after some seconds
    pauses    meta does not hear it for a while; the master does
    dies      it loses its power, and the master's process is killed: nothing but the master's log has all
    meta      meta begins anew as the master loses its power, and hears that first

Besides: a slave that says goodbye holds up its master for no longer than two beats, and one that meta does not hear
holds up no other one that is wished in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from samples.metas import STEP_MS, World
from tidemill_meta.beats import BrokerBeat
from tidemill_meta.errors import Denied

GROUP, MASTER, SLAVE, THIRD = "g1", "g1-0", "g1-1", "g1-2"
BEAT_STEPS = 1_000 // STEP_MS
WARM_STEPS = 8 * BEAT_STEPS
BACK_STEPS = 6 * BEAT_STEPS
"""Until who stopped is back."""
LIMIT_STEPS = 20 * BEAT_STEPS
WAYS = ("stops", "pauses", "dies", "meta")
ALL, LESS = 100, 50
"""How long the log is with all that was answered, and what a power cut leaves of it."""


@dataclass
class Server:
    """``has``: its log; ``late`` steps before a whole second of its own it beats."""

    name: str
    late: int
    boot: int = 1
    runs: bool = True
    has: int = ALL


class Election:
    """One course of it: the slave goes its way at one step, and the master at another one."""

    def __init__(self, way: str, slave_at: int, master_at: int, late: int) -> None:
        self._way, self._slave_at, self._master_at = way, slave_at, master_at
        self._world = World()
        self._servers = {MASTER: Server(MASTER, 0), SLAVE: Server(SLAVE, late)}
        self._step = 0
        for server in self._servers.values():
            self._start(server)
        for server in self._servers.values():
            self._beat(server)
        self._world.in_sync(GROUP, MASTER, SLAVE)

    def problem(self) -> str:
        """What was lost; empty when nothing was."""
        while self._step < WARM_STEPS + LIMIT_STEPS:
            self._step += 1
            self._happens(self._step - WARM_STEPS)
            for server in self._servers.values():
                if server.runs and (self._step + server.late) % BEAT_STEPS == 0:
                    self._beat(server)
            self._world.pass_ms(STEP_MS)
            group = self._world.group(GROUP)
            alone = group.seated and dict(group.in_sync).keys() == {group.master} and group.epoch == 1
            if alone:
                return ""  # from now on the master answers from its disk: another story
            if group.epoch > 1:
                elected = self._servers[group.master]
                return "" if elected.has == ALL else f"{elected.name} leads with {elected.has} of {ALL}"
        return "nobody leads"

    def _happens(self, step: int) -> None:
        master, slave = self._servers[MASTER], self._servers[SLAVE]
        meta = self._world.first.meta
        if step == self._slave_at and self._way == "stops":
            meta.broker_left(BrokerBeat(GROUP, SLAVE, slave.boot), self._world.now_ms)
        if step == self._slave_at + BEAT_STEPS and self._way == "stops":
            slave.runs = False
        if step == self._slave_at + BACK_STEPS and self._way == "stops":
            self._start(slave, again=True)
        if step == self._slave_at and self._way == "pauses":
            slave.late += 1
        if step == self._slave_at and self._way == "dies":
            slave.runs, slave.has = False, LESS
        if step == self._master_at:
            self._fail(master)

    def _fail(self, master: Server) -> None:
        """It is back at once, and says so before anybody else speaks."""
        if self._way == "meta":
            self._world.restart()
        if self._way != "dies":
            master.has = LESS
        self._start(master, again=True)
        self._beat(master)

    def _start(self, server: Server, *, again: bool = False) -> None:
        server.runs, server.boot = True, server.boot + again
        self._world.register(GROUP, server.name, boot=server.boot)

    def _beat(self, server: Server) -> None:
        try:
            self._world.beat(GROUP, server.name, boot=server.boot, messages=server.has)
        except Denied:
            return  # who has said goodbye is not heard any more


def _goodbye_problem(late: int) -> str:
    """A slave that says goodbye is out of the set two beats later."""
    election = Election("stops", 0, LIMIT_STEPS, late)
    world = election._world
    while election._step < WARM_STEPS + 2 * BEAT_STEPS:
        election._step += 1
        election._happens(election._step - WARM_STEPS)
        for server in election._servers.values():
            if server.runs and (election._step + server.late) % BEAT_STEPS == 0:
                election._beat(server)
        world.pass_ms(STEP_MS)
    return "" if SLAVE not in dict(world.group(GROUP).in_sync) else f"{SLAVE} is still in the set"


def _wish_problem() -> str:
    """A slave joins beside one that meta does not hear."""
    world = World()
    for name in (MASTER, SLAVE, THIRD):
        world.register(GROUP, name)
        world.beat(GROUP, name, messages=ALL)
    world.pass_ms(6_000, lambda: [world.beat(GROUP, one, messages=ALL) for one in (MASTER, SLAVE)] and None)
    try:
        world.in_sync(GROUP, MASTER, SLAVE, THIRD)
    except Denied as error:
        return f"{SLAVE} is kept out: {error.detail}"
    return "" if SLAVE in dict(world.group(GROUP).in_sync) else f"{SLAVE} is kept out"


def courses() -> Iterator[tuple[str, int, int, int]]:
    """Way, when the slave goes it, when the master fails, and how the slave's beats lie to the master's."""
    return product(WAYS, range(BEAT_STEPS), range(2 * BEAT_STEPS), range(BEAT_STEPS))


def first_problem() -> str:
    """Of all courses, the first that breaks a promise; empty when none does."""
    problem = _wish_problem()
    if problem:
        return f"Cut(of a wish): {problem}"
    for late in range(BEAT_STEPS):
        problem = _goodbye_problem(late)
        if problem:
            return f"Cut(goodbye, {late}): {problem}"
    for course in courses():
        problem = Election(*course).problem()
        if problem:
            return f"Cut({', '.join(map(str, course))}): {problem}"
    return ""


if __name__ == "__main__":
    raise SystemExit(first_problem() or None)
