"""The delay service as a machine: commands and ``now`` in, a ``Ready`` out.

received  ->  SEND       intake        answered when written or synced
              SENT       courier       the broker has it: DISPATCHED
              CANCEL ... timers        looked for in the names of the hours
ticked    ->  hours that come near are loaded, what is due is taken off the wheel, syncs and checkpoints
persisted ->  what was written may be read: pages; what is on the disk may leave, and may be found: pieces that are due
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tidemill_delay.actions import Action, Begun, encode_action
from tidemill_delay.asking import Change, Hands
from tidemill_delay.courier import LATE_MS, Courier
from tidemill_delay.intake import Intake
from tidemill_delay.keeping import SETTLING, Keeping
from tidemill_delay.loading import Page
from tidemill_delay.nearing import Nearing
from tidemill_delay.outcomes import Outcomes
from tidemill_delay.recurring import FIRST_TOKEN, Recurring
from tidemill_delay.routing import Ways
from tidemill_delay.settings import DelaySettings
from tidemill_delay.snapshots import files_of
from tidemill_delay.state import State
from tidemill_delay.timers import Timers
from tidemill_delay.waits import Waits
from tidemill_delay.wheel import Entries, Wheel
from tidemill_host.machine import Buffer, Durability, Mark, Peer, Read, Ready, Send, Slice, Unread
from tidemill_ledger.logs import Logs
from tidemill_wire.commands import (
    Command,
    Done,
    Failed,
    Goodbye,
    Ping,
    SendBatches,
    Sent,
    Welcome,
    encode_command,
)
from tidemill_wire.connection import Event, Rejected
from tidemill_wire.errors import Refused, Unavailable, WireError
from tidemill_wire.replication import EpochStart
from tidemill_wire.timing import Cancel, ListTimers, Reschedule, Show


class Delay:
    """One delay service."""

    folds_messages = True

    def __init__(self, state: State, logs: Logs, settings: DelaySettings, now_ms: int) -> None:
        self.state = state
        self.logs = logs
        self.settings = settings
        self.intake = Intake(state, logs, settings.hour_ms, 1000 * settings.horizon_seconds)
        self.keeping = Keeping(state, logs, settings, now_ms)
        self.wheel = Wheel(settings.tick_ms)
        self.courier = Courier(settings, state.begun_ms)
        hands = Hands(state, settings.tick_ms, self.act, self._move, self.intake.check_moved)
        self.waits = Waits(logs, self.keeping)
        self.timers = Timers(hands, settings.hour_ms, self.waits.after_sync)
        self.recurring = Recurring(hands, self._leave)
        self.refused: Counter[str] = Counter()
        self.outcomes = Outcomes(hands)
        self._sends: list[Send] = []
        self._reads: list[Read] = []
        self.nearing = Nearing(state.hours, settings.hour_ms, settings.ahead_ms)
        self._page: Page | None = None
        self._page_at_ms = 0
        self.unread = 0
        """How often the disk did not read what it has."""
        self.leaving = 0
        """Messages that were taken off the wheel and wait for the disk."""
        self._draining = self._hidden = False
        self._wake_at_ms = now_ms

    # The contract.

    def connected(self, peer: Peer, now_ms: int) -> None:
        """Whoever it is."""

    def disconnected(self, peer: Peer, now_ms: int, silent_ms: int = 0) -> None:
        self.courier.lost(peer)
        self._work(now_ms)

    def received(self, peer: Peer, command: Event, now_ms: int) -> None:
        correlation = command.correlation
        if isinstance(command, Rejected):
            self._refuse(peer, correlation, command.error)
            return
        try:
            self._decide(peer, correlation, command.command, now_ms)
        except WireError as error:
            self._refuse(peer, correlation, error)

    def ticked(self, now_ms: int) -> None:
        self._turn(now_ms)
        self.keeping.ticked(now_ms, None if self._page is None else self._page.hour.start_ms)
        self._set_wake(now_ms)

    def persisted(self, mark: Mark, now_ms: int) -> None:
        self.logs.persisted(mark)
        if self._hidden:
            self._hidden = False
            self._turn(now_ms)
        if self.waits.persisted(mark, now_ms):
            self._turn(now_ms)
        self.keeping.persisted(now_ms)
        self._set_wake(now_ms)

    def hide(self) -> None:
        """Send nothing before the first mark: nobody knows yet who else has what a master begins with."""
        self._hidden = True

    def reveal(self, level: Durability, reached: int, now_ms: int) -> None:
        """Nothing is of so little worth that it would not wait for the others."""

    @property
    def epochs(self) -> Sequence[EpochStart]:
        """Those that its log has begun."""
        return self.state.epochs

    def files(self) -> Sequence[Slice]:
        """What a copy needs besides a checkpoint: the hours as they are now."""
        return [Slice(file, 0, size) for file, size in files_of(self.state) if size]

    def hold(self, *, on: bool) -> None:
        """A slave is being sent them."""
        self.keeping.held = on

    def loaded(self, token: int, data: Buffer | Unread, now_ms: int) -> None:
        if token == SETTLING:
            self.keeping.settled_some(now_ms)
        elif token < -FIRST_TOKEN:
            self.unread += isinstance(data, Unread)
            self.recurring.loaded(token, data, now_ms)
        elif token < 0:
            self.unread += isinstance(data, Unread)
            self.timers.loaded(token, data, now_ms)
        elif isinstance(data, Unread):
            self._unread(token, now_ms)
        elif token == 0:
            self._page_loaded(data, now_ms)
        else:
            self.courier.loaded(token, data, now_ms)
        self._work(now_ms)

    def ready(self) -> Ready:
        level = Durability.SYNCED if self.settings.synced else Durability.WRITTEN
        for peer, correlation, answer in self.timers.answers:
            self._say(peer, correlation, answer, level)
        sends = [*self._sends, *self.courier.sends]
        reads = [*self._reads, *self.timers.reads, *self.recurring.take_reads()]
        reads += [*self.courier.reading.take_reads(), *self.keeping.take_reads()]
        ready = Ready(sends=sends, reads=reads, drops=self.courier.drops, sync=self.keeping.wants_sync())
        self._sends, self._reads = [], []
        self.courier.sends, self.courier.drops = [], []
        self.timers.answers, self.timers.reads = [], []
        self.logs.take(ready)
        ready.wake_at_ms = self._wake_at_ms
        return ready

    # Decisions.

    def _decide(self, peer: Peer, correlation: int, command: Command, now_ms: int) -> None:
        match command:
            case SendBatches():
                self._take(peer, correlation, command, now_ms)
            case Sent() | Failed() if self.courier.knows(peer):
                self.outcomes.arrived(self.courier.answered(peer, correlation, command, now_ms), now_ms)
                self._work(now_ms)
            case Cancel() | Reschedule() | Show() | ListTimers():
                self._ask(peer, correlation, command, now_ms)
            case Welcome():
                self.courier.met(peer, command.broker.partition("-")[0])
                self._work(now_ms)
            case Ping():
                self._say(peer, correlation, Done(), Durability.HERE)
            case Goodbye():
                self.disconnected(peer, now_ms)
            case _:
                raise Refused("malformed_command", f"a delay service does not take {command.kind.name}")
        self._set_wake(now_ms)

    def _take(self, peer: Peer, correlation: int, command: SendBatches, now_ms: int) -> None:
        if self._draining:
            raise Unavailable("shutting_down", "the delay service is about to stop")
        taken = self.intake.take(command.batches, now_ms, command.refused, command.payer)
        if taken.entries:
            self.waits.placed()
        for entries in taken.entries:
            self._placed(entries, now_ms)
        self.keeping.note(len(taken.firsts), now_ms)
        level = Durability.SYNCED if self.settings.synced else Durability.WRITTEN
        self._say(peer, correlation, Sent(taken.firsts, taken.refused, waits=taken.waits), level)
        if taken.entries:
            self.waits.turn_after_placed()

    def _ask(self, peer: Peer, correlation: int, command: Change | ListTimers, now_ms: int) -> None:
        if self._draining:
            raise Unavailable("shutting_down", "the delay service is about to stop")
        if isinstance(command, Reschedule):
            self.intake.check_time(command.due_ms, now_ms)
        self.timers.asked(peer, correlation, command, now_ms)

    def _move(self, batch: bytearray, now_ms: int) -> None:
        """Messages that wait have another time: the same record of the message log says both."""
        moved = self.intake.put(batch, now_ms)
        self.waits.placed()
        for entries in moved:
            self._placed(entries, now_ms)
        self.keeping.note(1, now_ms)
        self.waits.turn_after_placed()

    def _placed(self, entries: Entries, now_ms: int) -> None:
        """What falls into what is in the wheel of its hour goes there as well, when the disk has it."""
        self.nearing.placed(entries.hour)
        page = self._page
        if page is not None and page.hour.start_ms == entries.hour:
            page.placed(entries)
        high_ms = self.nearing.high_ms(entries.hour)
        if high_ms is not None:
            near = entries.where(entries.due <= high_ms)
            self.waits.after_placed(lambda _now_ms: self._add(near, relieve=self._page is None), now_ms)
            soon_ms = now_ms + self.settings.sync_interval_ms
            self.keeping.sync_now |= len(near.due) > 0 and int(near.due.min()) <= soon_ms

    @property
    def due(self) -> int:
        """Messages that are due and not done."""
        return self.leaving + self.recurring.size + self.courier.size

    def act(self, action: Action, now_ms: int) -> None:
        """Write an action, and apply it."""
        self.logs.record(*encode_action(action), now_ms)
        self.keeping.note(1, now_ms)
        self.state.apply(action)

    # Time.

    def _turn(self, now_ms: int) -> None:
        """Load what comes near, send what is due."""
        if self._hidden:
            return
        self.recurring.work(now_ms)
        due: list[Entries] = []
        for entries in self.wheel.take(now_ms):
            hour = self.state.hours.get(entries.hour)  # gone when all that was left of it is cancelled
            left = None if hour is None else entries.where(hour.done.without(entries.numbers))
            if left is not None and len(left.due):
                due.append(left)
        if due:
            self._begin(due, now_ms)
        self._work(now_ms)

    def _work(self, now_ms: int) -> None:
        """Let the courier go on; whatever has left, or cannot leave, has made room."""
        self.courier.work(now_ms)
        self.outcomes.given_up(self.courier.take_ended(), now_ms)
        self._load(now_ms)
        self._set_wake(now_ms)

    def _begin(self, due: list[Entries], now_ms: int) -> None:
        """Its tick has begun: nothing of it leaves before the disk knows that, and has the messages themselves. So no
        life after this one cancels what has left.
        """
        tick_ms = self.settings.tick_ms
        until_ms = now_ms // tick_ms * tick_ms
        if until_ms > self.state.begun_ms:
            self.act(Begun(until_ms), now_ms)
        self._leave(self.recurring.hold(due, now_ms), now_ms)

    def _leave(self, due: list[Entries], now_ms: int) -> None:
        """To brokers, when the disk has all that was written."""
        count = sum(len(entries.due) for entries in due)
        self.leaving += count

        def leave(now_ms: int) -> None:
            self.leaving -= count
            for entries in due:
                self.courier.take(entries)
            self._work(now_ms)

        self.waits.after_sync(leave, now_ms)

    def _load(self, now_ms: int) -> None:
        """Begin to load the next page: of the earliest hour that is near and not wholly in the wheel."""
        if self._page is not None or now_ms < self._page_at_ms:
            return
        settings = self.settings
        start_ms = self.nearing.earliest(self.state.hours, self.state.closed_ms)
        if start_ms is None or now_ms < self.nearing.nears_ms(start_ms):
            return
        high_ms = self.nearing.high_ms(start_ms)
        room = settings.wheel_messages - self.wheel.size - self.due
        room += min(self.courier.stuck, settings.stuck_messages)
        if high_ms is not None and room < settings.wheel_messages // 2:
            return  # there is something of this hour in the wheel: when half of it is gone, more comes
        self._page = Page(self.state.hours[start_ms], settings, -1 if high_ms is None else high_ms, room)
        self.waits.after_placed(self._read_page, now_ms)

    def _read_page(self, now_ms: int) -> None:
        page = self._page
        assert page is not None
        piece = page.next()
        if piece is not None:
            self._reads.append(Read(0, piece))
            return
        self._page = None
        assert page.high_ms is not None
        self.nearing.loaded(page.hour.start_ms, page.high_ms)
        self.waits.after_placed(lambda now_ms: self._fill(page, now_ms), now_ms)

    def _fill(self, page: Page, now_ms: int) -> None:
        for entries in page.take():
            self._add(entries)
        self._turn(now_ms)

    def _add(self, entries: Entries, *, relieve: bool = False) -> None:
        """Into the wheel, up to where its hour is there by now: what is due later is loaded with the next page."""
        if (high_ms := self.nearing.high_ms(entries.hour)) is not None:
            self.wheel.add(entries.where(entries.due <= high_ms))
        if relieve:
            self.nearing.relieve(self.wheel, self.settings.wheel_messages)

    def _unread(self, token: int, now_ms: int) -> None:
        """The disk refuses to read: nothing is given up for it, so it is tried again."""
        self.unread += 1
        if token:
            self.courier.reading.unread(token, now_ms)
        else:
            self._page = None
            self._page_at_ms = now_ms + LATE_MS

    def _page_loaded(self, data: Buffer, now_ms: int) -> None:
        assert self._page is not None
        self._page.loaded(data)
        self._read_page(now_ms)

    def _set_wake(self, now_ms: int) -> None:
        wakes = [
            self.keeping.wake_ms(now_ms),
            self.wheel.next_ms(),
            self.courier.wake_ms(),
            self.recurring.wake_ms(),
            self._next_hour(now_ms),
        ]
        self._wake_at_ms = max(now_ms + 1, min(wake for wake in wakes if wake is not None))

    def _next_hour(self, now_ms: int) -> int | None:
        """When an hour comes near; of one that is partly in the wheel, whoever takes something off it looks."""
        start_ms = self.nearing.earliest(self.state.hours, self.state.closed_ms)
        if start_ms is None or self._page is not None or self._hidden:
            return None
        if self.nearing.high_ms(start_ms) is not None:
            return self._page_at_ms if self._page_at_ms > now_ms else None
        return max(now_ms + 1, self.nearing.nears_ms(start_ms), self._page_at_ms)

    def route(self, subject: str, groups: Sequence[str], now_ms: int, ways: Ways | None = None) -> None:
        """Somebody says which broker groups take a subject."""
        self.courier.route(subject, groups, ways)
        self._work(now_ms)

    def gone(self, subject: str, now_ms: int) -> None:
        """Somebody says that there is no such subject."""
        self.courier.forget(subject)
        self._work(now_ms)

    def everywhere(self, groups: Sequence[str], now_ms: int) -> None:
        """Broker groups that take every subject."""
        self.courier.route_all(groups)
        self._work(now_ms)

    # Plumbing.

    def drain(self) -> None:
        """Take no more work."""
        self._draining = True

    def _say(self, peer: Peer, correlation: int, command: Command, after: Durability) -> None:
        self._sends.append(Send(peer, encode_command(command, correlation), (), after))

    def _refuse(self, peer: Peer, correlation: int, error: WireError) -> None:
        self.refused[error.kind.name] += 1
        self._say(peer, correlation, Failed(error.kind.number, error.detail, error.wait_ms), Durability.HERE)

    def check(self) -> None:
        """The invariants of everything, after every step in the simulator."""
        self.state.check()
        self.wheel.check()
        self.courier.check()
        self.recurring.check()
        self.nearing.check(self.state.hours, self.state.closed_ms)
