"""A process that consumes in order: the client's paper, and a shell of a few lines."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from samples.brokers import Rig
from sim.ordered.checker import Checker
from tidemill.strands import Strand, Strands
from tidemill.tenure import Moment, Tenure
from tidemill_host.machine import Peer
from tidemill_wire.columns import Batch
from tidemill_wire.commands import Ack, Done, Extend, Failed, Pull, Pulled, Release, Yield
from tidemill_wire.grants import Piece, add_pieces
from tidemill_wire.kinds import Mode

SUBJECTS, GROUP = ("s", "t"), "g"
LEASE_S = 10.0
RENEW_S = 3.0
PULL_WAIT_MS = 2_000


@dataclass(slots=True, eq=False)
class Held:
    """A message in hand."""

    partition: str
    key: str
    number: int
    pull: int
    until: float
    """By the steady clock; nothing is begun after it without asking."""
    ends: float = 0.0


class Asked(Protocol):
    """What a heartbeat is answered, or nothing when meta cannot be reached."""

    def __call__(self, process: str, applied: Mapping[str, int]) -> Sequence[Mapping[str, Any]] | None: ...


class Link:
    """A connection to one broker, gone when the broker was started again."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.life = rig.broker
        self.peer: Peer = rig.connect()
        self.waiting: tuple[int, Mapping[str, int]] | None = None
        """The pull that was not answered yet, and the version of each partition."""
        self.resumed = False

    @property
    def broken(self) -> bool:
        return self.rig.broker is not self.life


