"""What is asked of the broker in memory about messages for later: as a delay service answers it."""

from __future__ import annotations

from tidemill.memory_later import Fate, Kept, MemoryLater
from tidemill.memory_peer import Peer
from tidemill_wire.batch import message_id, parse_message_id
from tidemill_wire.limits import DELAY_MS_MAX, TIMERS_BODIES_BYTES, TIMERS_PAGE_MAX
from tidemill_wire.timing import (
    Cancel,
    Changed,
    ListTimers,
    Reschedule,
    Show,
    Target,
    TimerRow,
    Waiting,
)

DAY_MS = 86_400_000


class MemoryTimers(MemoryLater):
    """Keeps messages for later, and knows of those that wait."""

    def handle(self, peer: Peer, correlation: int, command: Cancel | Reschedule | Show | ListTimers) -> None:
        """Do it and answer."""
        match command:
            case Cancel():
                peer.say(self._cancel(command.target), correlation)
            case Reschedule():
                ahead_ms = command.due_ms - self.clock.now_ms()
                if ahead_ms > DELAY_MS_MAX:
                    detail = f"a message for {ahead_ms / DAY_MS:.1f} days ahead, {DELAY_MS_MAX // DAY_MS} are allowed"
                    peer.fail(correlation, "limit_exceeded", detail)
                else:
                    peer.say(self._reschedule(command), correlation)
            case Show():
                peer.say(self._show(command.target), correlation)
            case ListTimers():
                peer.say(self._list(command), correlation)

    def _of(self, target: Target) -> list[Kept]:
        """All that are meant, whatever became of them."""
        if target.id:
            found = self.kept.get(message_id(*parse_message_id(target.id)))
            return [] if found is None else [found]
        named = target.subject, target.timer_key
        return [one for one in self.kept.values() if (one.subject, one.timer_key) == named]

    def _cancel(self, target: Target) -> Changed:
        """Of what recurs nothing more comes, whichever of its occurrences was meant. Who cancels by id what is
        cancelled is told yes: an answer before this one got lost.
        """
        changed = gone = 0
        for one in self._of(target):
            if one.fate is Fate.WAITS:
                one.fate = Fate.CANCELLED
                changed += 1
            elif one.fate is Fate.CANCELLED:
                changed += bool(target.id)
            else:
                gone += one.fate is Fate.GONE
                changed += _end(one)
        return Changed(changed, gone)

    def _reschedule(self, command: Reschedule) -> Changed:
        found = self._of(command.target)
        waiting = [one for one in found if one.fate is Fate.WAITS]
        self.move(waiting, command.due_ms)
        return Changed(len(waiting), sum(one.fate is Fate.GONE for one in found))

    def _show(self, target: Target) -> Waiting:
        waiting = [one for one in self._of(target) if one.fate is Fate.WAITS]
        rows: list[TimerRow] = []
        room = TIMERS_BODIES_BYTES
        for one in waiting[:TIMERS_PAGE_MAX]:
            rows.append(_row(one, room))
            room -= len(rows[-1].body or b"")
        return Waiting(rows)

    def _list(self, command: ListTimers) -> Waiting:
        """In the order of their times; a page begins behind the time and number of the last one before."""
        begin = tuple(int(part) for part in command.after.split(".")) if command.after else (-1, -1)
        found = sorted(
            (one.due_ms, number)
            for number, one in enumerate(self.kept.values())
            if one.fate is Fate.WAITS and one.timer_key and one.subject == command.subject
            and one.timer_key.startswith(command.prefix)
            and command.since_ms <= one.due_ms < command.until_ms and (one.due_ms, number) > begin
        )  # fmt: skip
        page, everything = found[: command.limit], list(self.kept.values())
        after = f"{page[-1][0]}.{page[-1][1]}" if len(found) > len(page) else ""
        return Waiting([_row(everything[number]) for _, number in page], after)


def _end(left: Kept) -> int:
    """Of the series of an occurrence that has left nothing more comes; 1 if one that waits was cancelled for that."""
    last = left
    while last.follower is not None:
        last = last.follower
    if last is left or last.fate is not Fate.WAITS:
        return 0
    last.fate = Fate.CANCELLED
    return 1


def _row(one: Kept, body_bytes: int = 0) -> TimerRow:
    """What there is to see of it; with its body, when that is not larger."""
    body, said = one.batch.bodies(one.row, one.row)[0], one.recurrence
    return TimerRow(
        one.id, one.subject, one.timer_key, one.due_ms, one.stored_ms, len(body),
        body if len(body) <= body_bytes else None, "" if said is None else f"{said.expression} {said.zone}",
    )  # fmt: skip
