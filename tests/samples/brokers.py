"""A broker on a simulated disk with a host of a few lines. ``check()`` of the broker runs after every step."""

from __future__ import annotations

import random
from collections.abc import Sequence

from samples.batches import CREATED_MS
from samples.hosting import Hosting
from sim.disk import SimDisk
from sim.weather import Weather
from tidemill_broker.doors import recover
from tidemill_broker.settings import BrokerSettings
from tidemill_host.machine import Peer
from tidemill_wire.batch import Origin
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Command, Failed, Pull, Pulled, SendBatches, Sent
from tidemill_wire.connection import Received

NOW_MS = CREATED_MS + 1_000_000
SUBJECT = "order.created"
TINY = BrokerSettings(
    durability="low", segment_bytes=1024, action_segment_bytes=4096, lease_ms=1000, low_sync_interval_ms=500
)
"""Six one-message batches of a few bytes a segment, and no sync that nobody asks for."""
CALM = Weather(ordered_names=True)


def batch_of(
    *bodies: bytes,
    subject: str = SUBJECT,
    producer: int = 1,
    sequence: int = 0,
    content: Content | None = None,
    priority: int = 0,
) -> bytearray:
    batch_id = producer.to_bytes(8, "big") + sequence.to_bytes(8, "big")
    origin = Origin(subject.encode(), producer, sequence, batch_id, CREATED_MS, priority=priority)
    return build_batch(origin, content or Content(list(bodies)))


def empty_disk(seed: int = 1, weather: Weather = CALM) -> SimDisk:
    return SimDisk(random.Random(seed), weather)


def put_file(disk: SimDisk, name: str, content: bytes) -> None:
    """A file as if it had always been there: cached, durable, name and all. It replaces one of that name."""
    names = disk.names
    folder = name.rpartition("/")[0]
    names.make_folder(folder)
    inode = names.cached.get(name) or names.link(name)
    inode.cached, inode.durable = bytearray(content), bytearray(content)
    inode.dirty.clear()
    names.sync(folder)
    names.sync("")


def read_file(disk: SimDisk, name: str) -> bytes:
    return bytes(disk.names.cached[name].cached)


def remove_file(disk: SimDisk, name: str) -> None:
    disk.names.unlink(name)
    disk.names.sync(name.rpartition("/")[0])


def files_of(disk: SimDisk, folder: str) -> list[str]:
    return sorted(name for name in disk.names.cached if name.startswith(folder + "/"))


def copy_of(disk: SimDisk, seed: int = 1) -> SimDisk:
    """Another disk with what the first one's page cache holds, all of it durable."""
    other = empty_disk(seed, disk.weather)
    for name in disk.names.cached:
        put_file(other, name, read_file(disk, name))
    return other


class Rig(Hosting):
    """Lives of one broker on one disk."""

    def __init__(
        self, settings: BrokerSettings = TINY, disk: SimDisk | None = None, now_ms: int = NOW_MS
    ) -> None:
        self.settings = settings
        super().__init__(disk or empty_disk(), now_ms)
        self._correlation = 0
        self.sent_batches = 0
        self.start()

    def start(self) -> None:
        """A life begins. What the one before it held in memory is gone."""
        self.broker, self.report = recover(self.disk.mount(), self.settings, self.now_ms)
        self.begin_life(self.broker)
        self.peers: list[Peer] = []
        self.connect()
        self.pump()

    def restart(self) -> None:
        """The process is killed; the page cache stays."""
        self.disk.kill()
        self.start()

    def power_cut(self) -> None:
        self.disk.power_cut()
        self.start()

    def connect(self) -> Peer:
        peer = Peer(len(self.peers) + 1)
        self.peers.append(peer)
        self.broker.connected(peer, self.now_ms)
        return peer

    def disconnect(self, peer: Peer) -> None:
        self.broker.disconnected(peer, self.now_ms)
        self.pump()

    def ask(self, command: Command, peer: int = 1) -> Command | None:
        """The answer, ``None`` when there is none yet. ``answers`` has it later, under ``correlation``."""
        self._correlation += 1
        self.broker.received(Peer(peer), Received(self._correlation, command), self.now_ms)
        self.pump()
        return self.answers.pop(self.correlation, None)

    @property
    def correlation(self) -> int:
        """That of the last command."""
        return self._correlation

    def send(self, *bodies: bytes, subject: str = SUBJECT, priority: int = 0) -> Sent:
        """One batch of a producer that counts."""
        self.sent_batches += 1
        number = self.sent_batches
        batch = batch_of(*bodies, subject=subject, producer=99, sequence=number, priority=priority)
        answer = self.ask(SendBatches(batch))
        assert isinstance(answer, Sent), answer
        return answer

    def fill(self, count: int, subject: str = SUBJECT) -> None:
        """So many batches of one message; six fill a segment of ``TINY``."""
        for _ in range(count):
            self.send(b"tide", subject=subject)

    def pull(
        self,
        messages: int = 1000,
        *,
        consumer: str = "c",
        group: str = "g",
        subjects: Sequence[str] = (SUBJECT,),
        size: int = 1 << 20,
        start: int = -1,
        peer: int = 1,
    ) -> Pulled:
        """A pull that does not wait."""
        answer = self.ask(Pull(group, consumer, subjects, messages, size, 0, start), peer)
        if answer is None:  # a read had to come first
            answer = self.answers.pop(self.correlation)
        assert isinstance(answer, Pulled), answer
        return answer

    def refused(self, command: Command, peer: int = 1) -> int:
        """The number of the error that answers a command."""
        answer = self.ask(command, peer)
        assert isinstance(answer, Failed), answer
        return answer.number


def spans(pulled: Pulled) -> list[tuple[int, int, int]]:
    """First sequence, count and attempts of each grant."""
    return [(grant.first_sequence, grant.count, grant.attempts) for grant in pulled.grants]


def pulls(pulled: Pulled) -> list[int]:
    """All that was granted, as ranges of pull sequences."""
    return [
        number
        for grant in pulled.grants
        for number in (grant.pull_sequence, grant.pull_sequence + grant.count - 1)
    ]
