"""Whole clusters: three replicas of the real meta on one store, two or three broker groups, and their clients.

Everything may die, stand still, be cut off or be slow at once: a replica of meta, the store, any broker; and a person
hands masterships over in the middle of it. Nothing stands in for anything: who is master is decided by
``tidemill_meta`` alone. A ``Cell`` is one broker group with its clients, who ask meta for the master and go to no other
group. Checked besides the promises of a broker group: what ``Cell`` and ``Chronicle`` say.
"""

from __future__ import annotations

import asyncio
import json
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sim.autopsy import image_of, read_log
from sim.calls import Calls
from sim.checkers import Outcome
from sim.clients import Producing
from sim.council import Book
from sim.metas import PORT as META_PORT
from sim.metas import MetaNode, Metas, attend
from sim.replicated import KINDS, PORT, Replicated
from sim.storehouse import STORE, Storehouse
from sim.weeding import Weeding
from sim.world import Env, Phases, World
from tidemill.errors import BrokerUnreachable
from tidemill.routes import Routes, parse_routes
from tidemill_broker.attendance import BrokerAttendance
from tidemill_broker.machine import Broker
from tidemill_host.clock import Clock
from tidemill_host.lives import next_life
from tidemill_host.local import LocalPeer
from tidemill_journal.entries import row_length
from tidemill_ledger.attendance import Identity
from tidemill_ledger.following import Follower
from tidemill_ledger.replication import Master
from tidemill_meta.beats import broker_life
from tidemill_meta.settings import MetaSettings
from tidemill_meta.storing import Bulletin, Entry
from tidemill_meta.values import BrokerGroup
from tidemill_wire.appointments import Appointment
from tidemill_wire.errors import WireError
from tidemill_wire.fields import Fields
from tidemill_wire.replication import Ends, Handover

METAS = ("m1", "m2", "m3")
PERSON = "person"
GARDENER = "gardener"
CONTROL = META_PORT
HANDOVER_PATIENCE_S = 6.0
HANDOVER_EVERY_S = 2.5
GAP_S = 0.4
"""Between the sends of a producer: a run is long, for meta takes its time."""
ASKED_S = 12.0
"""So long after a person asked for it a hand-over may be done: the store was away, a replica of meta stood still."""
KNOWN_S = 1.2
"""So long after a bulletin was put up every replica that decides has read it."""
ALIKE = 0.9
"""Clocks go as fast as each other, but for less than that."""
DRIFTS = (0.0, 0.0, 0.0, 0.001, -0.001, 0.02, -0.02)
"""How much faster than time a node's clock goes. Two of a hundred is far more than a quartz does."""
MASTER_WITHIN_S = 20.0
"""After the heal every group has a master: 5 s of listening, 5 s of silence, and the ways of the news."""


class Drifting:
    """A clock that goes too fast, or too slowly."""

    def __init__(self, clock: Clock, drift: float) -> None:
        self._clock = clock
        self._drift = drift
        self._began_ms, self._began_s = clock.now_ms(), clock.seconds()

    def now_ms(self) -> int:
        passed_ms = self._clock.now_ms() - self._began_ms
        return self._began_ms + int(passed_ms * (1 + self._drift))

    def seconds(self) -> float:
        return self._began_s + (self._clock.seconds() - self._began_s) * (1 + self._drift)


@dataclass(slots=True)
class Heard:
    """What the board said first of each heartbeat of a process: when it was heard, and when that was put up."""

    beats: dict[tuple[str, int], tuple[float, float]] = field(default_factory=dict)

    def is_known(self, silence_s: float, now_s: float) -> bool:
        """Whether every replica of meta that may decide knows that it was not silent for so long."""
        return any(
            now_s - heard_s < silence_s * ALIKE and now_s - posted_s > KNOWN_S
            for heard_s, posted_s in self.beats.values()
        )


