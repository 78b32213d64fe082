"""From what lies on the disk to a broker that serves: checkpoint, replay of both logs, torn tails cut.

    1. the newest checkpoint that is whole and knows no more than the logs hold
    2. the action log from there on: applied
    3. the message log from there on: sequences, producers; of the open segment also the rows
    4. runs of sealed segments: their directories; a run that is missing is made again from its segment
    5. tails: below what was synced, bad bytes refuse the start with their position; above, they are cut and kept aside
    6. a START record, synced before anything is served

A crash at any point of this leaves what the next recovery needs: it only truncates what it would truncate again.
"""

from __future__ import annotations

from functools import partial

from tidemill_broker.action_kinds import ActionKind
from tidemill_broker.action_records import decode_action
from tidemill_broker.actions import (
    Action,
    Buried,
    EpochBegun,
    Exhumed,
    GroupForgotten,
    Sought,
    Started,
    SubjectNamed,
    Synced,
)
from tidemill_broker.burials import PREFIX, Burials
from tidemill_broker.commits import Commits
from tidemill_broker.indexes import SegmentIndex
from tidemill_broker.logs import Logs
from tidemill_broker.machine import Broker
from tidemill_broker.partitions import Partition, StoredRun, SubjectSettings
from tidemill_broker.settings import BrokerSettings
from tidemill_broker.snapshots import known_ends, packed_at_ms, unpack_state
from tidemill_broker.state import State
from tidemill_broker.transaction_actions import OfTransaction
from tidemill_host.machine import Ready, Remove, Replace
from tidemill_journal.entries import Rows, decode_directory, directory_size, encode_run, pack_size, run_file
from tidemill_journal.errors import CorruptLog, CorruptRecord, JournalError
from tidemill_journal.index import FOLDER as INDEXES
from tidemill_journal.index import decode_head, index_file
from tidemill_journal.segments import Segments
from tidemill_ledger.membership import LONE, Part, Role
from tidemill_ledger.opening import Opening
from tidemill_ledger.scanning import BatchScanner, RecordScanner
from tidemill_ledger.storage import Storage
from tidemill_ledger.truncation import prepare
from tidemill_wire import limits
from tidemill_wire.batch import DEDUPLICATED, Header
from tidemill_wire.errors import CorruptBatch
from tidemill_wire.lanes import lane_name, priority_of, split_lane
from tidemill_wire.settings import SettingsError


