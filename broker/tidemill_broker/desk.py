"""What the parts of the broker share: actions are written here, answers are collected here, the next alarm is set here.

Nothing is decided in this module. Whoever decides says ``act`` (write and apply), ``say`` (an answer, as durable as it
has to be) and ``wake`` (something is due then).
"""

from __future__ import annotations

from collections.abc import Callable

from tidemill_broker.actions import Action
from tidemill_broker.keeping import Keeping
from tidemill_broker.logs import Logs
from tidemill_broker.partitions import Partition
from tidemill_broker.state import State
from tidemill_broker.statistics import Counters
from tidemill_host.machine import Buffer, Durability, Peer, Read, Send, Slice, Unread
from tidemill_wire.commands import Command, Failed, encode_command
from tidemill_wire.errors import WireError


class Desk:
    """The state, the logs, and what leaves with the next ``Ready``."""

    def __init__(self, state: State, logs: Logs, keeping: Keeping, now_ms: int) -> None:
        self.state = state
        self.logs = logs
        self.keeping = keeping
        self.counters = Counters()
        self.sends: list[Send] = []
        # partition -> what becomes visible with the next Ready, when that is as durable as the subject asks for
        self.fresh: dict[Durability, dict[int, int]] = {level: {} for level in Durability}
        self.low = Durability.WRITTEN
        """What subjects of the class `low` ask for: less, when there are others to wait for."""
        self.reads: list[Read] = []
        self._readers: dict[int, Callable[[Buffer | Unread, int], None]] = {}
        self._token = 0
        self.wake_at_ms = now_ms

    def act(self, action: Action, now_ms: int, *, low: bool = False) -> int:
        """Write an action, about a subject of the class `low` or another; how many messages it concerned."""
        self.logs.act(action, now_ms)
        self.keeping.note(1, now_ms, low=low)
        return self.state.apply(action)

    def say(
        self, peer: Peer, correlation: int, command: Command, after: Durability = Durability.WRITTEN
    ) -> None:
        """An answer, when the writes so far have come as far as ``after``."""
        self.sends.append(Send(peer, encode_command(command, correlation), after=after))

    def refuse(self, peer: Peer, correlation: int, error: WireError) -> None:
        """An answer that says no, counted by its reason."""
        self.counters.refused[error.kind.name] += 1
        self.say(peer, correlation, Failed(error.kind.number, error.detail, error.wait_ms), Durability.HERE)

    def level(self, partition: Partition) -> Durability:
        """How durable an answer about a subject has to be."""
        return Durability.SYNCED if partition.synced else self.low if partition.low else Durability.WRITTEN

    def stored(self, partition: Partition) -> None:
        """Messages were placed: they become visible when they are as durable as the subject asks for."""
        self.fresh[self.level(partition)][partition.identity] = partition.next_sequence

    def read(self, piece: Slice, then: Callable[[Buffer | Unread, int], None]) -> None:
        """Bytes of a log; ``then`` is called with them and the time. Tokens are below zero: those above are others'."""
        self._token -= 1
        self._readers[self._token] = then
        self.reads.append(Read(self._token, piece))

    def loaded(self, token: int, data: Buffer | Unread, now_ms: int) -> None:
        """What was to be read is there, or never will be."""
        self._readers.pop(token)(data, now_ms)

    def wake(self, at_ms: int) -> None:
        """``ticked`` no later than then."""
        self.wake_at_ms = min(self.wake_at_ms, at_ms)

    def take_sends(self) -> list[Send]:
        """What leaves now."""
        sends, self.sends = self.sends, []
        return sends