@dataclass(slots=True)
class Chronicle(Book):
    """What the store was told of a group, commit after commit. An epoch has one master, out of the set before it; of
    several changes in one commit only the last is seen.
    """

    stored: BrokerGroup | None = None
    silence_s: float = 5.0
    """Of who is dead."""
    heard: dict[str, Heard] = field(default_factory=dict)
    asked_s: float = -1e9
    """When a person asked for another master last."""

    def note(self, group: BrokerGroup, now_s: float) -> list[str]:
        before, self.stored = self.stored, group
        self.appointment = group.appointment()
        self.decided.append(self.appointment)
        if before is None or not before.master:
            return []
        at = f"{group.name} at {now_s:.6f} s"
        if group.epoch == before.epoch:
            two = group.master != before.master
            return (
                [f"two masters: {before.master}, {group.master} of epoch {group.epoch} of {at}"]
                if two
                else []
            )
        self.replaced_s.append(now_s)
        if group.epoch < before.epoch:
            return [f"epoch: {group.epoch} comes behind {before.epoch} of {at}"]
        known = group.version == before.version + 1 and not before.unsure
        if known and group.master not in dict(before.in_sync):
            return [f"out of the set: {group.master} is master, {before.in_sync} were in sync of {at}"]
        boot = dict(before.replicas)[before.master]
        # It may have been started again in the same commit: then it was replaced for that.
        if (
            before.seated
            and dict(group.replicas).get(before.master) == boot
            and now_s - self.asked_s > ASKED_S
        ):
            life = broker_life(group.name, before.master, boot)
            if life in self.heard and self.heard[life].is_known(self.silence_s, now_s):
                return [f"declared dead: {life}, of which the board said {self.heard[life]}, of {at}"]
        return []


