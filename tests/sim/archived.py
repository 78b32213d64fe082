"""The cluster with subjects that are kept until an archive has them, and an archivist that reads, comes late, and dies.

Retention is short, so everything is too old soon. What the archivist has noted as archived it never asks for again:
nothing may be dropped before that, in no life of the broker, and a sequence that was archived means the same message
for ever, whatever power cuts take. The action log is archived besides, each action once (``booked.py``).
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from sim.autopsy import NOW_MS, image_of
from sim.booked import Books
from sim.cluster import SERVER, Cluster, declare_subjects
from sim.retention import Retention
from sim.world import Env, World
from tidemill_broker.doors import recover
from tidemill_broker.doors.service import Service
from tidemill_broker.machine import Broker
from tidemill_broker.partitions import Partition, StoredRun
from tidemill_broker.stretches import readable
from tidemill_journal.entries import row_count
from tidemill_journal.errors import JournalError
from tidemill_wire.declarations import Declaration, Subject

ARCHIVIST = "archivist"
LOOK_S = 0.3


class Guard(Retention):
    """Judges besides whether what is dropped is archived."""

    def __init__(self, cluster: WithArchive) -> None:
        super().__init__(cluster.history, cluster.problems)
        self._cluster = cluster

    def _judge(self, broker: Broker, partition: Partition, stored: StoredRun, now_s: float) -> None:
        super()._judge(broker, partition, stored, now_s)
        end, archived = stored.run.end_sequence, self._cluster.archived.get(partition.name, 0)
        if partition.settings.archived is not None and end > archived:
            self._cluster.problems.append(
                f"dropped: {partition.name} up to {end}, of which {archived} are archived"
            )


class WithArchive(Cluster):
    """See the module."""

    probes = (
        *("retention_drops", "archived", "held_for_the_archive", "archived_over_a_restart"),
        *("books_kept", "books_died", "books_late", "books_gaps", "books_compared"),
    )

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        rng = random.Random(f"{seed}/archived")
        self.settings = replace(
            self.settings, retention_seconds=rng.choice((1, 2)), segment_bytes=rng.choice((1_000, 5_000))
        )
        self.archived: dict[str, int] = {}
        """By partition, the sequence below which the archivist has all."""
        self.retention = Guard(self)
        self._seen: dict[tuple[str, int], tuple[int, int]] = {}
        """What was archived: partition and first sequence of a batch, when it was stored and how many it holds."""
        self._service: Service | None = None
        self._books: Books

    def build(self, world: World) -> None:
        super().build(world)
        self._books = Books(self._seed, self.problems, world.probes)
        world.add_client(ARCHIVIST, self._archive)
        self.clients = (*self.clients, ARCHIVIST)

    def _declared(self) -> list[Declaration]:
        found: list[Declaration] = []
        for one in declare_subjects():
            assert isinstance(one, Subject)
            retention = replace(one.spec.retention, archive="Required")
            found.append(replace(one, spec=replace(one.spec, retention=retention)))
        return found

    def _opened(self, service: Service, env: Env) -> None:
        super()._opened(service, env)
        if any(one.settings.archived for one in service.broker.state.by_name.values()):
            self.note("archived_over_a_restart")
        for partition in service.broker.state.by_name.values():
            self._compare(partition)
        self._service = service

    async def _archive(self, env: Env) -> None:
        """Reads what may be read, and says so a while later; or dies in between, and has it all the same."""
        while True:
            await asyncio.sleep(env.rng.expovariate(1 / LOOK_S))
            service = self._service
            if service is None or service.failed.done() or self._last is not service.broker:
                continue
            self._look(service.broker, env.clock.now_ms())
            disk = image_of(self._world.nodes[SERVER].disk).mount()
            self._books.look(service.broker, disk, service.broker.logs.synced_action_position)
            await asyncio.sleep(env.rng.expovariate(1 / LOOK_S))
            if not service.failed.done() and self._last is service.broker:
                service.broker.archiving.obey(list(self.archived.items()), (), env.clock.now_ms())
                service.turn.start()

    def check(self, world: World) -> list[str]:
        problems = super().check(world)
        disk = image_of(world.nodes[SERVER].disk).mount()
        try:
            broker, _ = recover(disk, self.settings, NOW_MS)
        except JournalError:
            return problems  # which say so
        self._books.check(broker, disk)
        return [*problems, *(one for one in self.problems if one not in problems)]

    def _look(self, broker: Broker, now_ms: int) -> None:
        logs = broker.logs
        for partition in broker.state.by_name.values():
            if partition.settings.archived is None:
                continue
            self._compare(partition)
            before = self.archived.get(partition.name, 0)
            end = readable(partition, logs.messages, logs.synced_message_position)
            oldest = partition.runs[0].run if partition.runs else None
            if (
                oldest is not None
                and oldest.last_stored_at_ms + 3_000 < now_ms
                and oldest.end_sequence > before
            ):
                self.note("held_for_the_archive")
            if end <= before:
                continue
            self.archived[partition.name] = end
            self.note("archived")
            rows = partition.recent
            for first, size, stamp in zip(rows.firsts, rows.sizes, rows.stamps, strict=True):
                if before <= first < end:
                    self._seen[partition.name, first] = stamp, row_count(size)

    def _compare(self, partition: Partition) -> None:
        """A sequence that was archived is still that of the same batch."""
        rows = partition.recent
        for first, size, stamp in zip(rows.firsts, rows.sizes, rows.stamps, strict=True):
            known = self._seen.get((partition.name, first))
            if known is not None and known != (stamp, row_count(size)):
                self.problems.append(f"{partition.name}/{first} was archived, and is another message now")


def make(seed: str) -> WithArchive:
    return WithArchive(seed)