class Recovery:
    """One recovery; ``run`` is its story."""

    def __init__(self, storage: Storage, settings: BrokerSettings, part: Part = LONE) -> None:
        self._storage = storage
        self._opening = Opening(storage)
        self._settings = settings
        self._part = part
        self._state = State()
        self._message_position = 0
        self._action_position = 0
        self._message_synced = 0  # below this, bad bytes are damage
        self._action_synced = 0
        self._acted_at_ms = 0  # the clock when the last action was written
        self._unnamed: list[Partition] = []
        self._burials, self._commits = Burials(self._state), Commits(self._state)
        self._again: list[Action] = []
        self._checkpoints: list[int] = []
        self.report = self._opening.report

    def run(self, now_ms: int) -> Broker:
        """The broker as it was, ready to be run."""
        self.report.cut_bytes |= prepare(self._storage, self._part, known_ends)
        self._load_checkpoint()
        self._burials, self._commits = Burials(self._state), Commits(self._state)
        actions = self._replay_actions()
        messages = self._replay_messages()
        self._opening.sync(messages, self._message_synced)
        self._opening.sync(actions, self._action_synced)
        if not self._part.follows:
            self._again = self._burials.settle(messages.start)
            self._again += self._commits.settle(messages.start, messages.end)
            self._settle_sequences()
            self._start(messages, actions, now_ms)
        logs = Logs(messages, actions, self._part.epoch, self._settings.segment_batches)
        broker = Broker(self._state, logs, self._settings, now_ms)
        keeping = broker.keeping
        keeping.checkpoints = self._checkpoints
        keeping.checkpoint_number = max(self._checkpoints, default=0)
        keeping.acted_at_ms = self._acted_at_ms if self._part.follows else None
        keeping.checkpoint_positions = dict.fromkeys(self._checkpoints, actions.start)
        keeping.remembered = self._message_position
        keeping.note(self.report.actions_replayed + self.report.batches_replayed, now_ms)
        if not self._part.follows:  # else one of its logs may be ahead
            broker.check()
        return broker

    def _load_checkpoint(self) -> None:
        ends = {folder: self._opening.end_of(folder) for folder in ("message", "action")}
        self._checkpoints = self._opening.checkpoint_numbers()
        for number, payload in self._opening.payloads():
            try:
                state, message_position, action_position = unpack_state(payload)
                acted_at_ms = packed_at_ms(payload)
            except CorruptRecord:
                self.report.checkpoints_passed_over += 1
                continue
            if message_position > ends["message"] or action_position > ends["action"]:
                detail = f"checkpoint {number} was written when the logs were longer"
                raise CorruptLog("message or action", min(ends.values()), detail)
            self._state = state
            self._acted_at_ms = acted_at_ms
            self._message_position = self._message_synced = message_position
            self._action_position = self._action_synced = action_position
            self.report.checkpoint = number
            return

    def _replay_actions(self) -> Segments:
        settings = self._settings
        segments = self._opening.open("action", settings.action_segment_bytes, self._action_synced)
        for base in list(segments.bases):
            end = segments.end_of(base)
            if end <= self._action_position:
                continue
            start = max(base, self._action_position)
            scanner = RecordScanner(self._storage.reader(segments.file(base)), base, end, start)
            try:
                for record in scanner:
                    action = decode_action(record)
                    if isinstance(action, OfTransaction):
                        self._commits.note(action)
                    if not isinstance(action, Buried) or self._burials.note(action):
                        self._state.apply(action)
                    self._note(action)
                    self._acted_at_ms = record.at_ms
                    self.report.actions_replayed += 1
                    self._note_synced(action)
            except CorruptRecord as error:
                for record in self._opening.behind(segments, scanner.position):
                    if record.kind == ActionKind.SYNCED:
                        self._note_synced(decode_action(record))
                self._opening.cut(segments, scanner.position, self._action_synced, error)
                break
        if self._state.epochs and self._part.role is Role.LONE:
            detail = "this data folder is of a broker in a group"
            raise SettingsError(f"{detail}: start it with TIDEMILL_REPLICATED=true, or choose another --data")
        return segments

    def _note(self, action: Action) -> None:
        """What else an action says to this recovery."""
        match action:
            case Sought() | GroupForgotten():
                self._burials.moved(action.group)
            case Exhumed():
                self._burials.exhumed(action)
            case _:
                pass

    def _note_synced(self, action: Action) -> None:
        """Up to where this disk has had both logs; of a broker in a group another disk may have written it."""
        if isinstance(action, Synced) and not self._settings.replicated:
            self._message_synced = max(self._message_synced, action.message_position)
            self._action_synced = max(self._action_synced, action.action_position)

    def _replay_messages(self) -> Segments:
        settings = self._settings
        segments = self._opening.open("message", settings.segment_bytes, self._message_synced)
        for base in list(segments.bases):
            end = segments.end_of(base)
            is_open = base == segments.bases[-1]
            known = not is_open and end <= self._message_position
            if known and self._load_index(base, end) and self._load_directory(base):
                continue
            self._state.index.drop(base)
            rows: dict[int, Rows] = {}
            read = self._storage.reader(segments.file(base))
            scanner = BatchScanner(read, base, end, self._message_position)
            try:
                for header, name in scanner:
                    hashes = scanner.key_hashes(header)
                    partition = self._replay_batch(header, name, rows)
                    if header.flags & DEDUPLICATED and self._is_news(header, partition):
                        self._state.deduplication.note(partition, header, partial(scanner.column, header))
                    if (
                        name.startswith(PREFIX)
                        and header.position >= self._message_position
                        and not self._part.follows
                    ):
                        copy = read(header.position - base, header.length)
                        self._burials.found(name, header.position, copy)
                    self._index_batch(header, hashes)
                    segments.records = segments.records + 1 if is_open else 0
            except CorruptBatch as error:
                self._opening.cut(segments, scanner.position, self._message_synced, error)
                is_open = True
            if is_open:
                for identity, recent in rows.items():
                    self._state.partitions[identity].recent = recent
                break
            self._rebuild(base, end, rows)
        self._remove_stale()
        return segments

    def _index_batch(self, header: Header, hashes: memoryview | None) -> None:
        self._state.index.open.note(header.batch_id, header.position)
        if hashes is not None:
            self._state.index.open.note_keys(hashes, header.position)

    def _remove_stale(self) -> None:
        """Runs and indexes of segments that are not sealed, or not there: what was cut may be written otherwise, and
        a file that is made of what it was before must not be taken for its own.
        """
        sealed = {name for base in self._state.index.sealed for name in (run_file(base), index_file(base))}
        for folder in ("consume", INDEXES):
            names = [f"{folder}/{name}" for name in self._storage.names(folder)]
            self._storage.write_now([Remove(name) for name in names if name not in sealed])

    def _is_news(self, header: Header, partition: Partition) -> bool:
        """Whether the checkpoint does not know of a batch, nor of its removal."""
        floor = self._state.tombs.floor(partition)
        return header.position >= self._message_position and header.first_sequence >= floor

    def _replay_batch(self, header: Header, name: bytes, rows: dict[int, Rows]) -> Partition:
        priority = priority_of(header.first_sequence)
        if priority:
            name = lane_name(name.decode(), priority).encode()
        partition = self._state.by_name.get(name) or self._state.tombs.by_name.get(name)
        if header.position < self._message_position and (
            partition is None or header.first_sequence + header.messages > partition.next_sequence
        ):
            raise CorruptBatch("the checkpoint knows no such batch")
        epochs = self._state.epochs
        if self._part.follows and header.epoch > (epochs[-1].epoch if epochs else 1):
            raise CorruptBatch(f"no action has begun epoch {header.epoch}")
        if partition is None:
            partition = self._find_unnamed(name)
        size = pack_size(header.length, header.messages, header.flags & 0xFF)
        if header.first_sequence >= self._state.tombs.floor(partition):
            rows.setdefault(partition.identity, Rows()).append(
                header.first_sequence, header.position, size, header.stored_at_ms, header.bloom
            )
        if header.position >= self._message_position:
            self.report.batches_replayed += 1
            self._commits.found(header)
            partition.next_sequence = max(partition.next_sequence, header.first_sequence + header.messages)
            if header.first_sequence >= self._state.tombs.floor(partition):
                partition.remember(header.producer_id, header.producer_sequence, header.first_sequence)
        return partition

    def _find_unnamed(self, name: bytes) -> Partition:
        """A subject whose batch reached the disk while the action that named it did not."""
        if self._part.follows:
            raise CorruptBatch("no action names the subject of a batch")
        defaults = SubjectSettings(
            self._settings.durability, self._settings.retention_seconds, 0, limits.MESSAGE_BYTES_DEFAULT
        )
        subject = split_lane(name.decode())[0].encode()
        base = self._state.by_name.get(subject)
        if subject != name:
            defaults = (base or self._find_unnamed(subject)).settings
        identity = len(self._state.partitions) + 1
        self._state.apply(SubjectNamed(identity, name.decode(), defaults.to_map()))
        self._unnamed.append(self._state.partitions[identity])
        return self._unnamed[-1]

    def _load_directory(self, base: int) -> bool:
        """The directory of a sealed segment's run; ``False`` when there is none that is whole."""
        file = run_file(base)
        size = self._storage.size(file)
        if size is None or size < 24:
            return False
        read = self._storage.reader(file)
        try:
            front = read(0, min(size, directory_size(read(0, 16))))  # a damaged head may announce terabytes
            runs = decode_directory(front, read(size - 8, 8), size, base)
        except JournalError:
            return False
        for identity, run in runs.items():
            if run.end_sequence > self._state.tombs.floors.get(identity, 0):
                self._state.partitions[identity].runs.append(StoredRun(run))
        return True

    def _load_index(self, base: int, end: int) -> bool:
        """The head of a sealed segment's index; ``False`` when there is none that is whole."""
        file = index_file(base)
        size = self._storage.size(file)
        try:
            head = decode_head(self._storage.reader(file), size, base, end) if size is not None else None
        except JournalError:
            return False
        if head is not None:
            self._state.index.sealed[base] = SegmentIndex(base, end, head=head)
        return head is not None

    def _rebuild(self, base: int, end: int, rows: dict[int, Rows]) -> None:
        """Run and index of a sealed segment, of what was read of it."""
        self.report.runs_rebuilt += 1
        parts = [(identity, rows[identity]) for identity in self._state.partitions if identity in rows]
        index = self._state.index.seal(base, end)
        assert index is not None
        self._state.index.encoded(base, 0)
        self._storage.write_now(
            [Replace(run_file(base), encode_run(parts)), Replace(index_file(base), index)]
        )
        self._state.index.let_go(0)
        assert self._load_directory(base)

    def _settle_sequences(self) -> None:
        """No sequence is used twice: what a group has been given counts as used, even if a power cut took it."""
        for group in self._state.groups.values():
            partition = self._state.partitions[group.partition]
            partition.next_sequence = max(partition.next_sequence, group.cursor)
        for identity, floor in self._state.tombs.floors.items():
            partition = self._state.partitions[identity]
            partition.next_sequence = max(partition.next_sequence, floor)
        for partition in self._state.partitions.values():
            partition.visible = partition.next_sequence

    def _start(self, messages: Segments, actions: Segments, now_ms: int) -> None:
        """The START record, on the disk before anything is served."""
        logs = Logs(messages, actions, self._part.epoch, self._settings.segment_batches)
        boot = self._state.boot + 1
        at_ms = max(now_ms, self._acted_at_ms)  # START alone says that the clock went back, and may be torn
        if self._part.role is Role.MASTER:  # its first record: all that it writes is of its epoch
            epoch = EpochBegun(self._part.epoch, messages.end, actions.end)
            logs.act(epoch, at_ms)
            self._state.apply(epoch)
            boot = self._state.boots_alone + self._part.epoch
        for partition in self._unnamed:
            logs.act(SubjectNamed(partition.identity, partition.name, partition.settings.to_map()), at_ms)
        for action in self._again:
            logs.act(action, at_ms)
        started = Started(boot, max(0, self._acted_at_ms - now_ms))
        logs.act(started, now_ms)
        self._state.apply(started)
        ready = Ready()
        logs.take(ready)
        self._storage.write_now(ready.writes)
