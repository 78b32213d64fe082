"""A broker that asks producers who they are: what they may send comes and goes, and how much of it is bounded.

    a send that was answered        is as durable as any other, and reaches every group
    one that was told to wait       is stored by the same call, or told as not stored
    one that was refused            is nowhere, whatever was granted when it was sent first
    one in doubt                    was sent, and not answered: whatever was said when it was sent again

Messages with an order key lie in the order in which they were handed in, however often some of them had to wait. Only
producers show who they are here; consumers are judged in ``test_access.py``. In the end all is granted again, and so
little is left to wait for that everybody finishes.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from sim.checkers import Outcome, Send, ended, place_of
from sim.clients import Producing, draw_client
from sim.cluster import SUBJECTS, Cluster
from sim.world import Env, World
from tidemill import Client
from tidemill.errors import BrokerUnreachable, OutcomeUnknown, Refused, Unavailable
from tidemill_broker.doors import Service
from tidemill_wire.access import Access, Charter, Operation, Permission, TokenRow, digest_of
from tidemill_wire.declarations import API_VERSION, Declaration, parse_manifest
from tidemill_wire.guarding import Gate, Guard
from tidemill_wire.quotas import UNBOUNDED, Quota, Rates

KEYS = ("k1", "k2")
GAP_S = 0.3
"""Between two sends: what waits is looked at often, which costs."""
MEMORY_BYTES = 1 << 20
TURN_S = 0.4
"""For so long a grant stands, or is away, about."""


class Asking(Gate):
    """Asks whoever shows something."""

    def admit(self, token: str, names: Sequence[str], now_ms: int) -> Guard | None:
        return super().admit(token, names, now_ms) if token else None


class Guarded(Producing):
    """A producer that may be refused, and sends some messages with order keys."""

    def __init__(self, granted: Granted) -> None:
        super().__init__(granted, GAP_S)
        self._granted = granted

    def _client(self, env: Env) -> Client:
        return draw_client(env, self._cluster.fetch, token=token_of(env.name))

    async def _send(self, env: Env, client: Client) -> None:
        key = env.rng.choice(KEYS)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super()._send(env, client))
            tasks.create_task(self._in_order(env, client, f"{env.name}/{key}/{env.rng.getrandbits(32)}"))

    async def _in_order(self, env: Env, client: Client, key: str) -> None:
        """Several at once, again and again; the next ones when all of these are answered for."""
        while not env.quiet.is_set():
            subject = env.rng.choice(tuple(SUBJECTS))
            sends = [self._new(env, subject, key) for _ in range(env.rng.randrange(1, 5))]
            for send in sends:
                send.priority = 0
            if client.settings.memory_bytes_max < MEMORY_BYTES:  # who waits for room waits in no order
                for send in sends:
                    await self._told(env, client, send, order_key=key)
            else:
                await asyncio.gather(*(self._told(env, client, send, order_key=key) for send in sends))
            await asyncio.sleep(env.rng.expovariate(1.0 / self._gap_s))

    async def _one(self, env: Env, client: Client) -> None:
        subject = env.rng.choice(self._subjects(env))
        await self._told(env, client, self._new(env, subject, env.rng.choice(("", "key"))))

    async def _told(self, env: Env, client: Client, send: Send, order_key: str | None = None) -> None:
        """Send it, and write down what is said of it."""
        note = self._cluster.note
        if order_key is not None:
            self._granted.rows[order_key, send.subject].append(send)
        try:
            receipt = await client.send(
                send.subject, send.body, key=send.key or None, priority=send.priority, order_key=order_key
            )
        except OutcomeUnknown as error:
            ended(send, Outcome.UNKNOWN, env.loop.now)
            if "was not granted" in str(error):
                note("denied_in_doubt")
        except (Refused, Unavailable, BrokerUnreachable) as error:
            ended(send, Outcome.FAILED, env.loop.now)
            if isinstance(error, BrokerUnreachable):
                return
            if isinstance(error, Refused) and error.kind.name != "forbidden":
                self._cluster.problems.append(f"refused: {send.message}: {error}")
            note("over_quota" if error.kind.name == "over_quota" else "refused")
        else:
            send.place = place_of(send.subject, receipt.sequence)
            ended(send, Outcome.OK, env.loop.now)

    async def _crowd(self, env: Env, client: Client, subjects: Sequence[str]) -> None:
        """One by one: of each it is to be known what became of it."""
        await asyncio.gather(*(self._told(env, client, self._new(env, subject)) for subject in subjects))


class Granted(Cluster):
    """See the module."""

    probes = ("denied_in_doubt", "grants_gone", "over_quota", "refused", "told_to_wait")

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        rng = random.Random(f"{seed}/granted")
        self.phases = replace(self.phases, faults_s=2.0)
        self.settings = replace(self.settings, free_space_min_percent=0)
        self.rows: defaultdict[tuple[str, str], list[Send]] = defaultdict(list)
        """Of each order key in each subject, as they were handed in."""
        self._access = Access(locked=True)
        self._names = list(self._producers)
        self._quotas = {
            who_of(name): Quota(Rates(rng.choice((0, 8, 25)), rng.choice((0, 4_000, 20_000))))
            for name in self._names
        }
        self._bounds = {name: rng.choice((0, 0, 6, 20)) for name in SUBJECTS}
        self._away: set[str] = set()
        """Those who may send nothing now."""
        self._version = 0

    def build(self, world: World) -> None:
        super().build(world)
        for name in self._names:
            world.nodes[name].serve = Guarded(self).run
        self._obey()

    def _declared(self) -> list[Declaration]:
        return [
            parse_manifest(
                {
                    "apiVersion": API_VERSION,
                    "kind": "Subject",
                    "metadata": {"name": name},
                    "spec": {
                        "config": [{"name": "durability", "value": promise.value}],
                        **(
                            {"quota": {"messagesPerSecond": self._bounds[name]}} if self._bounds[name] else {}
                        ),
                    },
                }
            )
            for name, promise in SUBJECTS.items()
        ]

    def _obey(self) -> None:
        send = (Permission(frozenset({Operation.SEND}), ("*",)),)
        grants = {who_of(name): send for name in self._names if name not in self._away}
        tokens = {digest_of(token_of(name)): name for name in self._names}
        rows = {digest: TokenRow(name, who_of(name), digest, 0) for digest, name in tokens.items()}
        self._version += 1
        quotas = {who: quota for who, quota in self._quotas.items() if quota is not UNBOUNDED}
        self._access.obey(Charter(self._version, grants, rows, quotas))

    def _opened(self, service: Service, env: Env) -> None:
        self._access.usage = type(self._access.usage)()  # what was used is known to one life
        self._obey()
        service.server.gate = Asking(self._access)
        task = env.loop.create_task(self._govern(service, env))
        service.failed.add_done_callback(lambda _: task.cancel())

    async def _govern(self, service: Service, env: Env) -> None:
        """Grants come and go while the world is out of order, and stand from then on."""
        while not env.quiet.is_set():
            await asyncio.sleep(env.rng.expovariate(1.0 / TURN_S))
            name = env.rng.choice(self._names)
            self._away ^= {name}
            self._world.probes["grants_gone"] += name in self._away
            self._obey()
            service.server.judge_again()
        self._away.clear()
        self._obey()
        counted = service.broker.intake.quotas.told_to_wait.rows("others")
        self._world.probes["told_to_wait"] += sum(number for _, number in counted)

    def check(self, world: World) -> list[str]:
        problems, terms = super().check(world), self._terms()
        for (key, subject), sends in self.rows.items():
            stored = [send for send in sends if send.outcome is Outcome.OK]
            problems += [
                f"order: {two.message} lies at {two.place}, before {one.message} of {key} in {subject} at {one.place}"
                for one, two in pairwise(stored)
                if sequence_of(two) < sequence_of(one) and not terms.may_be_lost(one.promise, one)
            ]
        return problems


def sequence_of(send: Send) -> int:
    return int(send.place.rpartition("/")[2] or -1)


def token_of(name: str) -> str:
    """What a producer shows."""
    return f"the token of {name}"


def who_of(name: str) -> str:
    """Who it is."""
    return f"token:{name}"


def make(seed: str) -> Granted:
    return Granted(seed)
