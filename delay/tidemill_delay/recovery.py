"""From what lies on the disk to a delay service that serves.

1. the newest checkpoint that is whole
2. the action log from there on: applied
3. the files of the hours: cut to what the checkpoint says of them, and those of hours that it does not know removed
4. the message log from there on: placed again, with the same numbers at the same places
5. torn tails are cut; a START record, synced before anything is served
"""

from __future__ import annotations

from tidemill_delay.actions import (
    Action,
    ActionKind,
    EpochBegun,
    Started,
    Synced,
    decode_action,
    encode_action,
)
from tidemill_delay.hours import start_of
from tidemill_delay.intake import placed_again
from tidemill_delay.machine import Delay
from tidemill_delay.settings import PREFIX, DelaySettings
from tidemill_delay.snapshots import files_of, known_ends, unpack_state
from tidemill_delay.state import State
from tidemill_host.machine import Append, Buffer, Ready, Remove
from tidemill_journal.errors import CorruptLog, CorruptRecord
from tidemill_journal.segments import Segments
from tidemill_ledger.logs import Logs
from tidemill_ledger.membership import LONE, Part, Role
from tidemill_ledger.opening import Opening
from tidemill_ledger.scanning import BatchScanner, RecordScanner
from tidemill_ledger.storage import Storage
from tidemill_ledger.truncation import prepare
from tidemill_wire.batch import Header
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.settings import SettingsError

BATCHES_MAX = 1 << 20
SCHEDULE = "schedule"
FOLDERS = ("message", "action", SCHEDULE, "checkpoint", "aside")
WRITE_BYTES = 8 * 1024 * 1024


