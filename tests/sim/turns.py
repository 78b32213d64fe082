"""Who handles what in groups that are consumed in order, as the handlers tell it.

    begun too soon   an earlier message of its key, answered before it was sent, was not handled yet by its group
    two at once      another process is at a message of the key, under a lease that it knows to run
    two owners       a partition is two consumers' by what meta has told each of them, and both may begin; of exclusive
                     ones, anything of the subject is, on whatever broker groups
    two alone        an exclusive consumer begins while another, authorised, is at a message on whatever broker group

A process that stands still is excused for what it is at, and what was killed is at nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sim.checkers import Send
from sim.faults import Kind
from sim.world import Env, World
from tidemill import Client
from tidemill.message import Message


@dataclass(slots=True, eq=False)
class Turn:
    """A handler at work."""

    env: Env
    group: str
    line: str
    """Of what only one message may be at work: an order key, or a partition."""
    send: Send
    message: Message
    began_s: float


class Turns:
    """All processes' handlers. ``excuses`` says whether a power cut may have taken a message, or its lease."""

    def __init__(self, world: World, problems: list[str], excuses: Callable[[Send], bool]) -> None:
        self._world = world
        self._problems = problems
        self._excuses = excuses
        self._open: defaultdict[tuple[str, str], list[Turn]] = defaultdict(list)
        self._answered: defaultdict[str, list[Send]] = defaultdict(list)
        """Of each order key, what was answered, in the order of its sending."""
        self._handled: defaultdict[str, set[str]] = defaultdict(set)
        """Of each group, the messages that somebody handled to the end."""
        self._reached: defaultdict[tuple[str, str], int] = defaultdict(int)
        """Of each group and key, how many of those that were answered are handled or excused, from the first on."""
        self.sharers: dict[str, tuple[Env, Client]] = {}
        """The clients whose consumers share partitions by key, by their nodes."""
        self.loners: dict[str, tuple[Env, Client]] = {}
        """Those whose consumers are exclusive."""
        self._alone: dict[str, str] = {}
        """Of each subject, the loner that began something last."""

    def answered(self, send: Send) -> None:
        """The next message of its key may be sent now."""
        self._answered[send.key].append(send)

    def begins(self, env: Env, group: str, line: str, send: Send, message: Message) -> Turn:
        """A handler is called."""
        turn = Turn(env, group, line, send, message, env.loop.now)
        where = f"{env.name} began {send.message} for {group} at {env.loop.now:.6f} s"
        for other in self._others(turn):
            self._problems.append(f"two at once: {where}, and {other.env.name} is at {other.send.message}")
        before = self._unhandled(group, send)
        if before is not None:
            self._problems.append(f"begun too soon: {where}, and {before.message} was not handled")
        self._open[group, line].append(turn)
        return turn

    def ends(self, turn: Turn, *, handled: bool) -> None:
        """It has returned, or failed."""
        turns = self._open[turn.group, turn.line]
        if turn in turns:  # that of a life that was killed may be out already
            turns.remove(turn)
        if handled:
            self._handled[turn.group].add(turn.send.message)

    def owned(self, env: Env, broker_group: str, partition: str) -> None:
        """One of the sharers begins something of a partition."""
        if not self._owns(env.name, broker_group, partition):
            return  # its time was over between the decision and its handler
        for name in self.sharers:
            if name != env.name and self._owns(name, broker_group, partition):
                self._problems.append(
                    f"two owners: {env.name} and {name} may begin what is in {broker_group}/{partition} "
                    f"at {env.loop.now:.6f} s"
                )

    def alone(self, env: Env, group: str, subject: str) -> None:
        """One of the loners begins something of a subject."""
        if self._alone.setdefault(subject, env.name) != env.name:
            self._alone[subject] = env.name
            self._world.probes["succeeded"] += 1
        for name in self.loners:
            if name == env.name or not self._authorised(name, subject):
                continue
            where = f"{env.name} began something of {subject} at {env.loop.now:.6f} s"
            if self._authorised(name, subject, owning=True):
                self._problems.append(f"two owners: {where}, which {name} may begin, too")
            for (its_group, line), turns in self._open.items():
                if its_group != group or line.partition("/")[2] != subject:
                    continue
                if any(
                    one.env.name == name and self._lives(one.env) and not self._stood_still(one)
                    for one in turns
                ):
                    self._problems.append(f"two alone: {where}, and {name} is at something of {line}")

    def _authorised(self, node: str, subject: str, *, owning: bool = False) -> bool:
        """Whether a loner may begin messages of a subject, as its time goes; ``owning``: and some are its own."""
        env, client = self.loners[node]
        if not self._lives(env):
            return False
        allotments = [one.allotment for one in client._consumers if one._pullers is not None]
        tenures = [one._of(subject) for one in allotments if one is not None]
        return any(
            one is not None and one.authorised(now()) and (one.ours or not owning)
            for one, now in zip(tenures, [one.now for one in allotments if one is not None], strict=True)
        )

    def _owns(self, node: str, broker_group: str, partition: str) -> bool:
        env, client = self.sharers[node]
        if not self._lives(env):
            return False
        allotments = [one.allotment for one in client._consumers if one._pullers is not None]
        return any(
            one is not None and one.governs and one.may_begin(broker_group, partition) for one in allotments
        )

    def _lives(self, env: Env) -> bool:
        life = self._world.nodes[env.name].life
        return life is not None and life.alive and life.number == env.life

    def _others(self, turn: Turn) -> Iterator[Turn]:
        turns = self._open[turn.group, turn.line]
        turns[:] = [one for one in turns if self._lives(one.env)]
        for one in turns:
            certain = one.message._delivery.until > turn.env.loop.now
            if certain and not self._stood_still(one) and not self._excuses(one.send):
                yield one

    def _stood_still(self, turn: Turn) -> bool:
        return any(
            fault.kind is Kind.PAUSE
            and fault.node == turn.env.name
            and fault.at_s <= turn.env.loop.now
            and fault.at_s + fault.lasts_s >= turn.began_s
            for fault in self._world.plan.faults
        )

    def _unhandled(self, group: str, send: Send) -> Send | None:
        """The first that was answered before this one was sent, and not handled."""
        answered, handled = self._answered[send.key], self._handled[group]
        at = self._reached[group, send.key]
        while at < len(answered) and answered[at].ended_s < send.invoked_s:
            if answered[at].message not in handled and not self._excuses(answered[at]):
                return answered[at]
            at += 1
        self._reached[group, send.key] = max(at, self._reached[group, send.key])
        return None
