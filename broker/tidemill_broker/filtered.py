"""What a group with a tag filter is given: only the messages that it wants, and its cursor moves over the others.

Runs of a PULL hold wanted messages and no others, so acks, failures and dead letters need know nothing of filters.
Messages that are not wanted are passed over by the next PULL, whose runs lie behind them. When nothing is wanted for
long, a SKIP says so: a restart then does not look at them again. In between ``Group.passed`` remembers them.

The batches that runs are in travel in one of three ways: as they lie in the log, when all that is granted of one is
without a gap; so with a mask; or gathered, when few of a batch are wanted.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from tidemill_broker.actions import Pulled, PullRun, Skipped
from tidemill_broker.consume_log import ConsumeLog
from tidemill_broker.desk import Desk
from tidemill_broker.groups import Group
from tidemill_broker.positions import first_since
from tidemill_broker.pulls import JOINED, RUNS_MAX, Given, ParkedPull, add_slice
from tidemill_broker.salvage import unreadable
from tidemill_broker.sieve import sieve_of
from tidemill_broker.sifting import Seats, Sifting
from tidemill_journal.entries import Rows, row_count, row_length
from tidemill_ledger.gathering import Rows as Indexes
from tidemill_ledger.gathering import runs_of
from tidemill_wire import limits

ROWS_A_TURN = 1 << 16
STEP_ROWS_MIN = 512
"""What a look into a window counts for at least: it costs something, however few rows are passed over."""

SKIP_MESSAGES = 10_000
MASK_BYTES_MAX = limits.CONTROL_BYTES_MAX // 4


class Filtered:
    """Gives messages to groups that do not want all of them."""

    def __init__(self, desk: Desk, consume_log: ConsumeLog) -> None:
        self._desk = desk
        self._state = desk.state
        self._consume_log = consume_log
        self.seats = Seats(desk.logs, consume_log, desk.counters)
        self.later: dict[int, None] = {}
        """Groups that looked at enough rows for one turn, and go on in the next one."""

    def add_new(self, parked: ParkedPull, given: Given, room: int, now_ms: int) -> None:
        """Give new messages that are wanted. Raises ``Loading`` when nothing was given and something has to be read."""
        group = given.consumer.group
        partition = self._state.partitions[group.partition]
        start = max(group.reached, partition.first_kept)
        if group.start_ms:
            start = first_since(self._consume_log, partition, (start, group.start_ms), parked)
        walk = Walk(start, partition.visible)
        try:
            self._walk(walk, parked, given, room)
        except Sifting:
            if not given.runs:
                raise
        finally:
            if not walk.given:
                self._desk.counters.batches_skipped += walk.unread
                self._note(group, walk.at, now_ms)

    def add_again(self, parked: ParkedPull, given: Given, wanted: tuple[int, int, int]) -> int | None:
        """Give a failure out of one batch, gathered when it is little of it; ``None`` when that is not so."""
        first, count, attempts = wanted
        group = given.consumer.group
        rows = self._consume_log.rows_for(self._state.partitions[group.partition], first, parked)
        row = rows.find(first) if rows is not None else 0
        if rows is None or row == len(rows):
            return None
        begin, total = rows.firsts[row], row_count(rows.sizes[row])
        unread = self.seats.refused(group, rows.positions[row])
        if unread and begin <= first:
            return _unread(given, unread, (first, attempts), np.arange(min(count, begin + total - first)))
        if not (begin <= first and first + count <= begin + total) or 2 * count >= total:
            return None
        place = rows.positions[row], row_length(rows.sizes[row])
        indexes = np.arange(first - begin, first - begin + count)
        try:
            batch = self.seats.gathered(group, place, indexes)
        except Sifting:
            if given.runs:
                return 0
            raise
        if batch is None:
            return None
        return self._put(parked, given, (begin, attempts), indexes, batch)

    def doom(self, given: Given, now_ms: int) -> None:
        """Nobody can tell what these messages say: they go where goes what cannot be decoded, and what lies behind them
        is given out.
        """
        pull = self._state.next_pull
        for index, run in enumerate(given.runs):
            given.runs[index] = run._replace(pull=pull)
            pull += run.messages
        identity, ranges = given.consumer.identity, [given.runs[0].pull, pull - 1]
        self._desk.act(Pulled(identity, now_ms, given.runs), now_ms)
        self._desk.act(unreadable(given.consumer, ranges, given.unread, now_ms), now_ms)
        self._desk.wake(now_ms)  # ``ticked`` buries them

    def _walk(self, walk: Walk, parked: ParkedPull, given: Given, room: int) -> None:
        group = given.consumer.group
        partition = self._state.partitions[group.partition]
        while walk.at < walk.visible and given.messages < room and len(given.runs) < RUNS_MAX:
            if given.size >= parked.pull.bytes_max:
                return
            rows = self._consume_log.rows_for(partition, walk.at, parked)
            if rows is None:
                return
            row = self._pass_over(walk, group, rows)
            if row == len(rows):
                continue
            if walk.rows_left <= 0 and walk.at < walk.visible:
                self.later[group.identity] = None
                raise Sifting
            if walk.at < walk.visible and not self._give(walk, parked, given, (rows, row), room):
                return

    def _pass_over(self, walk: Walk, group: Group, rows: Rows) -> int:
        """Move over the rows whose batches certainly hold nothing; the row where that ended."""
        row, settings = rows.find(walk.at), group.settings
        visible = bisect_left(rows.firsts, walk.visible)
        if row >= visible:  # what is between lies in no batch: a power cut took it
            walk.to(walk.visible)
            return len(rows)
        stop = min(visible, row + walk.rows_left)
        found = sieve_of(settings.tags, settings.all_tags).next_row(rows.blooms, row, stop)
        walk.rows_left -= max(STEP_ROWS_MIN, found - row)
        if found > row:
            walk.unread += found - row
            walk.to(rows.firsts[found - 1] + row_count(rows.sizes[found - 1]))
        return found

    def _give(self, walk: Walk, parked: ParkedPull, given: Given, place: tuple[Rows, int], room: int) -> bool:
        """Give what is wanted of a row's batch, or pass over it. False: nothing more fits into the answer."""
        rows, row = place
        group = given.consumer.group
        begin, size = rows.firsts[row], rows.sizes[row]
        end = begin + row_count(size)
        match = self.seats.match(group, rows, row, bisect_left(rows.firsts, walk.visible))
        indexes = np.arange(row_count(size)) if match.rows is None else match.rows
        indexes = indexes[int(np.searchsorted(indexes, walk.at - begin)) :]
        if not len(indexes):
            walk.to(end)
            return True
        if match.unread:
            _unread(given, match.unread, (begin, 0), _cut(indexes, len(indexes), RUNS_MAX)[0])
            return False
        indexes, whole = _cut(indexes, room - given.messages, RUNS_MAX - len(given.runs))
        batch: bytearray | None = None
        if match.gatherable and 2 * len(indexes) < row_count(size):
            batch = self.seats.gathered(group, (rows.positions[row], row_length(size)), indexes)
        if batch is not None:
            got = self._put(parked, given, (begin, 0), indexes, batch)
        else:
            got = self._put_masked(parked, given, place, indexes)
        if got:
            counters = self._desk.counters
            counters.batches_skipped += walk.unread
            counters.messages_skipped += begin + int(indexes[-1]) + 1 - walk.begin - got
            walk.unread, walk.given, walk.begin = 0, True, begin + int(indexes[-1]) + 1
            walk.to(end if whole else begin + int(indexes[-1]) + 1)
        return bool(got) and whole

    def _put(
        self, parked: ParkedPull, given: Given, kind: tuple[int, int], indexes: Indexes, batch: bytearray
    ) -> int:
        """Add a batch that was gathered; 0 when it has to wait for the next answer."""
        if given.slices or (given.size and given.size + len(batch) > parked.pull.bytes_max):
            return 0
        given.gathered.append(batch)
        return _add_runs(given, kind, indexes, len(batch))

    def _put_masked(self, parked: ParkedPull, given: Given, place: tuple[Rows, int], indexes: Indexes) -> int:
        """Add a batch as it lies in the log, with a mask when not all from the first one on are granted."""
        rows, row = place
        length, first = row_length(rows.sizes[row]), int(indexes[0])
        mask = b""
        if int(indexes[-1]) - first + 1 != len(indexes):
            bits = np.zeros(int(indexes[-1]) - first + 1, np.uint8)
            bits[indexes - first] = 1
            mask = np.packbits(bits, bitorder="little").tobytes()
        if given.size and given.size + length > parked.pull.bytes_max:
            return 0
        if mask and sum(map(len, given.masks.values())) + len(mask) > MASK_BYTES_MAX:
            return 0
        if mask:
            given.masks[len(given.runs)] = mask
        add_slice(self._desk.logs, given, rows, row)
        return _add_runs(given, (rows.firsts[row], 0), indexes, length)

    def _note(self, group: Group, at: int, now_ms: int) -> None:
        """Nothing up to ``at`` is wanted, and nothing of it was given."""
        if at <= group.reached:
            return
        self._desk.counters.messages_skipped += at - group.reached
        group.passed = group.cursor, at
        if at - group.cursor >= SKIP_MESSAGES:
            self._desk.act(Skipped(group.identity, group.cursor, at), now_ms)


