"""Housekeeping: background sync, checkpoints, what is removed.

A checkpoint is copied in one moment, together with the ends of both logs, and a sync is asked for; it is written when
the disk has everything up to there. Files of hours follow from the message log, so they are synced for a checkpoint
alone, some at a time, beside the syncs of the logs: a year has tens of thousands of them, and answers, and what is due,
wait for the logs. Then the message log below the checkpoint is removed, for the hours have all of it. In a group, on a
slave too, nothing of that happens before it is committed: so whatever a new epoch cuts from the logs, there is a
checkpoint below, and the files of the hours that it knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from tidemill_delay.actions import Closed, Synced, encode_action
from tidemill_delay.hours import file_of, names_of, rows_of
from tidemill_delay.settings import DelaySettings
from tidemill_delay.snapshots import Frozen, pack_state
from tidemill_delay.state import State
from tidemill_host.machine import Buffer, Read, Replace
from tidemill_journal.checkpoint import checkpoint_file, wrap
from tidemill_ledger.logs import Logs
from tidemill_wire import limits
from tidemill_wire.replication import Ends

SETTLING = 1 << 41
"""The token of a read that puts files of hours on the disk: above all of the courier's."""
TOGETHER = 64
"""So many at a time: whoever stops waits for them."""


class Keeping:
    """Decides when to sync, to checkpoint and to remove."""

    def __init__(self, state: State, logs: Logs, settings: DelaySettings, now_ms: int) -> None:
        self._state = state
        self._logs = logs
        self._settings = settings
        self._events = 0
        self._checkpoint_at_ms = now_ms
        self._packed: tuple[int, tuple[int, int], Frozen] | None = None
        """The ``Ready`` that must be synced, the ends of the logs, the checkpoint."""
        self._unsynced_since_ms: int | None = None
        self._closing: deque[tuple[int, list[int]]] = deque()
        """Ends of records that say that hours are closed, and those hours."""
        self._covered = 0
        """The end of the action log that the newest checkpoint knows."""
        self.level = self.leads = True
        self.committed: Ends | None = None
        """Of a slave, which hears of it; for any other one that is committed which is persisted."""
        self.held = False
        """A slave is being sent the hours: they stay, and the logs that it needs then."""
        self._recorded = (0, 0)
        self.sync_now = False
        self.checkpoints: list[int] = []
        self._settle: Callable[[Sequence[str]], Buffer] | None = None
        self._unsettled: list[str] = []
        """Files of hours that the checkpoint needs on the disk."""
        self._settling = False
        self._reads: list[Read] = []
        self._ends: dict[int, tuple[int, int]] = {}
        """Of each checkpoint the ends of the logs that it knows."""

    def settle_by(self, settle: Callable[[Sequence[str]], Buffer]) -> None:
        """Somebody can put files on the disk, elsewhere; until then those of hours are synced with the logs."""
        self._settle = settle
        self._logs.apart = {}

    def take_reads(self) -> list[Read]:
        """What is to be put there."""
        reads, self._reads = self._reads, []
        return reads

    def settled_some(self, now_ms: int) -> None:
        """It is there."""
        self._settling = False
        self.persisted(now_ms)

    def _settle_some(self) -> None:
        if self._settle is not None and self._unsettled and not self._settling:
            some, self._unsettled = self._unsettled[:TOGETHER], self._unsettled[TOGETHER:]
            self._settling = True
            self._reads.append(Read(SETTLING, partial(self._settle, some)))

    def note(self, events: int, now_ms: int) -> None:
        """So many batches or actions were written."""
        self._events += events
        if self._unsynced_since_ms is None:
            self._unsynced_since_ms = now_ms

    def wants_sync(self) -> bool:
        """Whether the next ``Ready`` asks for a sync that no answer waits for; asked once."""
        wanted, self.sync_now = self.sync_now, False
        return wanted

    @property
    def checkpoint_number(self) -> int:
        """Of the newest."""
        return max(self.checkpoints, default=0)

    def pack(self, message_position: int, action_position: int, now_ms: int) -> bytes:
        """The state as it is now, for a slave that begins with it."""
        return pack_state(self._state, message_position, action_position)

    def closed(self, position: int, hours: list[int]) -> None:
        """The record that ends there says that these hours are over: their files go when a checkpoint knows it, for one
        that does not would miss them.
        """
        self._closing.append((position, hours))

    @property
    def settled(self) -> bool:
        """No checkpoint is on its way to the disk."""
        return self._packed is None and not self._logs.has_writes

    def wake_ms(self, now_ms: int) -> int:
        """When there is something to do."""
        wake = self._checkpoint_at_ms + self._settings.checkpoint_interval_ms
        if self._packed is not None or not self.level:  # until others have come further
            wake = now_ms + self._settings.sync_interval_ms
        elif self._events >= self._settings.checkpoint_events:
            wake = self._checkpoint_at_ms + self._settings.checkpoint_pause_ms
        if self._unsynced_since_ms is not None:
            wake = min(wake, self._unsynced_since_ms + self._settings.sync_interval_ms)
        return max(wake, now_ms + 1)

    def check(self) -> None:
        """Whoever is told what is committed decides nothing."""
        assert self.leads or self.committed is not None

    def ticked(self, now_ms: int, loaded: int | None = None) -> None:
        """``loaded`` is the earliest hour that is being read."""
        settings = self._settings
        if self._logs.all_synced:
            self._unsynced_since_ms = None
            self._record_synced(now_ms)
        elif self._unsynced_since_ms is None or now_ms >= self._unsynced_since_ms + settings.sync_interval_ms:
            self.sync_now = True
            self._unsynced_since_ms = now_ms
        waited = now_ms - self._checkpoint_at_ms
        due = self._events >= settings.checkpoint_events or waited >= settings.checkpoint_interval_ms
        if due and self._packed is None and waited >= settings.checkpoint_pause_ms:
            if self.leads:
                self._close(now_ms, loaded)
            if self._events and self.level:
                self.checkpoint(now_ms)
            else:
                self._checkpoint_at_ms = now_ms

    def checkpoint(self, now_ms: int) -> None:
        """Pack the state as it is now; the file follows when the disk has the logs up to here."""
        if not self.level:
            return
        logs = self._logs
        self._events = 0
        self._checkpoint_at_ms = now_ms
        ends = logs.messages.end, logs.actions.end
        number = logs.number + (1 if logs.has_writes else 0)
        self._packed = number, ends, Frozen(self._state, *ends)
        if logs.apart:
            self._unsettled = list(dict.fromkeys((*self._unsettled, *logs.apart)))
            logs.apart = {}
        self.sync_now = True
        if number <= logs.mark.synced:
            self.persisted(now_ms)

    def _is_committed(self, message_position: int, action_position: int) -> bool:
        known = self.committed
        return known is None or (known.message >= message_position and known.action >= action_position)

    def persisted(self, now_ms: int) -> None:
        """The disk has come further, or the group."""
        logs, packed = self._logs, self._packed
        if packed is not None and packed[0] <= logs.mark.written:
            self._settle_some()
        there = (
            packed is not None and packed[0] <= logs.mark.synced and not (self._settling or self._unsettled)
        )
        if packed is not None and there and self._is_committed(*packed[1]):
            _, ends, frozen = packed
            self._packed = None
            number = self.checkpoint_number + 1
            logs.replace(Replace(checkpoint_file(number), lambda: wrap(frozen.pack())))
            self.checkpoints.append(number)
            self._ends[number] = ends
            self._covered = ends[1]
            self._remove()
        while self._closing and not self.held and self._closing[0][0] <= self._covered:
            for hour in self._closing.popleft()[1]:
                for file in (file_of(hour), rows_of(hour), names_of(hour)):
                    logs.remove(file)

    def _record_synced(self, now_ms: int) -> None:
        """For recovery: below it, bad bytes are damage."""
        if self._settings.replicated:
            return  # it would speak of this disk, and be read on others
        logs = self._logs
        synced = logs.synced_message_position, logs.synced_action_position
        if synced != self._recorded and logs.all_synced and self._events:
            kind, body = encode_action(Synced(*synced))
            logs.record(kind, body, now_ms)
            self._recorded = logs.synced_message_position, logs.actions.end

    def _close(self, now_ms: int, loaded: int | None) -> None:
        """Hours that are over, and have nothing that waits, go; whatever waits in others."""
        hours, hour_ms = self._state.hours, self._settings.hour_ms
        before_ms = max(now_ms // hour_ms * hour_ms, self._state.closed_ms)
        over = [start_ms for start_ms in hours if start_ms < before_ms]
        kept = sorted(start_ms for start_ms in over if hours[start_ms].waiting or start_ms == loaded)
        gone = sorted(set(over).difference(kept))
        if not gone or self._closing:
            return
        action = Closed(before_ms, kept)
        self._logs.record(*encode_action(action), now_ms)
        self._state.apply(action)
        self.closed(self._logs.actions.end, gone)
        self.note(1, now_ms)

    def _remove(self) -> None:
        """Old checkpoints, and what of the logs the oldest that is left does not need."""
        logs = self._logs
        while len(self.checkpoints) > limits.CHECKPOINTS_KEPT:
            number = self.checkpoints.pop(0)
            self._ends.pop(number, None)
            logs.remove(checkpoint_file(number))
        if self.held or len(self._ends) < len(self.checkpoints):
            return  # those that were there at the start do not say here what they need
        message, action = (min(column) for column in zip(*self._ends.values(), strict=True))
        for segments, needed in ((logs.messages, message), (logs.actions, action)):
            least = segments.end - self._settings.catch_up_bytes if self._settings.replicated else needed
            # Something of the segment that is the first then is there to stay: so no log begins where it ends.
            while len(segments.bases) > 1 and segments.bases[1] < needed and segments.bases[1] <= least:
                logs.remove(segments.file(segments.drop_oldest()))