class Cell(Replicated):
    """One broker group. What was answered is in the log of each later master when it begins; a slave shows nothing that
    no master has committed; who is handed over to has all.
    """

    def __init__(self, seed: str, group: str) -> None:
        super().__init__(f"{seed}/{group}", f"{group}-")
        self.group = group
        self.settings = replace(self.settings, meta=",".join(METAS))
        self._producers = self._producers[:1]
        self._consumers = self._consumers[:1]
        self.clients = (*self._producers, *self._consumers)
        self.chronicle = self.book = Chronicle(Appointment(group, 0, "", (), (), 0))
        self.led_at_s: float | None = None
        """When the group was served by a master again, after the heal."""
        self._drift = {name: random.Random(f"{seed}/drift/{name}").choice(DRIFTS) for name in self.servers}
        self._routes_rng = random.Random(f"{seed}/routes/{group}")
        self._identities: dict[str, Identity] = {}
        self._committed = 0
        """Up to where a master has said that the message log is committed."""
        self._looked: dict[str, tuple[Ends, Ends]] = {}
        """Of each slave, where its logs ended when it was looked at."""
        self._calls: Calls

    def furnish(self, world: World, calls: Calls) -> None:
        """Its nodes, in a world."""
        self._world = self.world = world
        self._calls = self.calls = calls
        for name in self.servers:
            world.add_server(name, self._serve)
        for name in self._producers:
            world.add_client(name, Producing(self, GAP_S).run)
        for name in self._consumers:
            world.add_client(name, self._consuming(name).run)

    async def fetch(self) -> Routes:
        """Whom clients go to: as meta says, whichever replica answers."""
        metas = Metas(self._calls, METAS, self._routes_rng)
        for _ in METAS:
            try:
                status, answer = await metas.ask("GET", "/v1/routes", {})
            except OSError:
                metas.turn_away()
                continue
            if status == 200:
                found = tuple(one for one in parse_routes(answer, "") if one.group == self.group)
                if found:
                    return found
            metas.turn_away()
        raise BrokerUnreachable("no replica of meta knows a master")

    def is_led(self) -> bool:
        """Somebody serves as the master that is stored."""
        said = self.chronicle.appointment
        service = self.running.get(said.master)
        machine = service.machine if service is not None else None
        return isinstance(machine, Master) and machine.appointment.epoch == said.epoch

    # -- a server ----------------------------------------------------------------------------------------------

    async def _serve(self, env: Env) -> None:
        env = replace(env, clock=Drifting(env.clock, self._drift[env.name]))
        life = next_life(env.disk, env.clock.now_ms(), lambda: f"{env.name}.{env.life}")
        data, control = f"{env.name}:{PORT}", f"{env.name}:{CONTROL}"
        self._identities[env.name] = Identity(self.group, env.name, life.boot, data, control, life.folder)

        async def answer(to: str) -> int:
            return await self._hand_over(env, to)

        self._calls.listen(CONTROL, answer)
        await super()._serve(env)

    async def _attend(self, env: Env, local: LocalPeer) -> None:
        metas = Metas(self._calls, METAS, env.rng)
        await attend(self.running[env.name], local, BrokerAttendance(self._identities[env.name]), metas)

    async def _hand_over(self, env: Env, to: str) -> int:
        """What ``doors/replicas.py`` does; the status."""
        service = self.running.get(env.name)
        if service is None:
            return 503
        peer = LocalPeer(service.server, lambda _answer: None)
        try:
            await peer.ask(Handover(Fields.of({"to": to}).text("to", 200)))
        except WireError:
            return 503
        finally:
            peer.close()
        self._check_left(service.machine, to)
        return 200

    def _check_left(self, left: Any, to: str) -> None:
        service = self.running.get(to)
        slave = service.machine if service is not None else None
        if not isinstance(slave, Follower) or slave.part.epoch != left.appointment.epoch:
            return  # it died meanwhile, or is something else already
        leaving = left._leaving
        if leaving is None or leaving.left is None:
            return  # the answer came so late that it goes on as master
        if any(have < need for have, need in zip(slave.ends, leaving.left, strict=True)):
            self.problems.append(f"left early: {to} has {slave.ends}, {left.name} had {leaving.left}")

    def _begins(self, broker: Broker, env: Env) -> None:
        """Whatever was answered and is not excused lies in the log of who becomes master."""
        terms, disk = self._terms(), image_of(env.disk.disk).mount()
        there = {body.partition(b"|")[0].decode(errors="replace") for _, _, body in read_log(disk, broker)}
        self.problems += [
            f"lost: {send.message} ({send.promise.value}, answered at {send.ended_s:.6f} s) is not with {env.name}, "
            f"master from {env.loop.now:.6f} s on"
            for send in self.history.sends.values()
            if send.outcome is Outcome.OK
            and send.message not in there
            and not terms.may_be_lost(send.promise, send)
        ]

    def _note_commit(self, machine: Master, name: str) -> None:
        super()._note_commit(machine, name)
        self._committed = max(self._committed, machine.committed.message)

    def _note_slave(self, machine: Follower) -> None:
        now = machine.ends, machine.committed
        if self._looked.get(machine.name) == now:
            return
        self._looked[machine.name] = now
        for partition in machine.inner.state.partitions.values():
            rows, last = partition.recent, partition.visible - 1
            if len(rows) and last >= rows.firsts[0]:
                # What a power cut took has no row, and keeps its number.
                place = min(rows.find(last), len(rows) - 1)
                end = rows.positions[place] + row_length(rows.sizes[place])
                if end > self._committed:
                    self._committed = end  # said once
                    self.problems.append(
                        f"shown early: {machine.name} shows {partition.name}/{last}, which is not committed"
                    )


