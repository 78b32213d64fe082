"""Messages for later in a world: a broker, a delay service beside it, and real clients that send ahead.

What is sent with a delay is answered by the delay service; both servers are killed, cut off and stalled. Messages that
were answered come to the broker's log once and not before their time, and a consumer gets them. It fails some of them
for so long that they go to the delay service once more: each comes again as a further attempt, and not before its time.
Some are cancelled or given another time while they come due: what was answered as cancelled never comes, what is gone
does. In some worlds each life of the delay service has a clock that is seconds ahead or behind; what is early is judged
with that in mind. Tiny hours, pages and segments are drawn from the seed.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sim.autopsy import NOW_MS, image_of, read_batches
from sim.faults import Kind
from sim.kernel import make_lanes
from sim.world import Env, Phases, World
from tidemill import Client, Message
from tidemill.errors import BrokerUnreachable, LeaseLost, OutcomeUnknown, TidemillError
from tidemill.far import Far
from tidemill.receipts import Receipt
from tidemill.settings import ClientSettings
from tidemill_broker.doors import Service
from tidemill_broker.doors import recover as recover_broker
from tidemill_broker.machine import Broker
from tidemill_broker.settings import BrokerSettings
from tidemill_delay.doors.service import DelayService, recover
from tidemill_delay.machine import Delay
from tidemill_delay.settings import DelaySettings
from tidemill_host.clock import Clock
from tidemill_host.machine import Ready
from tidemill_wire.columns import Batch
from tidemill_wire.fields import DEAD_PREFIX, DEAD_PROPERTY

PORT = 7400
BROKER, DELAY, CONSUMER = "s1", "later", "c1"
SUBJECTS = ("reminder", "invoice")
DELAYS_S = (-1.0, 0.0, 0.3, 1.0, 3.0, 8.0, 20.0)
CROWD_MAX = 12
GAP_S = 0.15
CHANGED = 0.35
"""Of the messages that have some time left, so many are cancelled or moved."""
CHANGE_S = 2.5
CLOCK_STEP_MS = 3_000
FAILS = 0.2
FAR_S = (0.2, 1.0, 4.0)
ROUTES = {
    "version": 1,
    "brokers": [{"group": "g0", "name": "g0-0", "host": BROKER, "port": PORT, "state": "RW"}],
    "delays": [{"group": "delay", "name": "delay-0", "host": DELAY, "port": PORT, "state": "RW"}],
}


class Listing:
    """The HTTP port of a queue that lists itself. It is always there: who is where does not change."""

    async def get(self, path: str, timeout_s: float = 0.0) -> Any:
        del path, timeout_s
        return ROUTES

    async def post(self, path: str, body: object, timeout_s: float = 0.0) -> Any:
        raise BrokerUnreachable(f"{path} is not here")

    async def lines(self, path: str, body: object, silence_s: float) -> AsyncGenerator[Any]:
        raise BrokerUnreachable(f"{path} is not here")
        yield


def draw_settings(seed: str) -> DelaySettings:
    """Limits so small that everything happens."""
    rng = random.Random(f"{seed}/delay")
    return DelaySettings(
        hour_ms=rng.choice((2_000, 10_000, 300_000)),
        tick_ms=rng.choice((50, 100, 500)),
        wheel_messages=rng.choice((4, 50, 1 << 20)),
        segment_bytes=rng.choice((2_000, 20_000, 1 << 20)),
        action_segment_bytes=rng.choice((300, 5_000, 1 << 20)),
        checkpoint_events=rng.choice((5, 50, 1000)),
        checkpoint_pause_ms=rng.choice((50, 500)),
        checkpoint_interval_ms=rng.choice((500, 5_000)),
        sync_interval_ms=rng.choice((20, 200)),
        free_space_min_percent=rng.choice((0, 5)),
        kept_bytes=rng.choice((0, 3_000, 1 << 20)),
    )


class Shifted(Clock):
    """A clock that stands elsewhere."""

    def __init__(self, clock: Clock, ahead_ms: int) -> None:
        self._clock = clock
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._ahead_ms

    def seconds(self) -> float:
        return self._clock.seconds()


class Later:
    """The scenario."""

    fails = FAILS
    brokers: Mapping[str, str] = {BROKER: "g0-0"}
    """Nodes of brokers, and their names."""
    servers: Sequence[str] = (BROKER, DELAY)
    kinds = tuple(kind for kind in Kind if kind not in {Kind.CLOCK_STEP, Kind.BIT_ROT, Kind.BAD_PLACE})
    probes = ("cancelled", "closed", "far_came", "far_kept", "gone", "kept", "moved", "paged", "read_again")

    def __init__(self, seed: str) -> None:
        rng = random.Random(f"{seed}/later")
        self.phases = Phases(warm_up_s=0.3, faults_s=rng.choice((3.0, 8.0)), drain_max_s=300.0)
        self._producers = ("p1", "p2")[: rng.randrange(1, 3)]
        self.clients = (*self._producers, CONSUMER)
        self._settings = draw_settings(seed)
        self._broker_settings = BrokerSettings(durability="high", segment_bytes=rng.choice((5_000, 1 << 20)))
        self._due_ms: dict[bytes, int] = {}
        self._subjects: dict[bytes, str] = {}
        self._step_ms = rng.choice((0, CLOCK_STEP_MS))
        self._answered: set[bytes] = set()
        """Those that must come."""
        self._cancelled: set[bytes] = set()
        self._given: Counter[bytes] = Counter()
        self._far: dict[bytes, list[int]] = {}
        """Of what failed for longer than a broker waits: when it was to come again, each time."""
        self._owed: dict[bytes, int] = {}
        """Of these, what was told so and has not come since."""
        self._finished: set[str] = set()
        self._problems: list[str] = []
        self._world: World

    def build(self, world: World) -> None:
        self._world = world
        world.add_server(BROKER, self._serve_broker)
        world.add_server(DELAY, self._serve_delay)
        for name in self._producers:
            world.add_client(name, self._produce)
        world.add_client(CONSUMER, self._consume)

    def drained(self) -> bool:
        return (
            self._finished >= set(self._producers) and self._answered <= set(self._given) and not self._owed
        )

    def check(self, world: World) -> list[str]:
        """The broker's log: what was answered is there, once, and was stored when it was due."""
        stored: dict[bytes, list[int]] = {}
        copied: dict[bytes, list[int]] = {}
        for node, name in self.brokers.items():
            image = image_of(world.nodes[node].disk)
            settings = replace(self._broker_settings, name=name)
            broker, _ = recover_broker(image.mount(), settings, NOW_MS)
            for batch in read_batches(image.mount(), broker):
                if self._takes(batch):
                    continue
                found = copied if batch.partition.startswith(DEAD_PREFIX) else stored
                for body in batch.bodies():
                    found.setdefault(body, []).append(batch.header.stored_at_ms)
        problems = [f"far: {body!r} never came again" for body in self._owed]
        problems += [
            f"far: {body!r} was copied {len(times)} times, the first at {min(times)}, for {self._far.get(body)}"
            for body, times in copied.items()
            if len(times) > len(self._far.get(body, ()))
            or min(times) < min(self._far[body]) - 2 * self._step_ms
        ]
        problems += [f"lost: {body!r}" for body in self._answered if body not in stored]
        problems += [f"cancelled and stored: {body!r}" for body in self._cancelled if body in stored]
        twice = [body for body, times in stored.items() if len(times) > 1]
        problems += [f"twice: {body!r}" for body in twice if not self._may_be_twice(body)]
        problems += [f"invented: {body!r}" for body in stored if body not in self._due_ms]
        problems += [
            f"early: {body!r} by {self._due_ms[body] - times[0]} ms"
            for body, times in stored.items()
            if times[0] < self._due_ms.get(body, 0) - 2 * self._step_ms
        ]
        return self._problems + problems

    def _may_be_twice(self, body: bytes) -> bool:
        """Whether it is said that this may happen."""
        del body
        return False

    def _takes(self, batch: Batch) -> bool:
        """Whether somebody else looks at what was stored."""
        del batch
        return False

    # -- servers -----------------------------------------------------------------------------------------------

    async def _serve_broker(self, env: Env) -> None:
        settings = replace(self._broker_settings, name=self.brokers[env.name])
        broker, _ = recover_broker(env.disk, settings, env.clock.now_ms())
        self._began(broker, env)
        service = Service(broker, env.disk, make_lanes(kernel=env.life % 2 == 1), env.clock)
        await service.listen("0.0.0.0", PORT)
        await asyncio.shield(service.failed)
        raise SystemExit(1)

    def _began(self, broker: Broker, env: Env) -> None:
        """A broker begins a life."""

    async def _serve_delay(self, env: Env) -> None:
        clock = Shifted(env.clock, env.rng.randint(-self._step_ms, self._step_ms))
        delay, _ = recover(env.disk, self._settings, clock.now_ms())
        machine: Any = delay
        ready = delay.ready

        def check_and_ready() -> Ready:
            delay.check()
            self._look(delay)
            return ready()

        machine.ready = check_and_ready
        service = DelayService(delay, env.disk, make_lanes(kernel=env.life % 2 == 1), clock)
        await service.listen("0.0.0.0", PORT)
        service.everywhere("g0")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.reach(BROKER, PORT))
            await service.ended()
            raise SystemExit(1)

    def _look(self, delay: Delay) -> None:
        """What came about."""
        probes, state = self._world.probes, delay.state
        probes["read_again"] = max(probes["read_again"], delay.unread)
        probes["closed"] |= state.closed_ms > 0
        probes["kept"] |= delay.courier.reading.kept.size > 0
        waiting = sum(hour.waiting for hour in state.hours.values())
        probes["paged"] |= waiting > self._settings.wheel_messages

    # -- clients -----------------------------------------------------------------------------------------------

    def _client(self, env: Env) -> Client:
        return Client(f"{BROKER}:7401", settings=self._settings_of(env))

    def _settings_of(self, env: Env) -> ClientSettings:
        rng = env.rng
        return ClientSettings(
            linger_ms=rng.choice((0, 3)),
            batch_bytes=rng.choice((500, 1 << 20)),
            send_timeout_s=rng.choice((1.0, 4.0, 30.0)),
            dead_peer_s=rng.choice((1.0, 3.0)),
            backoff_max_s=rng.choice((0.2, 2.0)),
            pull_wait_ms=rng.choice((100, 2_000)),
            random=random.Random(rng.getrandbits(64)),
            now_ms=env.clock.now_ms,
            seconds=env.clock.seconds,
            stay_awake=False,
            routes_cache=False,
            open_port=lambda _host, _port: Listing(),
        )

    async def _produce(self, env: Env) -> None:
        client = self._client(env)
        await self._opened(env, client)
        number = 0
        async with asyncio.TaskGroup() as changing:
            while not env.quiet.is_set():
                crowd = env.rng.randrange(1, CROWD_MAX) if env.rng.random() < 0.3 else 1
                bodies = [
                    b"%s.%d.%d" % (env.name.encode(), env.life, number + index) for index in range(crowd)
                ]
                number += crowd
                async with asyncio.TaskGroup() as sending:
                    sent = [sending.create_task(self._send(env, client, body)) for body in bodies]
                for body, task in zip(bodies, sent, strict=True):
                    identity = task.result()
                    if identity is not None and env.rng.random() < CHANGED:
                        changing.create_task(self._change(env, client, body, identity))
                await asyncio.sleep(env.rng.expovariate(1 / GAP_S))
        await self._ending(env, client)
        await client.close()
        self._finished.add(env.name)

    async def _opened(self, env: Env, client: Client) -> None:
        """A producer begins."""

    async def _ending(self, env: Env, client: Client) -> None:
        """A producer has sent everything."""

    async def _send(self, env: Env, client: Client, body: bytes) -> str | None:
        """The id of a message that waits for a while."""
        delay_s = env.rng.choice(DELAYS_S)
        now_ms = env.clock.now_ms()
        self._due_ms[body] = now_ms + round(1000 * max(0.0, delay_s))
        key = body.decode() if env.rng.random() < 0.5 else None
        subject = self._subjects[body] = env.rng.choice(SUBJECTS)
        try:
            receipt = await client.send(subject, body, delay=max(0.0, delay_s), timer_key=key)
        except OutcomeUnknown:
            return None  # it may come, and need not
        except TidemillError:
            return None  # it was not taken
        self._answered.add(body)
        self._told(env, body, receipt)
        return None if delay_s < 1 else receipt.id

    def _told(self, env: Env, body: bytes, receipt: Receipt) -> None:
        """It was answered."""

    async def _change(self, env: Env, client: Client, body: bytes, identity: str) -> None:
        """Cancel it or give it another time, maybe too late. Until that is answered nobody knows what becomes of it."""
        await asyncio.sleep(env.rng.uniform(0, CHANGE_S))
        target = {"identity": identity}
        if env.rng.random() < 0.5 and await self._named(client, body):
            target = {"subject": self._subjects[body], "timer_key": body.decode()}
        before = body in self._answered
        self._answered.discard(body)
        try:
            if env.rng.random() < 0.5:
                changed = await client.cancel(**target)
                if changed.changed:
                    self._cancelled.add(body)
                    self._world.probes["cancelled"] += 1
                    return
            else:
                delay_s = max(0.0, env.rng.choice(DELAYS_S))
                due_ms = env.clock.now_ms() + round(1000 * delay_s)
                self._due_ms[body], was_ms = min(due_ms, self._due_ms[body]), self._due_ms[body]
                changed = await client.reschedule(**target, delay=delay_s)
                self._due_ms[body] = due_ms if changed.changed else was_ms
                self._world.probes["moved"] += changed.changed
        except TidemillError:
            return
        self._world.probes["gone"] += changed.gone
        if before:
            self._answered.add(body)

    async def _named(self, client: Client, body: bytes) -> bool:
        """Whether it waits under its timer key."""
        try:
            timer = await client.timer(subject=self._subjects[body], timer_key=body.decode())
        except TidemillError:
            return False
        return timer is not None and timer.body == body

    async def _consume(self, env: Env) -> None:
        client = self._client(env)
        async with asyncio.TaskGroup() as consuming:
            for subject in SUBJECTS:
                consuming.create_task(self._consume_one(env, client, subject))

    async def _consume_one(self, env: Env, client: Client, subject: str) -> None:
        async with client.consume(subject, group="g") as messages:
            async for message in messages:
                self._given[message.body] += 1
                if env.clock.now_ms() >= self._owed.get(message.body, 1 << 62) - 2 * self._step_ms:
                    del self._owed[message.body]
                self._world.probes["far_came"] += DEAD_PROPERTY in message.properties
                with suppress(LeaseLost):  # then it comes again
                    if env.rng.random() < self.fails and not env.quiet.is_set():
                        await self._fail(env, message)
                    else:
                        await message.ack()

    async def _fail(self, env: Env, message: Message) -> None:
        """For longer than a broker waits, which is nothing here."""
        delay_s = env.rng.choice(FAR_S)
        settler: Any = message.origin[0]
        far, kept = settler.elsewhere._far, 0

        async def keep(*said: Any) -> int:
            nonlocal kept
            kept = await Far.keep(far, *said)
            self._world.probes["far_kept" if kept else "far_told"] += 1
            return kept

        far.beyond_ms, far.keep = 0, keep
        due_ms = env.clock.now_ms() + round(1000 * delay_s)
        self._far.setdefault(message.body, []).append(due_ms)
        try:
            await message.nack(delay=delay_s, reason="closed")
        except LeaseLost:
            if not kept:
                return  # it comes again, and may do so at any time
        self._owed[message.body] = due_ms


def make(seed: str) -> Later:
    return Later(seed)