class Recovery:
    """One recovery; ``run`` is its story."""

    def __init__(self, storage: Storage, settings: DelaySettings, part: Part = LONE) -> None:
        self._storage = storage
        self._settings = settings
        self._opening = Opening(storage)
        self._part = part
        self._state = State()
        self._known: set[int] = set()
        """Hours of the checkpoint: their files stay until it is certain that they are closed."""
        self._message_position = self._action_position = 0
        self._message_synced = self._action_synced = 0
        self._appends: dict[str, list[Buffer]] = {}
        self._appended = 0
        self.report = self._opening.report

    def run(self, now_ms: int) -> Delay:
        """The service as it was, ready to be run."""
        self.report.cut_bytes |= prepare(self._storage, self._part, known_ends)
        self._load_checkpoint()
        self._tidy_hours()
        actions = self._replay_actions()
        self._check_hours()
        messages = self._replay_messages()
        self._flush()
        self._remove_strays()
        self._opening.sync(messages, self._message_synced)
        self._opening.sync(actions, self._action_synced)
        if not self._part.follows:
            self._start(Logs(messages, actions, self._part.epoch, BATCHES_MAX), now_ms)
        logs = Logs(messages, actions, self._part.epoch, BATCHES_MAX)
        delay = Delay(self._state, logs, self._settings, now_ms)
        delay.keeping.checkpoints = self._opening.checkpoint_numbers()
        delay.keeping.note(self.report.actions_replayed + self.report.batches_replayed, now_ms)
        closed = sorted(self._known - self._state.hours.keys())
        if closed:  # whether all have the record shows when there is a checkpoint behind it
            delay.keeping.closed(actions.end, closed)
        if not self._part.follows:  # else one of its logs may be ahead
            delay.check()
        return delay

    def _load_checkpoint(self) -> None:
        ends = {folder: self._opening.end_of(folder) for folder in ("message", "action")}
        for number, payload in self._opening.payloads():
            try:
                state, message_position, action_position = unpack_state(payload)
            except CorruptRecord:
                self.report.checkpoints_passed_over += 1
                continue
            if message_position > ends["message"] or action_position > ends["action"]:
                detail = f"checkpoint {number} was written when the logs were longer"
                raise CorruptLog("message or action", min(ends.values()), detail)
            self._state = state
            self._message_position = self._message_synced = message_position
            self._action_position = self._action_synced = action_position
            self.report.checkpoint = number
            if self._part.role is not Role.LONE:
                self._known = set(state.hours)
            return

    def _tidy_hours(self) -> None:
        """What a file has beyond the checkpoint is placed again; whatever it has less is damage."""
        self._remove_strays()
        for file, size in files_of(self._state):
            found = self._storage.size(file) or 0
            if found < size:
                raise CorruptLog(file, found, f"the checkpoint knows {size} bytes")
            if found > size:
                self._storage.shorten(file, size)

    def _replay_actions(self) -> Segments:
        segments = self._opening.open("action", self._settings.action_segment_bytes, self._action_synced)
        for base in list(segments.bases):
            end = segments.end_of(base)
            if end <= self._action_position:
                continue
            start = max(base, self._action_position)
            scanner = RecordScanner(self._storage.reader(segments.file(base)), base, end, start)
            try:
                for record in scanner:
                    action = decode_action(record)
                    self._state.apply(action)
                    self.report.actions_replayed += 1
                    self._note_synced(action)
            except CorruptRecord as error:
                for record in self._opening.behind(segments, scanner.position):
                    if record.kind == ActionKind.SYNCED:
                        self._note_synced(decode_action(record))
                self._opening.cut(segments, scanner.position, self._action_synced, error)
                break
        if self._state.epochs and self._part.role is Role.LONE:
            detail = "this data folder is of a delay service in a group"
            raise SettingsError(f"{detail}: start it with {PREFIX}REPLICATED=true, or choose another folder")
        return segments

    def _note_synced(self, action: Action) -> None:
        """Up to where this disk has had both logs; of a service in a group another disk may have written it."""
        if isinstance(action, Synced) and not self._settings.replicated:
            self._message_synced = max(self._message_synced, action.message_position)
            self._action_synced = max(self._action_synced, action.action_position)

    def _check_hours(self) -> None:
        """What was placed in hours of one length is not found in those of another."""
        before_ms, now_ms = self._state.hour_ms, self._settings.hour_ms
        if self._part.follows:
            return  # it goes by its master's
        has_some = bool(self._state.hours) or self._opening.end_of("message") > self._message_position
        if has_some and before_ms not in (0, now_ms):
            raise SettingsError(
                f"{PREFIX}HOUR_MS is {now_ms}, and this folder has messages in hours of {before_ms}: set it to that, "
                "or change it when none is left"
            )

    def _replay_messages(self) -> Segments:
        segments = self._opening.open("message", self._settings.segment_bytes, self._message_synced)
        for base in list(segments.bases):
            end = segments.end_of(base)
            if end <= self._message_position:
                continue
            read = self._storage.reader(segments.file(base))
            scanner = BatchScanner(read, base, end, self._message_position)
            try:
                for header, _ in scanner:
                    if header.position >= self._message_position:
                        self._check_epoch(header)
                        self._place(memoryview(read(header.position - base, header.length)))
            except CorruptBatch as error:
                self._opening.cut(segments, scanner.position, self._message_synced, error)
                break
        return segments

    def _check_epoch(self, header: Header) -> None:
        """Batches come before actions: of an epoch whose beginning did not come nothing is committed."""
        epochs = self._state.epochs
        if self._part.role is not Role.LONE and header.epoch > (epochs[-1].epoch if epochs else 1):
            raise CorruptBatch(f"no action has begun epoch {header.epoch}")

    def _place(self, batch: memoryview) -> None:
        self.report.batches_replayed += 1
        for _, appends in placed_again(self._state, batch, self._settings.hour_ms):
            for file, buffers in appends:
                self._appends.setdefault(file, []).extend(buffers)
                self._appended += sum(map(len, buffers))
        if self._appended >= WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        writes = [Append(file, buffers, sum(map(len, buffers))) for file, buffers in self._appends.items()]
        if writes:
            self._storage.write_now(writes)
        self._appends, self._appended = {}, 0

    def _remove_strays(self) -> None:
        """Files of hours that are not there."""
        for name in self._storage.names(SCHEDULE):
            start_ms = start_of(name)
            if start_ms not in self._state.hours and start_ms not in self._known:
                self._storage.write_now([Remove(f"{SCHEDULE}/{name}")])

    def _start(self, logs: Logs, now_ms: int) -> None:
        """The START record, on the disk before anything is served."""
        if self._part.role is Role.MASTER:  # its first record: all that it writes is of its epoch
            epoch = EpochBegun(self._part.epoch, logs.messages.end, logs.actions.end)
            logs.record(*encode_action(epoch), now_ms)
            self._state.apply(epoch)
        started = Started(self._state.boot + 1, self._settings.hour_ms)
        logs.record(*encode_action(started), now_ms)
        self._state.apply(started)
        ready = Ready()
        logs.take(ready)
        self._storage.write_now(ready.writes)