class Whole:
    """The scenario."""

    meta: type[MetaNode] = MetaNode
    cell: type[Cell] = Cell
    last_cell: type[Cell] | None = None  # of the one that the gardener is at; as the others are
    gardener: Callable[[Any, Sequence[str]], Any] = Weeding
    kinds = KINDS
    guests: Sequence[Cell] = ()  # broker groups that are not looked at as the others are
    probes = (
        "failovers", "truncations", "wished_in", "wished_out", "hand_overs", "left",
        "lost_answers", "weeded",
    )  # fmt: skip

    def __init__(self, seed: str) -> None:
        rng = random.Random(f"{seed}/whole")
        self.phases = Phases(warm_up_s=2.0, faults_s=rng.choice((6.0, 10.0)), drain_max_s=200.0)
        names = [f"g{number}" for number in range(rng.choice((2, 2, 2, 3)))]
        self.cells = [self.cell(seed, name) for name in names[:-1]]
        self.cells.append((self.last_cell or self.cell)(seed, names[-1]))
        silence_ms = rng.choice((3_000, 5_000))
        self._settings = MetaSettings(
            liveness_ms=silence_ms,
            lease_ms=silence_ms,
            behind_ms=rng.choice((1_000, 5_000)),
            exchange_ms=rng.choice((250, 400)),
        )
        for cell in self.cells:
            cell.chronicle.silence_s = silence_ms / 1000
        self._hands_over = rng.random() < 0.6
        self._weeding = self.gardener(self.cells[-1], METAS)
        lost_answers = rng.choice((0.0, 0.0, 0.05, 0.3))
        self._house = Storehouse(lambda: self._calls, self._witness, self._posted, lost_answers)
        self.servers = (*(name for cell in self.cells for name in cell.servers), *METAS, STORE)
        self.clients = (*(name for cell in self.cells for name in cell.clients), PERSON, GARDENER)
        self._world: World
        self._calls: Calls

    def build(self, world: World) -> None:
        self._world = world
        self._calls = Calls(world.network)
        world.add_server(STORE, self._house.serve)
        for name in METAS:
            world.add_server(name, self.meta(self._settings, self._calls).serve)
        for cell in self.cells:
            cell.furnish(world, self._calls)
        world.add_client(PERSON, self._person)
        world.add_client(GARDENER, self._weeding.run)

    def drained(self) -> bool:
        for cell in self.cells:
            if cell.led_at_s is None and cell.is_led():
                cell.led_at_s = self._world.now_s
        return self._weeding.finished and all(cell.drained() for cell in self.cells)

    def check(self, world: World) -> list[str]:
        problems = self._weeding.check(world)
        healed_s = world.healed_at_s or 0.0
        for cell in self.cells:
            problems += cell.check(world)
            if cell.led_at_s is None or cell.led_at_s - healed_s > MASTER_WITHIN_S:
                problems.append(
                    f"no master: {cell.group}, {MASTER_WITHIN_S} s after the heal, {cell.led_at_s}"
                )
        return problems

    def _witness(self, entries: Sequence[Entry], now_s: float) -> None:
        self._weeding.witness(entries, now_s)
        for entry in entries:
            if entry.kind == BrokerGroup.KIND and entry.body is not None:
                group = BrokerGroup.from_map(entry.name, entry.version, entry.body)
                [cell] = [cell for cell in self.cells if cell.group == group.name]
                cell.problems += cell.chronicle.note(group, now_s)

    def _posted(self, bulletin: Bulletin, made_s: float, now_s: float) -> None:
        said = json.loads(zlib.decompress(bulletin.body))
        for life, _, at_ms, left in said["brokers"]:
            if left:
                continue
            for cell in self.cells:
                if life.startswith(f"{cell.group}/"):
                    heard = cell.chronicle.heard.setdefault(life, Heard())
                    heard_s = made_s - (said["made"] - at_ms) / 1000
                    heard.beats.setdefault((bulletin.replica, at_ms), (heard_s, now_s))

    # -- a person ----------------------------------------------------------------------------------------------

    async def _person(self, env: Env) -> None:
        """Hands masterships over, as ``docs/replication.md`` says, or without telling the master before."""
        metas = Metas(self._calls, METAS, env.rng)
        while self._hands_over and not env.quiet.is_set():
            await asyncio.sleep(env.rng.expovariate(1 / HANDOVER_EVERY_S))
            try:
                await self._hand_over(env, metas)
            except OSError:
                metas.turn_away()

    async def _hand_over(self, env: Env, metas: Metas) -> None:
        status, rows = await metas.ask("GET", "/v1/brokers", {})
        led = [row for row in rows if row["master"] and len(row["in_sync"]) > 1] if status == 200 else []
        if not led:
            return
        row = env.rng.choice(led)
        to = env.rng.choice([name for name in row["in_sync"] if name != row["master"]])
        if env.rng.random() < 0.8:
            if await self._calls.ask(row["master"], CONTROL, to, HANDOVER_PATIENCE_S) != 200:
                return
            self._world.probes["left"] += 1
        [cell] = [cell for cell in (*self.cells, *self.guests) if cell.group == row["group"]]
        cell.chronicle.asked_s = self._world.now_s
        body = {"to": to, "epoch": row["epoch"]}
        status, _ = await metas.ask("POST", f"/v1/groups/{row['group']}/handover", body)
        self._world.probes["hand_overs"] += status == 200


def make(seed: str) -> Whole:
    return Whole(seed)
