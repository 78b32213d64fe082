"""A broker group without a loop: real machines on simulated disks, frames handed from one to the other by the test.

A ``Replica`` is what a process is: it begins as its part says, and begins anew when its machine asks for that. A
``Group`` connects slaves to masters and carries frames until nobody says anything any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from samples.batches import CREATED_MS
from samples.brokers import SUBJECT, batch_of, copy_of, empty_disk, files_of, read_file
from samples.hosting import Hosted, Hosting
from sim.disk import SimDisk
from tidemill_broker.doors import machine_for, recover
from tidemill_broker.settings import BrokerSettings
from tidemill_host.machine import HOST, Peer
from tidemill_ledger.following import Follower
from tidemill_ledger.membership import FENCED, Part, Role, part_of
from tidemill_wire.appointments import Appointment
from tidemill_wire.commands import Command, Pull, Pulled, SendBatches, Sent, Welcome
from tidemill_wire.connection import Received
from tidemill_wire.replication import Appoint, Begin, Chunk, Stand, Stood

NOW_MS = CREATED_MS + 1_000_000
CLIENT = Peer(1)
LINK = Peer(100)
"""The first peer that is another replica."""


def settings_of(name: str, **more: object) -> BrokerSettings:
    return BrokerSettings(name=name, replicated=True, durability="normal", **more)  # type: ignore[arg-type]


class Replica(Hosting):
    """One process after the other on one disk."""

    def __init__(self, name: str, disk: SimDisk | None = None, **more: object) -> None:
        self.name = name
        self.settings: Any = self.settings_as(**more)
        super().__init__(disk or empty_disk(), NOW_MS)
        self.lives = 0
        self.begin(FENCED)

    def begin(self, part: Part) -> None:
        """A process, or another machine in it."""
        self.lives += 1
        self.part = part
        self.begin_life(self.machine_of(part))
        self.sent: list[tuple[Peer, Command]] = []
        self._correlation = 0
        self.turned: Begin | None = None
        self.machine.connected(CLIENT, self.now_ms)
        self.pump()

    def settings_as(self, **more: object) -> object:
        """What it is started with."""
        return settings_of(self.name, **more)

    def machine_of(self, part: Part) -> Hosted:
        """What lies on the disk, with that part."""
        self.broker, self.report = recover(self.disk.mount(), self.settings, self.now_ms, part)
        return machine_for(self.broker, part, self.now_ms) or self.broker

    def restart(self) -> None:
        """kill -9, and again."""
        self.disk.kill()
        self.begin(FENCED)

    def power_cut(self) -> None:
        self.disk.power_cut()
        self.begin(FENCED)

    def say(self, command: Command, peer: Peer = CLIENT) -> int:
        """A command arrives; the number of its answer."""
        self._correlation += 1
        self.machine.received(peer, Received(self._correlation, command), self.now_ms)
        self.pump()
        return self._correlation

    def say_as(self, correlation: int, command: Command, peer: Peer) -> None:
        """An answer arrives."""
        self.machine.received(peer, Received(correlation, command), self.now_ms)
        self.pump()

    def ask(self, command: Command) -> Command | None:
        number = self.say(command)
        return self.answers.pop(number, None)

    def appoint(self, appointment: Appointment) -> Command | None:
        return self.ask(Appoint(appointment, dict.fromkeys(appointment.replicas, "somewhere:1")))

    def stand(self, *, asks: bool = False) -> Stood:
        stood = self.ask(Stand(asks))
        assert isinstance(stood, Stood)
        return stood

    def send(self, *bodies: bytes, number: int, subject: str = SUBJECT, producer: int = 9) -> int:
        """One batch; the number of its answer."""
        return self.say(SendBatches(batch_of(*bodies, subject=subject, producer=producer, sequence=number)))

    def sent_at(self, number: int) -> list[int] | None:
        """The first sequences that a SEND was answered with; ``None`` as long as there is no answer."""
        answer = self.answers.get(number)
        if answer is None:
            return None
        assert isinstance(answer, Sent), answer
        return list(answer.first_sequences)

    def tick(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.machine.ticked(self.now_ms)
        self.pump()

    def pump(self) -> None:
        while ready := self.machine.ready():
            self.carry_out(ready)
        if self.turned is None:
            self.machine.check()

    def left(self, peer: Peer, correlation: int, command: Command) -> None:
        if peer == HOST:
            assert isinstance(command, Begin)
            self.turned = command
        elif peer == CLIENT:
            self.answers[correlation] = command
        else:
            self.sent.append((peer, command))

    def log(self, folder: str) -> dict[str, bytes]:
        """The segments of a log, as the page cache has them."""
        return {file: read_file(self.disk, file) for file in files_of(self.disk, folder)}

    def copy(self) -> Replica:
        """Another replica of that name on a copy of the disk."""
        return type(self)(self.name, copy_of(self.disk))


Kind = TypeVar("Kind", bound=Replica)


class Group(Generic[Kind]):
    """Replicas, and the connections between them."""

    def __init__(self, *names: str, kind: type[Kind] = Replica, **more: object) -> None:  # type: ignore[assignment]
        self.replicas = {name: kind(name, **more) for name in names}
        self.links: dict[str, tuple[str, Peer]] = {}
        """Slave -> master, and the number that both sides know the connection by."""
        self.cut: set[str] = set()
        """Slaves that cannot reach anybody."""
        self.passes: Callable[[str, Command], bool] = lambda _target, _command: True
        """Whether a frame for a replica arrives; what does not waits."""
        self._waiting: list[tuple[str, Peer, Command]] = []
        self._next = LINK

    def __getitem__(self, name: str) -> Kind:
        return self.replicas[name]

    def appoint(
        self, epoch: int, master: str, in_sync: Sequence[str], version: int = 0, to: str = ""
    ) -> None:
        """What meta says, to all or to one of them; then they do what they are."""
        names = tuple(self.replicas)
        appointment = Appointment("g", epoch, master, names, tuple(in_sync), version)
        for name in [to] if to else names:
            self.replicas[name].appoint(appointment)
        self.run()

    def pull(self, name: str, consumer: str = "c", group: str = "g") -> Pulled:
        """What a consumer is given by a master."""
        number = self[name].say(Pull(group, consumer, [SUBJECT], 1000, 1 << 20, 0, -1))
        self.run()
        answer = self[name].answers.pop(number)
        assert isinstance(answer, Pulled), answer
        return answer

    def run(self) -> None:
        """Until nobody has anything to say."""
        while self._turn_over() or self._connect() or self._carry():
            pass

    def break_off(self, after: int) -> list[Chunk]:
        """So many pieces of logs and copies arrive from now on, and nothing behind them; those that were sent."""
        seen: list[Chunk] = []

        def passes(_target: str, command: Command) -> bool:
            if isinstance(command, Chunk):
                seen.append(command)
            return len(seen) <= after

        self.passes = passes
        return seen

    def restart(self, name: str, *, power: bool = False) -> None:
        """The process of a replica ends, and another one begins."""
        self._unlink(name)
        if power:
            self.replicas[name].power_cut()
        else:
            self.replicas[name].restart()

    def tick(self, milliseconds: int) -> None:
        for replica in self.replicas.values():
            replica.tick(milliseconds)
        self.run()

    def _turn_over(self) -> bool:
        turned = [one for one in self.replicas.values() if one.turned is not None]
        for replica in turned:
            assert replica.turned is not None
            part = part_of(replica.name, replica.turned)
            self._unlink(replica.name)
            replica.disk.kill()
            replica.begin(part)
        return bool(turned)

    def _connect(self) -> bool:
        made = False
        for replica in self.replicas.values():
            appoint = replica.part.appoint
            if not isinstance(replica.machine, Follower) or appoint is None or replica.name in self.cut:
                continue
            master = self.replicas[appoint.appointment.master]
            if replica.part.role is Role.SLAVE and replica.name not in self.links:
                self._next = peer = Peer(self._next + 1)
                self.links[replica.name] = (master.name, peer)
                master.machine.connected(peer, master.now_ms)
                replica.machine.connected(peer, replica.now_ms)
                replica.say(Welcome(1, master.name, 0), peer)
                made = True
        return made

    def _unlink(self, name: str) -> None:
        """The connections of a replica end."""
        for slave, (master, peer) in list(self.links.items()):
            if name in (slave, master):
                del self.links[slave]
                other = self.replicas[master if name == slave else slave]
                other.machine.disconnected(peer, other.now_ms)
                other.pump()
                self._waiting = [one for one in self._waiting if one[1] != peer]

    def unlink(self, slave: str) -> None:
        """A connection is lost."""
        master, peer = self.links.pop(slave)
        for name in (slave, master):
            self.replicas[name].machine.disconnected(peer, self.replicas[name].now_ms)
            self.replicas[name].pump()
        self._waiting = [one for one in self._waiting if one[1] != peer]

    def _carry(self) -> bool:
        for name, replica in self.replicas.items():
            sent, replica.sent = replica.sent, []
            for peer, command in sent:
                for slave, (master, link) in self.links.items():
                    if link == peer:
                        self._waiting.append((master if name == slave else slave, peer, command))
            dropped, replica.dropped = replica.dropped, []
            for slave in [slave for slave, (_, peer) in self.links.items() if peer in dropped]:
                self.unlink(slave)
        moved = False
        waiting, self._waiting = self._waiting, []
        for target, peer, command in waiting:
            if self.passes(target, command):
                self.replicas[target].say(command, peer)
                moved = True
            else:
                self._waiting.append((target, peer, command))
        return moved
