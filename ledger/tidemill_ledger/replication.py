"""The master of a group: a service whose answers wait until every in-sync replica has what they speak of.

The machine inside is the one that runs alone. It numbers its ``Ready``s, and is told how far the host has come with
them; here it is told how far the group has come. So what it shows, answers, checkpoints and lets go is committed.

    Ready n of the inside -> written here, sent to all slaves -> REACHED of all in sync -> persisted(n) inside

What holds: nothing is committed that one of ``waited`` lacks; ``waited`` has all that meta may take for in sync, that
is the appointment's and those who were wished in since; it gets smaller only by an appointment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Generic, TypeVar

from tidemill_host.machine import HOST, Buffer, Durability, Mark, Peer, Ready, Send, Unread
from tidemill_ledger.committed import Numbers, has
from tidemill_ledger.feeds import Feed
from tidemill_ledger.handover import Leaving
from tidemill_ledger.joining import answer_to, is_empty
from tidemill_ledger.lone_lease import LoneLease, refusal
from tidemill_ledger.membership import Part, judge
from tidemill_ledger.pacing import COMMAND_BYTES, Pacing, Traffic, Watch, rate_of
from tidemill_ledger.replicated import Replicated
from tidemill_ledger.unfed import Unfed
from tidemill_wire import limits
from tidemill_wire.commands import Command, Done, Failed, Goodbye, Ping, Sent, Welcome, encode_command
from tidemill_wire.connection import Event, Received
from tidemill_wire.errors import KIND_BY_NAME, Refused, Unavailable, WireError
from tidemill_wire.replication import Appoint, Begin, Ends, Follow, Handover, Reached, Stand, Stood

WATCHED = 8
"""For so many heartbeats the ends of the logs are remembered, to know how long ago a slave had all."""


Inner = TypeVar("Inner", bound=Replicated)


class Master(Generic[Inner]):
    """See the module."""

    def __init__(self, inner: Inner, name: str, part: Part, now_ms: int) -> None:
        assert part.appoint is not None
        self.inner = inner
        self.name = name
        self.part = part
        self.appointment = part.appoint.appointment
        self.feeds: dict[Peer, Feed] = {}
        self._joining: dict[str, None] = {}
        """Wished to be in sync: meta may have granted it."""
        self._reached: dict[str, Reached] = {}
        self._heard: dict[str, int] = dict.fromkeys(part.appoint.appointment.replicas, now_ms)
        self._local = Mark(0, 0)
        ends = self.ends
        self._written, self._synced = Numbers(ends), Numbers(ends)
        self._held: dict[Durability, deque[tuple[int, Send]]] = {
            Durability.WRITTEN: deque(), Durability.SYNCED: deque(),
        }  # fmt: skip
        self._out: list[Send] = []
        self._drops: list[Peer] = []
        self._past: deque[tuple[int, Ends]] = deque([(now_ms, ends)], WATCHED)
        self._now_ms = self._beat_at_ms = now_ms
        self._over = False
        self._leaving: Leaving | None = None
        self._lease = LoneLease(part.appoint)
        self.pacing = Pacing()
        self.unfed = Unfed()
        self._watch = Watch(inner.logs.bytes_appended, now_ms)
        self._traffic = Traffic(0, 0)
        inner.hide()
        self._advance()

    @property
    def ends(self) -> Ends:
        logs = self.inner.logs
        return Ends(logs.messages.end, logs.actions.end)

    @property
    def committed(self) -> Ends:
        """What every in-sync replica has in its page cache."""
        return self._written.ends

    @property
    def waited(self) -> list[str]:
        """The slaves that must have what is committed."""
        return [
            name for name in {**dict.fromkeys(self.appointment.in_sync), **self._joining} if name != self.name
        ]

    # The contract.

    def connected(self, peer: Peer, now_ms: int) -> None:
        self.inner.connected(peer, now_ms)

    def disconnected(self, peer: Peer, now_ms: int, silent_ms: int = 0) -> None:
        self.feeds.pop(peer, None)
        self.inner.disconnected(peer, now_ms, silent_ms)

    def received(self, peer: Peer, command: Event, now_ms: int) -> None:
        self._now_ms = now_ms
        if self._over:
            return  # whoever takes over will answer
        correlation = command.correlation
        try:
            match command.command if isinstance(command, Received) else None:
                case Follow() as follow:
                    self._follow(peer, follow, now_ms)
                case Reached() as reached:
                    self._hear(peer, reached, now_ms)
                case Appoint() as appoint:
                    self._appoint(appoint)
                    self._say(peer, correlation, Done())
                case Stand(asks):
                    self._say(peer, correlation, self.stand(asks=asks))
                case Handover(to):
                    self._hand_over(to, (peer, correlation), now_ms)
                case Ping() | Goodbye():
                    self.inner.received(peer, command, now_ms)
                case Sent() | Failed() | Welcome() if self.halted:
                    self._drops.append(peer)  # an answer that can have no consequence: it is asked for again
                case _ if self._leaving is not None:
                    raise self._leaving.refusal()
                case _ if self.halted:
                    raise refusal(self.name)
                case _:
                    self._watch.served += COMMAND_BYTES
                    self.inner.received(peer, command, now_ms)
        except WireError as error:
            self._say(peer, correlation, Failed(error.kind.number, error.detail))

    def ticked(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if self._over:
            return
        if self._leaving is not None and self._leaving.is_over(now_ms):
            self._stay(self._leaving)
        elif not self.halted:
            self.inner.ticked(now_ms)
        if now_ms >= self._beat_at_ms:
            self._beat_at_ms = now_ms + limits.HEARTBEAT_MS
            self._past.append((now_ms, self.ends))
            self._drops += [
                feed.peer
                for feed in self.feeds.values()
                if now_ms - feed.heard_at_ms > limits.SLAVE_SILENT_MS
            ]

    def persisted(self, mark: Mark, now_ms: int) -> None:
        self._now_ms = now_ms
        self._local = mark
        self.inner.reveal(Durability.HERE, mark.written, now_ms)
        self._advance()

    def loaded(self, token: int, data: Buffer | Unread, now_ms: int) -> None:
        self._now_ms = now_ms
        self.inner.loaded(token, data, now_ms)

    def ready(self) -> Ready:
        out = Ready()
        if not self._over:
            self.inner.hold(on=not all(feed.counts for feed in self.feeds.values()))
            mine = self.inner.ready()
            out = Ready(mine.writes, [], mine.reads, list(mine.drops), mine.sync, mine.wake_at_ms)
            if mine.writes:
                self._written.note(self.inner.logs.number, self.ends)
                self._synced.note(self.inner.logs.number, self.ends)
            for send in mine.sends:
                self._hold(send, out)
            out.sends += self._out
            self._out = []
            if self._watch.is_due(self._now_ms):
                self._traffic = self._watch.look(self.inner.logs.bytes_appended, self._now_ms)
                self._pace()
            wake_at_ms = self._beat_at_ms if self.halted else mine.wake_at_ms or self._beat_at_ms
            out.wake_at_ms = min(self._beat_at_ms, wake_at_ms)
            for feed in list(self.feeds.values()):
                out.sends += self._feed(feed, sync=out.sync)
                out.wake_at_ms = min(out.wake_at_ms, feed.pace.wake_at_ms(self._now_ms) or out.wake_at_ms)
        out.sends += self._out
        out.drops += self._drops
        self._out, self._drops = [], []
        return out

    # What is committed.

    def _hold(self, send: Send, ready: Ready) -> None:
        if send.slices:
            self._watch.served += sum(piece.size for piece in send.slices)
        if send.after is Durability.HERE:
            ready.sends.append(send)
            return
        if send.after is Durability.SYNCED or not self._spread:
            ready.sync = True
        self._held[send.after].append((self.inner.logs.number, send))
        if self._is_committed(send.after, self.inner.logs.number):
            self._release()

    @property
    def _spread(self) -> bool:
        """Another one that meta would elect has what is committed in its page cache, or there is no other replica."""
        return len(self.appointment.in_sync) > 1 or len(self.appointment.replicas) == 1

    @property
    def halted(self) -> bool:
        """It takes nothing from clients, and does nothing by itself."""
        return self._over or self._leaving is not None or self._lease.is_over(self.appointment, self._now_ms)

    def _is_committed(self, level: Durability, number: int) -> bool:
        return number <= (self._synced if level is Durability.SYNCED else self._written).number

    def _advance(self) -> None:
        """Something was written, synced or reached, or there are others to wait for."""
        if self._lease.is_over(self.appointment, self._now_ms):
            return  # what somebody else may not have is committed by nobody
        others = [self._reached.get(name) for name in self.waited]
        before = (self._written.number, self._synced.number)
        if None not in others:
            there = [one for one in others if one is not None]
            local = self._local.written if self._spread else self._local.synced
            self._written.reach(local, [one.written for one in there])
            self._synced.reach(self._local.synced, [one.synced for one in there])
        mark = Mark(self._written.number, min(self._written.number, self._synced.number))
        if mark.written >= 0 and (self._written.number, self._synced.number) != before:
            self.inner.persisted(Mark(mark.written, max(0, mark.synced)), self._now_ms)
            self._release()
        self._leave()

    def _release(self) -> None:
        for level, held in self._held.items():
            while held and self._is_committed(level, held[0][0]):
                send = held.popleft()[1]
                self._out.append(send._replace(after=Durability.WRITTEN))

    # Slaves.

    def _pace(self) -> None:
        """Say how fast each slave may be fed; those that are waited for, or nearly there, as fast as they take it."""
        ends, waited = self.ends, self.waited
        far = [feed for feed in self.feeds.values() if feed.lacks(ends) > self.pacing.near_bytes]
        copying = [feed for feed in far if feed.name not in waited]
        rate = rate_of(self._traffic, len(copying), self.pacing) if copying else 0
        for feed in self.feeds.values():
            feed.pace.set(rate if feed in copying else 0, self._now_ms)

    def _feed(self, feed: Feed, *, sync: bool) -> Iterable[Send]:
        logs = self.inner.logs
        if feed.is_late(logs):
            del self.feeds[feed.peer]  # said once: who is asked until nothing is left to say would never end
            self._drops.append(feed.peer)
            return []
        first = self.inner.folds_messages
        chunks = feed.chunks(logs, self.committed, self._now_ms, sync=sync, messages_first=first)
        sends = [one._replace(unread=partial(self._unread, feed)) for one in chunks]
        if not sends and (sync or self._now_ms - feed.said_at_ms >= limits.HEARTBEAT_MS):
            sends.append(feed.beat(logs, self.committed, sync, self._now_ms))
        return sends

    def _unread(self, feed: Feed, unread: Unread, now_ms: int) -> None:
        """A piece did not leave: what is behind it would be a gap."""
        if self.feeds.get(feed.peer) is feed:
            del self.feeds[feed.peer]
            error = self.unfed.note(feed.name, unread, now_ms)
            self._say(feed.peer, 0, Failed(error.kind.number, error.detail))

    def _follow(self, peer: Peer, follow: Follow, now_ms: int) -> None:
        """A slave asks to be fed: from where its logs end, unless it has what this epoch has not."""
        appointment = self.appointment
        if follow.epoch != appointment.epoch or follow.name not in appointment.replicas:
            detail = (
                f"{self.name} is master of epoch {appointment.epoch}, which {follow.name} does not follow"
            )
            raise Unavailable("not_master", detail)
        self.unfed.check(follow.name, now_ms)
        for other in [one for one in self.feeds.values() if one.name == follow.name]:
            del self.feeds[other.peer]
            self._drops.append(other.peer)
        answer, snapshot = answer_to(follow, self.inner, self.appointment.epoch, now_ms)
        self._say(peer, 0, answer)
        if answer.anew or (answer.start != follow.ends and not is_empty(follow.ends, answer.start)):
            return  # it will come again
        feed = self.feeds[peer] = Feed(peer, follow.name, answer.start, now_ms)
        if snapshot:
            feed.copy(snapshot, self.inner.files())
            self.inner.hold(on=True)
        self._reached.pop(follow.name, None)
        self._pace()

    def _hear(self, peer: Peer, reached: Reached, now_ms: int) -> None:
        feed = self.feeds.get(peer)
        if feed is None or reached.epoch != self.appointment.epoch:
            self._drops.append(peer)
            return
        feed.heard(reached, now_ms)
        if feed.counts:
            self._heard[feed.name] = now_ms
            self._reached[feed.name] = reached
            self._advance()

    # Handing over.

    def _hand_over(self, to: str, asker: tuple[Peer, int], now_ms: int) -> None:
        if self._leaving is not None:
            raise Unavailable("too_many_requests", f"a hand-over to {self._leaving.to} is under way")
        if to not in self.waited:
            raise Refused("not_found", f"{to[:100]!r} is no slave in sync")
        self._leaving = Leaving(to, asker, now_ms)
        self.inner.keeping.sync_now = True
        self._leave()

    def _leave(self) -> None:
        """Tell who asked that the slave has all, as soon as it has."""
        leaving = self._leaving
        if leaving is None:
            return
        if leaving.leave(self._reached.get(leaving.to), self.ends, self.committed):
            self._say(*leaving.asker, Done())

    def _stay(self, leaving: Leaving) -> None:
        """Nobody was appointed: go on."""
        self._leaving = None
        if not leaving.left:
            detail = f"{leaving.to} did not get all in {limits.HANDOVER_MS} ms; this broker goes on as master"
            self._say(*leaving.asker, Failed(KIND_BY_NAME["too_slow"].number, detail))

    # Meta.

    def _appoint(self, appoint: Appoint) -> None:
        verdict = judge(self.name, self.part, self.appointment.epoch, appoint)
        if isinstance(verdict, Begin):
            self._over = True
            self._say(HOST, 0, verdict)
            return
        if appoint.appointment.version > self.appointment.version:
            self._joining.clear()
        if appoint.appointment != self.appointment:
            self.inner.keeping.sync_now = True  # with nobody else in sync, the disk is what keeps
        self.part, self.appointment = verdict, appoint.appointment
        self._lease.told(appoint)
        self._advance()

    def stand(self, *, asks: bool = False) -> Stood:
        """How it stands. Who asks what is wished may grant it: from then on the wished ones are waited for."""
        appointment = self.appointment
        wish = self._wish() if self._leaving is None else None
        if asks and wish is not None:
            self._joining |= dict.fromkeys(name for name in wish if name not in appointment.in_sync)
            self._pace()
        slaves = {name: reached.written for name, reached in self._reached.items()}
        role = "master" if self._leaving is None else "leaving"
        return Stood(
            self.name, role, appointment.epoch, appointment.version, appointment.epoch, self.ends,
            self.committed, self.name, wish, slaves, self._now_ms, (self.name, *self.waited),
        )  # fmt: skip

    def _wish(self) -> Sequence[str] | None:
        """In sync is to be who has all, or had all ``SLAVE_SILENT_MS`` ago and was so before."""
        appointment, wish = self.appointment, list[str]()
        for name in appointment.replicas:
            if name == self.name:
                there = True
            elif name in appointment.in_sync:
                there = self._lag_ms(name) <= limits.SLAVE_SILENT_MS
            else:
                there = self._has_committed(name) and self._lag_ms(name) <= 2 * limits.HEARTBEAT_MS
            if there:
                wish.append(name)
        settled = set(wish) == set(appointment.in_sync) and not set(self._joining) - set(wish)
        return None if settled else wish  # also to hear again that who was wished in, and is gone, is not

    def _has_committed(self, name: str) -> bool:
        """Whether a slave may become master now: what was committed without it, it has. Once it is wished in, nothing
        is committed without it.
        """
        reached = self._reached.get(name)
        return reached is not None and has(reached.written, self.committed)

    def _lag_ms(self, name: str) -> int:
        """How long ago a slave was heard of, or this broker had no more than the slave has now."""
        silent_ms = self._now_ms - self._heard.get(name, 0)
        reached = self._reached.get(name)
        if reached is None or reached.written == self.ends:
            return silent_ms
        had = [at_ms for at_ms, ends in self._past if has(reached.written, ends)]
        return max(silent_ms, self._now_ms - max(had, default=0))

    def _say(self, peer: Peer, correlation: int, command: Command) -> None:
        self._out.append(Send(peer, encode_command(command, correlation), (), Durability.WRITTEN))

    def check(self) -> None:
        """Invariants, after every step in the simulator."""
        self.inner.check()
        assert self._written.number <= self._local.written
        for name in self.waited:
            reached = self._reached.get(name)
            assert reached is None or reached.epoch == self.appointment.epoch
