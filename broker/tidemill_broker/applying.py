"""What a slave makes of its master's logs: the same state, and what of it may be looked at."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from tidemill_broker.action_records import decode_action
from tidemill_broker.actions import Buried
from tidemill_broker.machine import Broker
from tidemill_broker.partitions import Partition
from tidemill_host.machine import Buffer, Read, Unread
from tidemill_journal.entries import pack_size
from tidemill_ledger.columns import place_of_key_hashes
from tidemill_ledger.receiving import Gap, Whole, batches_in, records_in
from tidemill_wire.batch import DEDUPLICATED, Header
from tidemill_wire.lanes import lane_name, priority_of
from tidemill_wire.replication import Ends

Batch = tuple[Header, bytes, int]
"""Header, name of the partition, and place of a batch."""


class BrokerApplier:
    """See the module. The broker inside never decides: it holds the state, the logs, and what keeps them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._unseen: deque[tuple[int, Partition, int]] = deque()
        """Ends of batches, and what may be seen when that much is committed."""
        self._at_start = {p.identity: p.next_sequence for p in broker.state.partitions.values()}
        self._end_at_start = broker.logs.messages.end

    def ticked(self, now_ms: int, *, keep: bool) -> int:
        keeping = self._broker.keeping
        if keep:
            keeping.ticked(now_ms)
        self._broker.state.leases.next_end()  # leases that are over go from its heap
        return keeping.wake_at_ms

    def loaded(self, token: int, data: Buffer | Unread) -> None:
        self._broker.consume_log.loaded(token, data)

    def files(self, snapshot: bytes) -> Sequence[tuple[str, int]]:
        return ()

    def take_reads(self) -> list[Read]:
        consume_log = self._broker.consume_log
        reads, consume_log.reads = consume_log.reads, []
        return reads

    def actions(self, whole: Whole, *, apply: bool) -> int:
        records = list(records_in(whole))
        actions = [decode_action(record) for record in records]
        self._broker.logs.follow(self._broker.logs.actions, whole, len(records))
        self._broker.keeping.acted_at_ms = records[-1].at_ms
        if apply:
            state = self._broker.state
            for action in actions:
                # A burial that an earlier recovery of a lone broker undid without a word stands here twice.
                if not isinstance(action, Buried) or action.first in state.groups[action.group].failed:
                    state.apply(action)
        return len(records)

    def messages(self, whole: Whole, *, apply: bool) -> int:
        state, logs = self._broker.state, self._broker.logs
        batches = [(header, _lane_of(header, name), at) for header, name, at in batches_in(whole)]
        named = {**state.tombs.by_name, **state.by_name} if state.tombs.by_name else state.by_name
        unnamed = next((name for _, name, _ in batches if name not in named), None)
        if unnamed is not None and apply:
            raise Gap(f"a batch of {unnamed!r}, which no action has named")
        sealed = logs.follow(logs.messages, whole, len(batches))
        if apply:
            if sealed is not None:
                self._broker.consume_log.seal(sealed)
            self._apply(batches, named, whole.data)
        return len(batches)

    def _apply(self, batches: Sequence[Batch], named: Mapping[bytes, Partition], data: memoryview) -> None:
        state, tombs = self._broker.state, self._broker.state.tombs
        for header, name, at in batches:
            partition = named[name]
            size = pack_size(header.length, header.messages, header.flags & 0xFF)
            end = header.first_sequence + header.messages
            if header.first_sequence >= tombs.floor(partition):
                partition.recent.append(
                    header.first_sequence, header.position, size, header.stored_at_ms, header.bloom
                )
                if header.flags & DEDUPLICATED:
                    state.deduplication.note_in(partition, header, data, at)
                partition.remember(header.producer_id, header.producer_sequence, header.first_sequence)
            partition.next_sequence = max(partition.next_sequence, end)
            index = state.index.open
            index.note(header.batch_id, header.position)
            found = place_of_key_hashes(data, at, header) if header.column_count > 2 else None
            if found is not None:
                index.note_keys(data[at + found[0] : at + found[0] + found[1]], header.position)
            self._unseen.append((header.position + header.length, partition, end))

    def show(self, committed: Ends) -> None:
        if self._at_start and committed.message >= self._end_at_start:
            for identity, end in self._at_start.items():
                self._broker.state.partitions[identity].visible = end
            self._at_start = {}
        while self._unseen and self._unseen[0][0] <= committed.message:
            _, partition, end = self._unseen.popleft()
            partition.visible = max(partition.visible, end)

    def check(self) -> None:
        """One log may be ahead of the other, so not all that holds of a broker holds here."""
        for partition in self._broker.state.partitions.values():
            partition.check()
        for group in self._broker.state.groups.values():
            group.check()
        self._broker.keeping.check()


def _lane_of(header: Header, name: bytes) -> bytes:
    """The name of the partition that a batch is in."""
    priority = priority_of(header.first_sequence)
    return lane_name(name.decode(), priority).encode() if priority else name