class Walk:
    """How far one look at a group's messages has come."""

    __slots__ = ("at", "begin", "given", "rows_left", "unread", "visible")

    def __init__(self, at: int, visible: int) -> None:
        self.at = self.begin = at
        self.visible = visible
        self.unread = 0
        self.rows_left = ROWS_A_TURN
        self.given = False

    def to(self, sequence: int) -> None:
        """All before it was looked at."""
        self.at = max(self.at, sequence)


def _add_runs(given: Given, kind: tuple[int, int], indexes: Indexes, size: int) -> int:
    """One grant of one batch: its runs follow each other."""
    begin, attempts = kind
    for number, (first, end) in enumerate(runs_of(indexes)):
        given.runs.append(PullRun(0, begin + first, end - first, attempts))
        given.batches.append(JOINED if number else 1)
    given.messages += len(indexes)
    given.size += size
    return len(indexes)


def _unread(given: Given, unread: str, kind: tuple[int, int], indexes: Indexes) -> int:
    """Messages that cannot be read are next, unless something is given before them."""
    if not given.runs:
        given.unread = unread
        _add_runs(given, kind, indexes, 0)
    return 0


def _cut(indexes: Indexes, messages: int, runs: int) -> tuple[Indexes, bool]:
    """As many as fit, and whether those are all."""
    kept = indexes[:messages]
    breaks = np.flatnonzero(np.diff(kept) != 1)
    if len(breaks) >= runs:
        kept = kept[: int(breaks[runs - 1]) + 1]
    return kept, len(kept) == len(indexes)
