"""Messages that recur, from a delay group whose masters come and go while they come due, some with clocks of their own.

All clocks of a world are set so that a minute begins in the midst of the faults; there the next occurrence of every
series is placed and the present one leaves. In some worlds each life of a delay service begins with a clock that is up
to ``JUMPS_MS`` ahead, so times are missed, and come back. Some series are cancelled by then, some are given another
time. Checked besides what ``calendars`` checks:

    no time of a series comes twice, none before it is that time
    a series that is to miss none has all of its times, and each of the others goes on behind the time it was decided at
    of one that is to have none of what was missed, nothing comes that was a minute late when its master let it go
    after a cancel was answered, nothing that was to come later comes
    a series that nobody has ended comes again after the heal
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from sim.calendars import Calendars
from sim.later import Shifted
from sim.seal import EPOCH_S
from sim.world import Env, World
from tidemill import Client
from tidemill.errors import LeaseLost, TidemillError
from tidemill.recurring import offset_in
from tidemill_delay.machine import Delay
from tidemill_delay.pieces import Addressed
from tidemill_delay.series import OPEN
from tidemill_wire.batch import parse_message_id
from tidemill_wire.columns import Batch, Column
from tidemill_wire.fields import living_subject
from tidemill_wire.recurrence import MISSED, MISSED_MS, begin_series

BELL = "bell"
RINGER = "r1"
EXPRESSION = "* * * * *"
MINUTE_MS = 60_000
ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata")
SERIES = 6
GAP_S = 0.3
JUMPS_MS = (0, 0, 20_000, 90_000, 150_000)
ENDED, MOVED = 0.3, 0.15
"""Of the series, so many are cancelled, and moved."""
AGAIN_S = 0.5


@dataclass(slots=True)
class Series:
    """What its sender knows of one."""

    key: str
    missed: str
    first_ms: int
    answered: bool = False
    ended_ms: int | None = None
    """When it was told that it is."""
    doubtful: bool = False
    """A cancel of it is under way."""
    moved: bool = False
    """Somebody asked for another time."""
    heard_s: float = -1.0
    """When an occurrence was given out last."""
    rings: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Which times the broker has, and since when."""


