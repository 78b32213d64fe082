"""What a slave makes of its master's logs: the same hours, with the same messages at the same places.

It sends nothing to brokers and closes nothing by itself: what was sent and closed comes in the action log.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemill_delay.actions import Closed, decode_action
from tidemill_delay.intake import placed_again
from tidemill_delay.machine import Delay
from tidemill_delay.snapshots import files_of, unpack_state
from tidemill_host.machine import Buffer, Read, Unread
from tidemill_ledger.receiving import Whole, batches_in, records_in
from tidemill_wire.replication import Ends


class DelayApplier:
    """See the module. The service inside never decides: it holds the state, the logs, and what keeps them."""

    def __init__(self, delay: Delay) -> None:
        self._delay = delay
        delay.keeping.leads = False
        delay.keeping.committed = Ends(0, 0)

    def ticked(self, now_ms: int, *, keep: bool) -> int:
        keeping = self._delay.keeping
        if keep:
            keeping.ticked(now_ms)
        return keeping.wake_ms(now_ms)

    def loaded(self, token: int, data: Buffer | Unread) -> None:
        """Files of hours are on the disk: it reads nothing else."""
        self._delay.keeping.settled_some(0)

    def take_reads(self) -> list[Read]:
        return self._delay.keeping.take_reads()

    def files(self, snapshot: bytes) -> Sequence[tuple[str, int]]:
        return files_of(unpack_state(snapshot)[0])

    def messages(self, whole: Whole, *, apply: bool) -> int:
        delay = self._delay
        batches = list(batches_in(whole))
        delay.logs.follow(delay.logs.messages, whole, len(batches))
        for header, _, at in batches if apply else ():
            batch = whole.data[at : at + header.length]
            for _, appends in placed_again(delay.state, batch, delay.settings.hour_ms):
                for file, buffers in appends:
                    for buffer in buffers:
                        delay.logs.append(file, buffer, len(buffer), apart=True)
        return len(batches)

    def actions(self, whole: Whole, *, apply: bool) -> int:
        delay, state = self._delay, self._delay.state
        records = list(records_in(whole))
        actions = [decode_action(record) for record in records]
        delay.logs.follow(delay.logs.actions, whole, len(records))
        for record, action in zip(records, actions, strict=True) if apply else ():
            before = list(state.hours) if isinstance(action, Closed) else []
            state.apply(action)
            if isinstance(action, Closed):
                gone = [start_ms for start_ms in before if start_ms not in state.hours]
                delay.keeping.closed(record.position + record.length, gone)
        return len(records)

    def show(self, committed: Ends) -> None:
        keeping = self._delay.keeping
        keeping.committed = Ends(*map(max, keeping.committed or committed, committed))
        keeping.persisted(0)

    def check(self) -> None:
        """Its messages come before its actions, so that nothing is done that was not placed."""
        self._delay.keeping.check()