class Process:
    """See the module."""

    def __init__(
        self,
        name: str,
        rigs: Mapping[str, Rig],
        chance: random.Random,
        checker: Checker,
        subjects: Sequence[str] = SUBJECTS,
    ) -> None:
        self.name = name
        self.tenures = {subject: Tenure() for subject in subjects}
        self.paused = self.asleep = False
        self.slept_s = self.wall_ahead_s = 0.0
        self._rigs = rigs
        self._chance = chance
        self._checker = checker
        self._links: dict[str, Link] = {}
        self._known = False
        self._strands: Strands[Held] = Strands(50)
        self._held: dict[Held, None] = {}
        self._running: dict[Held, Strand[Held]] = {}
        self._beat_at = self._renew_at = 0.0
        self.heed_leases = True

    def tenure(self, partition: str) -> Tenure:
        """The one of the subject that a partition is of."""
        return self.tenures[subject_of(partition)]

    def now(self, true_s: float) -> Moment:
        """The time by the two clocks of its machine."""
        return Moment(true_s - self.slept_s, true_s + self.wall_ahead_s)

    # -- one step ----------------------------------------------------------------------------------------------

    def step(self, true_s: float, ask_meta: Asked, news: Callable[[str], int]) -> None:
        if self.paused or self.asleep:
            return
        now = self.now(true_s)
        self._listen(now)
        behind = any(news(subject) != one.applied for subject, one in self.tenures.items())
        if now.steady >= self._beat_at or behind:
            self._beat(now, ask_meta)
        self._finish(now)
        self._let_go()
        self._renew(now)
        self._begin(now)
        self._pull(now)

    def _beat(self, now: Moment, ask_meta: Asked) -> None:
        self._beat_at = now.steady + 2.0
        rows = ask_meta(self.name, {subject: one.applied for subject, one in self.tenures.items()})
        for row in rows or ():
            left_s, tenure = row["authorised_ms"] / 1000, self.tenures[row["subject"]]
            lapses = tenure.lapses
            tenure.answered(now, row["allocation"], row["partitions"], left_s)
            if tenure.lapses > lapses:
                for held in self._held:
                    held.until = min(held.until, now.steady)

    def _listen(self, now: Moment) -> None:
        for group, link in list(self._links.items()):
            if link.broken:
                self._links[group] = Link(link.rig)
                self._give_back(group)
                for tenure in self.tenures.values():
                    for partition in [one for one in tenure.held if one.startswith(f"{group}/")]:
                        tenure.yielded(partition)
            elif link.waiting is not None and link.waiting[0] in link.rig.answers:
                answer = link.rig.answers.pop(link.waiting[0])
                link.waiting = None
                self._take(group, link, answer, now)

    def _take(self, group: str, link: Link, answer: object, now: Moment) -> None:
        if isinstance(answer, Failed):
            for partition in [one for one in self._to_pull(now) if one.startswith(f"{group}/")]:
                if f"'{partition.partition('/')[2]}'" in answer.detail:
                    self.tenure(partition).outdated(partition)
            self._beat_at = now.steady
            self._give_back(group)
            return
        assert isinstance(answer, Pulled), answer
        self._known = link.resumed = True
        places = [f"{group}/{one.subject}" for one in answer.grants]
        strange = [
            one
            for one, place in zip(answer.grants, places, strict=True)
            if not self.tenure(place).is_ours(place)
        ]
        for grant in strange:
            ranges = [grant.pull_sequence, grant.pull_sequence + grant.count - 1]
            link.rig.ask(Release(GROUP, self.name, grant.subject, ranges), link.peer)
            self._checker.seen["given back"] += 1
        at = 0
        for grant in answer.grants if not strange else ():  # all grants of an answer are of one partition
            pieces: list[Piece] = []
            at = add_pieces(grant, answer.batches, at, pieces)
            for piece in pieces:
                bodies = Batch(piece.batch).bodies()
                for place, row in enumerate(piece.rows):
                    key, _, number = bodies[row].decode().partition(":")
                    pull, until = piece.pull_sequence + place, self._asked_at + answer.lease_ms / 1000
                    held = Held(f"{group}/{grant.subject}", key, int(number), pull, until)
                    self._held[held] = None
                    self._strands.add(key, held)

    def _give_back(self, group: str) -> None:
        """What was not begun; left to its lease it would take what is at work along when that ends."""
        for held in [one for one in self._idle() if one.partition.startswith(f"{group}/")]:
            self._say(Release, [held])
            held.until = -1.0
            self._held.pop(held)

    def _idle(self) -> list[Held]:
        """What is not begun, and may go: not what was given out again while this one is at it still."""
        at_work = {(one.partition, one.key, one.number) for one in self._running}
        return [
            one
            for one in self._held
            if one not in self._running and (one.partition, one.key, one.number) not in at_work
        ]

    def _finish(self, now: Moment) -> None:
        self._strands.wake(now.steady)
        for held, strand in list(self._running.items()):
            if held.ends > now.steady:
                continue
            del self._running[held]
            if self._chance.random() < 0.05:
                self._checker.ends(self.name, held.key, held.number, handled=False)
                self._strands.again(strand, held, now.steady + self._chance.uniform(0.2, 2.0))
                continue
            self._checker.ends(self.name, held.key, held.number, handled=True)
            self._held.pop(held, None)
            if self._say(Ack, [held]) == []:
                self._checker.acked.add((held.key, held.number))
            self._strands.done(strand)

    def _begin(self, now: Moment) -> None:
        while (
            any(one.authorised(now) for one in self.tenures.values())
            and len(self._running) < 4
            and (taken := self._strands.take()) is not None
        ):
            strand, held = taken
            if not self.tenure(held.partition).may_begin(held.partition, now) or not self._ours(held, now):
                self._doubt(held.partition, now)
                self._held.pop(held, None)
                self._strands.done(strand)
                continue
            held.ends = now.steady + (
                15.0 if self._chance.random() < 0.02 else self._chance.choice((0.0, 0.0, 0.3, 0.8))
            )
            self._running[held] = strand
            self._checker.begins(self.name, held.key, held.number)

    def _doubt(self, partition: str, now: Moment) -> None:
        """One was lost: perhaps all behind it were."""
        for held in self._held:
            if held.partition == partition:
                held.until = min(held.until, now.steady)

    def _ours(self, held: Held, now: Moment) -> bool:
        if held.until < 0:
            return False
        if now.steady < held.until or not self.heed_leases:
            return True
        if self._say(Extend, [held]) != []:
            return False
        held.until = now.steady + LEASE_S
        return True

    def _renew(self, now: Moment) -> None:
        if now.steady < self._renew_at:
            return
        self._renew_at = now.steady + RENEW_S
        for held in list(self._held):
            lost = self._say(Extend, [held])
            if lost == []:
                held.until = max(held.until, now.steady + LEASE_S)
            elif lost is not None:
                held.until = -1.0

    def _let_go(self) -> None:
        for partition in [one for tenure in self.tenures.values() for one in tenure.leaving]:
            mine = [held for held in self._idle() if held.partition == partition]
            self._say(Release, sorted(mine, key=lambda held: held.pull))
            for held in mine:
                held.until = -1.0
                self._held.pop(held)
            if any(held.partition == partition for held in self._running):
                continue
            self.tenure(partition).drained(partition)
            group, _, name = partition.partition("/")
            link = self._links.get(group)
            if link is not None and not link.broken:
                assert isinstance(link.rig.ask(Yield(GROUP, self.name, [name]), link.peer), Done)
            self.tenure(partition).yielded(partition)
            self._checker.seen["yielded"] += 1

    def _pull(self, now: Moment) -> None:
        if self._strands.full:
            return
        wanted = self._to_pull(now)
        for group, rig in self._rigs.items():
            names = [one.partition("/")[2] for one in wanted if one.startswith(f"{group}/")]
            link = self._links.get(group)
            if not names or (link is not None and (link.waiting is not None or link.broken)):
                continue
            if link is None:
                link = self._links[group] = Link(rig)
            versions = {name: wanted[f"{group}/{name}"] for name in names}
            self._checker.seen["versions"] += len(set(versions.values())) > 1
            held = None if link.resumed else sorted(self._at_work(group))
            held = None if held is None else [bound for pull in held for bound in (pull, pull)]
            pull = Pull(
                GROUP, self.name, names, self._chance.randint(1, 8), 1 << 20, PULL_WAIT_MS, held=held,
                fresh=held is not None and not self._known, mode=Mode.KEYED,
                allocation=min(versions.values()), allocations=tuple(versions.values()),
            )  # fmt: skip
            self._asked_at = now.steady
            answer = rig.ask(pull, link.peer)
            correlation = rig.correlation
            link.waiting = correlation, versions
            if isinstance(answer, Failed):
                self._checker.seen["outdated"] += 1
            else:
                for name, version in versions.items():
                    self._checker.pulls(f"{group}/{name}", version)
            if answer is not None:
                rig.answers[correlation] = answer

    def _to_pull(self, now: Moment) -> dict[str, int]:
        return {name: version for one in self.tenures.values() for name, version in one.to_pull(now).items()}

    def _at_work(self, group: str) -> list[int]:
        return [held.pull for held in self._running if held.partition.startswith(f"{group}/")]

    def _say(self, kind: type[Ack | Extend | Release], held: list[Held]) -> list[int] | None:
        """What was lost of it; ``None`` when nobody was there to be told."""
        if not held or held[0].until < 0:
            return None
        group, _, name = held[0].partition.partition("/")
        link = self._links.get(group)
        if link is None or link.broken:
            return None
        ranges = [bound for one in held for bound in (one.pull, one.pull)]
        answer = link.rig.ask(kind(GROUP, self.name, name, ranges), link.peer)
        return list(answer.lost) if isinstance(answer, Done) else [0]

    def clock_set(self, group: str, true_s: float) -> None:
        """A broker ended all leases at once. What a consumer pulls from comes to it again, so it keeps the others off;
        of a partition that it lets go, or is not authorised for, nothing does.
        """
        pulled = self._to_pull(self.now(true_s))
        for held in self._running:
            if held.partition.startswith(f"{group}/") and held.partition not in pulled:
                self._checker.ended_by_clock(self.name, held.key, held.number)

    # -- the end -----------------------------------------------------------------------------------------------

    def die(self) -> None:
        """Killed: its connections end with it."""
        for link in self._links.values():
            if not link.broken:
                link.rig.disconnect(link.peer)
        self._links.clear()
        self._checker.dies(self.name)

    @property
    def waiting(self) -> dict[str, dict[int, Mapping[str, int]]]:
        """Broker group -> correlation -> partition -> version, of pulls that wait."""
        return {
            group: {link.waiting[0]: link.waiting[1]}
            for group, link in self._links.items()
            if link.waiting is not None and not link.broken
        }


def subject_of(partition: str) -> str:
    """Of a partition as meta names it."""
    return partition.partition("/")[2].partition("#")[0]