class Crontabs(Calendars):
    """The scenario."""

    probes = ("failovers", "rung", "ended", "gone_bells", "moved_bells", "skipped", "caught_up", "led_on")

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        rng = random.Random(f"{seed}/crontabs")
        self._step_ms = rng.choice(JUMPS_MS)
        minute_s = rng.uniform(0.5, self.phases.warm_up_s + self.phases.faults_s)
        self._ahead_ms = round(-1000 * (EPOCH_S + minute_s)) % MINUTE_MS
        """So far all clocks are ahead of the world's, for a minute to begin then."""
        self._series: dict[str, Series] = {}
        self._decided: dict[tuple[str, int], dict[int, str]] = {}
        """Of each time of a series: by which clock its next one was looked for, and on which node."""
        self.clients = (*self.clients, RINGER)

    def build(self, world: World) -> None:
        super().build(world)
        world.add_client(RINGER, self._ring)

    def drained(self) -> bool:
        healed_s = self._world.healed_at_s or 0.0
        kept = [one for one in self._series.values() if one.answered and one.ended_ms is None]
        if any(one.doubtful for one in self._series.values()) or RINGER not in self._finished:
            return False
        return all(one.heard_s > healed_s for one in kept) and super().drained()

    def check(self, world: World) -> list[str]:
        problems = super().check(world)
        for one in self._series.values():
            one.rings.sort()
            world.probes["rung"] += len(one.rings)
            problems += self._problems_of(one)
        return problems

    def _takes(self, batch: Batch) -> bool:
        if living_subject(batch.partition) != BELL:
            return False
        sources = batch.numbers(Column.SOURCES, "i", batch.header.messages)
        for row, body in enumerate(batch.bodies()):
            identity = batch.message_id(row if sources is None else sources[row])
            one = self._series[body.decode()]
            one.rings.append((time_of(identity, one), batch.header.stored_at_ms))
        return True

    def _problems_of(self, one: Series) -> list[str]:
        times = [at_ms for at_ms, _ in one.rings]
        name = f"{one.key}, {one.missed}, from {one.first_ms} on"
        problems = [f"rings twice: {name}, at {a}" for a, b in pairwise(times) if a == b]
        if one.ended_ms is not None and not one.moved:
            last_ms = one.ended_ms + self._step_ms
            problems += [f"ended, and rings: {name}, at {at}" for at in times if at > last_ms]
        if one.moved:
            return problems
        problems += [
            f"rings early: {name}, at {stored_ms} for {at_ms}"
            for at_ms, stored_ms in one.rings
            if stored_ms < at_ms - 2 * self._step_ms
        ]
        if one.missed == "all":
            whole = [one.first_ms + MINUTE_MS * number for number in range(len(times))]
            return problems + ([f"a gap: {name}: {times}"] if times != whole else [])
        for at_ms, next_ms in pairwise(times):
            decided_ms = min(self._decided[one.key, at_ms])
            problems += [f"missed, and rings: {name}, at {next_ms}"] if next_ms <= decided_ms else []
        for at_ms in times if one.missed == "none" else ():
            late_ms = min(self._decided.get((one.key, at_ms), {at_ms: ""})) - at_ms
            if at_ms != one.first_ms and late_ms > MISSED_MS:
                problems.append(f"late, and rings: {name}, at {at_ms}, {late_ms} ms late")
        return problems

    # -- servers -----------------------------------------------------------------------------------------------

    def _as_set(self, env: Env, more_ms: int = 0) -> Env:
        """With the clock that is meant."""
        clock: Any = Shifted(env.clock, self._ahead_ms + more_ms)
        return replace(env, clock=clock)

    async def _serve_broker(self, env: Env) -> None:
        await super()._serve_broker(self._as_set(env))

    async def _serve_one(self, env: Env) -> None:
        await super()._serve_one(self._as_set(env, env.rng.randint(0, self._step_ms)))

    def _watch(self, machine: Any, delay: Delay, env: Env) -> None:
        super()._watch(machine, delay, env)
        recurring: Any = delay.recurring
        follow = recurring._follow

        def note_and_follow(held: Any, piece: Addressed, now_ms: int) -> None:
            hour, number = held.place
            said = piece.recurrence
            if said is not None and delay.state.hours[hour].series[number] == OPEN:
                key = piece.timer_key_of(number)
                late_ms = now_ms - max(piece.asked_ms(number), piece.header.stored_at_ms)
                self._note(key, (said.planned_ms, said.missed), (now_ms, late_ms), env.name)
            follow(held, piece, now_ms)

        recurring._follow = note_and_follow

    def _note(self, key: str, planned: tuple[int, str], decided: tuple[int, int], node: str) -> None:
        """A master looks for what comes after an occurrence."""
        planned_ms, missed = planned
        now_ms, late_ms = decided
        known = self._decided.setdefault((key, planned_ms), {})
        known[now_ms] = node
        probes = self._world.probes
        probes["skipped"] += missed == "none" and late_ms > MISSED_MS
        probes["caught_up"] += missed == "all" and now_ms > planned_ms + MINUTE_MS
        probes["led_on"] += len(set(known.values())) > 1

    # -- clients -----------------------------------------------------------------------------------------------

    async def _produce(self, env: Env) -> None:
        await super()._produce(self._as_set(env))

    async def _consume(self, env: Env) -> None:
        env = self._as_set(env)
        ordinary: Coroutine[Any, Any, None] = super()._consume(env)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ordinary)
            tasks.create_task(self._hear(env))

    async def _hear(self, env: Env) -> None:
        async with self._client(env).consume(BELL, group="g") as messages:
            async for message in messages:
                self._series[message.timer_key or ""].heard_s = env.loop.now
                with suppress(LeaseLost):  # then it comes again
                    await message.ack()

    async def _ring(self, env: Env) -> None:
        env = self._as_set(env)
        for one in self._series.values():  # of a life that was killed: nobody heard whether they were ended
            one.answered &= not one.doubtful
            one.doubtful = False
        client = self._client(env)
        async with asyncio.TaskGroup() as changing:
            for number in range(SERIES):
                one = await self._begin(env, client, f"{env.name}.{env.life}.{number}")
                chance = env.rng.random()
                if one.answered and chance < ENDED:
                    one.doubtful = True
                    changing.create_task(self._end(env, client, one))
                elif one.answered and chance < ENDED + MOVED:
                    one.moved = True
                    changing.create_task(self._move(env, client, one))
                await asyncio.sleep(env.rng.expovariate(1 / GAP_S))
        await client.close()
        self._finished.add(env.name)

    async def _begin(self, env: Env, client: Client, key: str) -> Series:
        missed, zone = env.rng.choice(MISSED), env.rng.choice(ZONES)
        first_ms = begin_series((EXPRESSION, zone, missed), offset_in, env.clock.now_ms()).planned_ms
        one = self._series[key] = Series(key, missed, first_ms)
        with suppress(TidemillError):  # it may ring, and need not
            await client.send(
                BELL, key.encode(), cron=EXPRESSION, time_zone=zone, missed=missed, timer_key=key
            )
            one.answered = True
        return one

    async def _end(self, env: Env, client: Client, one: Series) -> None:
        """Until somebody says that it is done."""
        await asyncio.sleep(env.rng.uniform(0, self.phases.faults_s))
        first = True
        while one.ended_ms is None:
            try:
                changed = await client.cancel(subject=BELL, timer_key=one.key)
            except TidemillError:
                first = False
                await asyncio.sleep(AGAIN_S)
                continue
            one.ended_ms = env.clock.now_ms()
            one.doubtful = False
            self._world.probes["ended"] += 1
            self._world.probes["gone_bells"] += changed.gone > 0
            if first and not changed.changed + changed.gone:
                self._problems.append(f"not found: {one.key}, to be ended")

    async def _move(self, env: Env, client: Client, one: Series) -> None:
        await asyncio.sleep(env.rng.uniform(0, self.phases.faults_s))
        with suppress(TidemillError):  # nobody knows
            delay_s = env.rng.choice((0.0, 1.0, 3.0, 70.0))
            changed = await client.reschedule(subject=BELL, timer_key=one.key, delay=delay_s)
            self._world.probes["moved_bells"] += changed.changed


def time_of(identity: str, one: Series) -> int:
    """Which time of a series an occurrence is: that of the first stands nowhere in its id."""
    batch_id, _ = parse_message_id(identity)
    said = int.from_bytes(batch_id[:8], "big")
    at_ms = said >> 16
    return at_ms if not said & 0xFFFF and not at_ms % MINUTE_MS else one.first_ms


def make(seed: str) -> Crontabs:
    return Crontabs(seed)
