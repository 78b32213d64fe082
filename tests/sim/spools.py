"""A client's spools on the simulated disk of its node; and of acks, what it told of them in which of its lives.

Locks are not modelled: a node has one process at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.checkers import Ack, Outcome, ended
from sim.disk import Mount, SimFile
from tidemill import Client
from tidemill.ack_file import AckFile
from tidemill.ack_spool import Place
from tidemill_host.machine import Buffer
from tidemill_wire.ranges import pairs

if TYPE_CHECKING:
    from sim.cluster import Cluster

FOLDER = "spool"


class SimAckFile:
    """``AckFile`` for one life."""

    def __init__(self, mount: Mount, name: str) -> None:
        self._mount = mount
        self._name = f"{FOLDER}/{name}"
        mount.make_folder(FOLDER)
        mount.sync_folder("")
        self._file: SimFile = mount.open(self._name, create=True)

    def read(self) -> bytes:
        data = b""
        while len(data) < self._file.size():
            data += self._file.read(len(data), self._file.size() - len(data))
        return data

    def append(self, data: bytes, *, sync: bool) -> None:
        _write(self._file, data)
        if sync:
            self._file.sync()

    def replace(self, data: bytes) -> None:
        beside = f"{self._name}.new"
        fresh = self._mount.open(beside, create=True)
        fresh.truncate(0)
        _write(fresh, data)
        fresh.sync()
        self._mount.rename(beside, self._name)
        self._file = fresh
        self._mount.sync_folder(FOLDER)

    def close(self) -> None:
        self._file.close()


def opener(mount: Mount) -> Callable[[Path], AckFile]:
    """For ``ClientSettings.open_ack_file``."""
    return lambda path: SimAckFile(mount, path.name)


class SimSpoolFile:
    """``SpoolFile`` for one life."""

    def __init__(self, file: SimFile) -> None:
        self._file = file

    def size(self) -> int:
        return self._file.size()

    def read(self, position: int, size: int) -> bytes:
        data = b""
        while len(data) < size and (part := self._file.read(position + len(data), size - len(data))):
            data += part
        return data

    def write(self, position: int, data: Buffer) -> None:
        self._file.write(position, bytes(data))

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class SimShelf:
    """``Shelf`` for one life."""

    def __init__(self, mount: Mount) -> None:
        self._mount = mount

    def open(self, path: Path) -> SimSpoolFile:
        self._mount.make_folder(FOLDER)
        self._mount.sync_folder("")
        file = self._mount.open(f"{FOLDER}/{path.name}", create=True)
        self._mount.sync_folder(FOLDER)
        return SimSpoolFile(file)

    def names(self, path: Path, behind: str) -> list[str]:
        start = path.name + behind
        return [name[len(start) :] for name in self._mount.list(FOLDER) if name.startswith(start)]

    def exists(self, path: Path) -> bool:
        return path.name in self._mount.list(FOLDER)

    def append(self, path: Path, data: bytes) -> None:
        file = self.open(path)
        file.write(file.size(), data)
        file.sync()
        file.close()


class Spooled:
    """Acks of one node that lie in its spool, by their pull sequences. It watches all lives of the node's clients.

    One ends when the broker has answered it, then or later: until then a drain waits for it.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._waiting: dict[int, tuple[Ack, int]] = {}
        self._answered: dict[int, tuple[Outcome, float]] = {}
        """Of this client, what was told before anybody heard that it was kept."""
        self._client = 0

    def watch(self, client: Client, now: Callable[[], float]) -> None:
        """A new client of the node."""
        keeper: Any = client._keeper
        told = keeper.told
        self._answered.clear()
        self._client += 1

        def note_told(place: Place, number: int, lost: int) -> None:
            kept = keeper._waiting.get(place, {}).get(number)
            told(place, number, lost)
            outcome = Outcome.UNKNOWN if lost else Outcome.OK
            for first, last in pairs(kept.fate.ranges) if kept is not None else ():
                for pull in range(first, last + 1):
                    self._over(pull, outcome, now())

        keeper.told = note_told

    def keep(self, pull: int, ack: Ack, now_s: float) -> None:
        """It was not told, and is kept."""
        self._cluster.kept(ack, now_s)
        self._waiting[pull] = (ack, self._client)
        if pull in self._answered:
            self._over(pull, *self._answered.pop(pull))

    def _over(self, pull: int, outcome: Outcome, at_s: float) -> None:
        if pull not in self._waiting:
            self._answered[pull] = (outcome, at_s)
            return
        ack, client = self._waiting.pop(pull)
        ended(ack, outcome, at_s)
        if client != self._client and outcome is Outcome.OK:
            self._cluster.note("acks_told_by_another_client")


def _write(file: SimFile, data: bytes) -> None:
    while data:
        data = data[file.append([data]) :]
