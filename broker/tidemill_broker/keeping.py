"""Housekeeping of the logs: background sync, checkpoints, retention.

A checkpoint is made in three steps. What was touched since the last one is packed ahead, a share a turn
(``packing.py``). Then, in one moment, the state is packed, together with the ends of both logs, and a sync is asked
for; only when the disk has everything up to those ends is the checkpoint's file written. So a checkpoint never knows of
anything that a power cut could still take back.
"""

from __future__ import annotations

from tidemill_broker.actions import Synced
from tidemill_broker.consume_log import ConsumeLog
from tidemill_broker.group_settings import DEAD
from tidemill_broker.groups import Group
from tidemill_broker.lanes import base_of
from tidemill_broker.logs import Logs
from tidemill_broker.packing import Packing
from tidemill_broker.partitions import Partition, StoredRun
from tidemill_broker.ranges import covers
from tidemill_broker.settings import BrokerSettings
from tidemill_broker.state import State
from tidemill_host.machine import Replace
from tidemill_journal.checkpoint import checkpoint_file, wrap
from tidemill_wire import limits

CHECKPOINT_BYTES = 512 * limits.MIB
NO_SEGMENT = (-1, (0, 0))


class Keeping:
    """Decides when to sync, to checkpoint and to drop."""

    def __init__(
        self, state: State, logs: Logs, settings: BrokerSettings, consume_log: ConsumeLog, now_ms: int
    ) -> None:
        self._state = state
        self._logs = logs
        self._settings = settings
        self._consume_log = consume_log
        self._events = 0
        self._bytes_at_checkpoint = 0
        self._checkpoint_at_ms = now_ms
        self.packing = Packing(state)
        self._packed: tuple[int, list[bytes]] | None = None  # the Ready that must be synced, the checkpoint
        self.level = True
        """Both logs are as they were at one moment; a slave's may not be, and are then nothing to begin with again."""
        self.acted_at_ms: int | None = None
        """On a slave: the clock of its master in the last action, by which all moments in the state are meant."""
        self.checkpoint_number = 0
        self.checkpoints: list[int] = []  # numbers of those on the disk
        self.checkpoint_positions: dict[int, int] = {}  # number -> where its action log begins
        self.remembered = 0
        """Up to where the newest checkpoint has the message log: what is behind, no file but the log remembers."""
        self.expired_messages = 0
        self._unsynced_since_ms: int | None = None
        self._hurried = (
            False  # something that is not of the class `low` was written since the last sync was asked for
        )
        self._recorded = (0, 0)
        self._noted = False  # something besides SYNCED records was written since the last one
        self.sync_now = False
        self._synced_record_at_ms = now_ms
        self._copied = (0, 0)  # the ends of both logs behind the last message that was moved
        self._droppable = NO_SEGMENT  # which to drop when the disk has come so far
        self._retention_at_ms = now_ms + settings.retention_interval_ms
        self.wake_at_ms = self._retention_at_ms

    def note(self, events: int, now_ms: int, *, low: bool = False) -> None:
        """So many batches or actions were written; ``low`` when they are all of subjects of that class."""
        self._events += events
        self._noted = True
        if self._unsynced_since_ms is None:
            self._unsynced_since_ms = now_ms
        elif low or self._hurried:
            return
        self._hurried = not low
        self.wake_at_ms = min(self.wake_at_ms, self._unsynced_since_ms + self._sync_pause_ms)

    @property
    def _sync_pause_ms(self) -> int:
        """How long what no answer waits for may lie in the page cache. `low` promises no interval, and a sync has its
        price: it takes the kernel 4 ms for 2.5 MB, in which a machine of few cores answers late.
        """
        return self._settings.sync_interval_ms if self._hurried else self._settings.low_sync_interval_ms

    def copied(self) -> None:
        """Messages were moved within the log: what they are copies of stays until the disk has the copies."""
        self._copied = (self._logs.messages.end, self._logs.actions.end)

    def wants_sync(self) -> bool:
        """Whether the next ``Ready`` asks for a sync that no answer waits for; asked once."""
        wanted, self.sync_now = self.sync_now, False
        return wanted

    @property
    def settled(self) -> bool:
        """No checkpoint and no index is on its way to the disk."""
        return self._packed is None and not self._consume_log.encoding and not self._logs.has_writes

    def ticked(self, now_ms: int) -> None:
        settings = self._settings
        if self._logs.all_synced:
            self._unsynced_since_ms, self._hurried = None, False
        elif self._unsynced_since_ms is None:
            self._unsynced_since_ms = now_ms
        elif now_ms - self._unsynced_since_ms >= self._sync_pause_ms:
            self.sync_now = True
            self._unsynced_since_ms, self._hurried = now_ms, False
        self._record_synced(now_ms)  # what was synced last, when nothing follows that would be persisted
        packing = False
        if self._checkpoint_due(now_ms):
            packing = self.packing.ahead()
            if not packing:
                self.checkpoint(now_ms)
        if now_ms >= self._retention_at_ms:
            self._retention_at_ms = now_ms + settings.retention_interval_ms
            self._retain(now_ms)
        self._consume_log.let_go()
        self.wake_at_ms = self._retention_at_ms
        if self._unsynced_since_ms is not None:
            self.wake_at_ms = min(self.wake_at_ms, self._unsynced_since_ms + self._sync_pause_ms)
        elif self._noted and not self._settings.replicated:
            self.wake_at_ms = min(self.wake_at_ms, now_ms + settings.sync_interval_ms)
        if packing:
            self.wake_at_ms = now_ms + 1

    def persisted(self, now_ms: int) -> None:
        logs = self._logs
        if self._packed is not None and self._packed[0] <= logs.mark.synced:
            self._write_checkpoint(self._packed[1])
            self._packed = None
        if self._unsynced_since_ms is None and not logs.all_synced:  # what the broker wrote for itself
            self._unsynced_since_ms = now_ms
            self.wake_at_ms = min(self.wake_at_ms, now_ms + self._sync_pause_ms)
        self._record_synced(now_ms)

    def _record_synced(self, now_ms: int) -> None:
        """Not for every sync: the record is for recovery, which only needs a recent one."""
        if (
            now_ms - self._synced_record_at_ms >= self._settings.sync_interval_ms
            and not self._settings.replicated  # it would speak of this disk, and be read on others
            and self._noted
            and self._advanced()
        ):
            self._noted = not self._logs.all_synced  # then the rest is worth another one
            self._synced_record_at_ms = now_ms
            self._recorded = (self._logs.synced_message_position, self._logs.synced_action_position)
            self._logs.act(Synced(*self._recorded), now_ms)

    def _advanced(self) -> bool:
        """The disk has more than the last SYNCED record says."""
        return (self._logs.synced_message_position, self._logs.synced_action_position) != self._recorded

    def _checkpoint_due(self, now_ms: int) -> bool:
        settings = self._settings
        waited = now_ms - self._checkpoint_at_ms
        if (
            not self._events
            or self._packed is not None
            or waited < settings.checkpoint_pause_ms
            or not self.level
        ):
            return False
        grown = self._logs.bytes_appended - self._bytes_at_checkpoint
        return (
            self._events >= settings.checkpoint_events
            or waited >= settings.checkpoint_interval_ms
            or grown >= CHECKPOINT_BYTES
        )

    def checkpoint(self, now_ms: int) -> None:
        """Pack the state as it is now; the file follows when the disk has the logs up to here."""
        if not self.level:
            return
        logs = self._logs
        self._events = 0
        self._checkpoint_at_ms = now_ms
        self._bytes_at_checkpoint = logs.bytes_appended
        at_ms = now_ms if self.acted_at_ms is None else self.acted_at_ms
        parts = self.packing.parts(logs.messages.end, logs.actions.end, at_ms)
        number = logs.number + (1 if logs.has_writes else 0)
        self._packed = (number, parts)
        self._ends = (logs.messages.end, logs.actions.end)
        self.sync_now = True
        if number <= logs.mark.synced:
            self.persisted(now_ms)

    _ends = (0, 0)

    def pack(self, message_position: int, action_position: int, now_ms: int) -> bytes:
        """The state as it is now, up to these positions, for whoever begins with it."""
        return b"".join(self.packing.parts(message_position, action_position, now_ms))

    def _write_checkpoint(self, parts: list[bytes]) -> None:
        self.checkpoint_number += 1
        self._logs.replace(Replace(checkpoint_file(self.checkpoint_number), lambda: wrap(b"".join(parts))))
        self.checkpoints.append(self.checkpoint_number)
        self.remembered, self.checkpoint_positions[self.checkpoint_number] = self._ends
        while len(self.checkpoints) > limits.CHECKPOINTS_KEPT:
            old = self.checkpoints.pop(0)
            self.checkpoint_positions.pop(old, None)
            self._logs.remove(checkpoint_file(old))

    def _retain(self, now_ms: int) -> None:
        """Drop message segments whose every message is past its subject's retention and not needed. While the disk has
        not got what was copied out of them lately, only the oldest, and that a round later.
        """
        if self._synced(self._copied):
            self._drop(self._logs.messages.open_base, now_ms)
        else:
            self.sync_now = True
            base, copied = self._droppable
            if self._synced(copied):
                self._drop(base, now_ms)
            oldest = self._logs.messages.bases[0]
            self._droppable = (oldest, self._copied) if self._expired(oldest, now_ms) else NO_SEGMENT
        self._retain_actions()

    def _synced(self, ends: tuple[int, int]) -> bool:
        logs = self._logs
        return ends[0] <= logs.synced_message_position and ends[1] <= logs.synced_action_position

    def _drop(self, until: int, now_ms: int) -> None:
        """Drop what has expired, as far as the segment ``until``, and as far as a restart has what followed from it:
        who sent what, and which sequences are used.
        """
        segments = self._logs.messages
        for base in segments.sealed():
            if base > until or not self._expired(base, now_ms):
                break
            if segments.end_of(base) > self.remembered:
                self._events = max(self._events, self._settings.checkpoint_events)  # so one is made soon
                break
            segments.drop_oldest()
            self._logs.remove(segments.file(base))
            self._consume_log.drop_oldest(base, self._count_expired)

    def _expired(self, base: int, now_ms: int) -> bool:
        for partition in self._state.partitions.values():
            if not partition.runs or partition.runs[0].run.base != base:
                continue
            run, settings = partition.runs[0].run, partition.settings
            old = stored_before_ms(partition, now_ms) + settings.retention_seconds * 1000 < now_ms
            large = 0 < settings.retention_bytes < self._size_behind(partition, base)
            groups = [self._state.groups[identity] for identity in partition.groups.values()]
            if not (old or large or _settled(groups, run.first_sequence, run.end_sequence)):
                return False
            if any(group.holds_before(run.end_sequence) for group in groups):
                return False
            if not settings.let_go(run.end_sequence):
                return False
        return not self._state.transactions.holds(base, self._logs.messages.end_of(base))

    def _size_behind(self, partition: Partition, base: int) -> int:
        """What a subject keeps, in all its lanes, behind the segment ``base``, which is the oldest."""
        own = base_of(partition)
        family = (own, *self._state.lanes.get(own.identity, {}).values())
        first = sum(one.runs[0].run.size for one in family if one.runs and one.runs[0].run.base == base)
        return sum(one.size for one in family) - first

    def _count_expired(self, partition: Partition, stored: StoredRun) -> None:
        """Messages nobody pulled in time are gone: say so, group by group."""
        for identity in partition.groups.values():
            group = self._state.groups[identity]
            if group.settings.consumption == DEAD:
                continue  # nobody pulls dead letters, they only are redriven
            missed = min(stored.run.end_sequence, partition.visible) - max(
                group.reached, stored.run.first_sequence
            )
            if missed > 0:
                self.expired_messages += missed

    def check(self) -> None:
        """What is kept for the next checkpoint is what would be packed now."""
        self.packing.check()

    def _retain_actions(self) -> None:
        """The action log is history: it is kept as long as messages are, and as long as a checkpoint needs it."""
        actions = self._logs.actions
        needed = min(self.checkpoint_positions.values(), default=actions.start)
        kept_bytes = 10 * self._settings.action_segment_bytes
        while (
            len(actions.bases) > 1
            and actions.bases[1] <= needed
            and actions.end - actions.bases[1] > kept_bytes
        ):
            base = actions.drop_oldest()
            self._logs.remove(actions.file(base))


def _settled(groups: list[Group], first: int, end: int) -> bool:
    """Whether these are dead letters that were all redriven or purged, so that nobody has to keep them: one of them
    would keep its whole segment, and all that came later, for as long as dead letters are kept.
    """
    return bool(groups) and all(
        group.settings.consumption == DEAD and covers(group.handled, first, end - 1) for group in groups
    )


def stored_before_ms(partition: Partition, now_ms: int) -> int:
    """When the oldest run was full, at the latest. A stamp that lies ahead comes from a clock that was wrong: then what
    was stored later, by a clock that was right, says more; or an hour too late would be kept for an hour too long.
    """
    stamp = partition.runs[0].run.last_stored_at_ms
    if stamp <= now_ms:
        return stamp
    later = [stored.run.last_stored_at_ms for stored in partition.runs]
    return min([*later, *partition.recent.stamps[-1:]])
