"""Dead letters in a simulated cluster: groups that give up soon, what the broker buries, and what must be true of it.

A message that was answered ends, for each group, in one of two ways: acked, or as a dead letter that waits. A dead
letter that is redriven is a message again, one that was purged is nobody's. What a group was given adds up.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgpack

from sim.autopsy import read_batches
from sim.checkers import History, Outcome, Terms, place_of
from sim.world import Env
from tidemill.errors import TidemillError
from tidemill.link import Link
from tidemill.settings import ClientSettings
from tidemill_broker.actions import Action, FailedDeliveries, Pulled, Purged, Sought
from tidemill_broker.group_settings import GroupSettings
from tidemill_broker.groups import Group
from tidemill_broker.machine import Broker
from tidemill_broker.partitions import Partition
from tidemill_broker.state import State
from tidemill_host.disk import Disk
from tidemill_wire.columns import Batch
from tidemill_wire.commands import Purge, Redrive
from tidemill_wire.fields import DEAD_PREFIX, DEAD_PROPERTY, dead_letters_of
from tidemill_wire.lanes import first_of_lane, lane_name, priority_of
from tidemill_wire.ranges import count_of, pairs

if TYPE_CHECKING:
    from sim.cluster import Cluster
    from sim.inherited import Inherited

DIG_S = 0.2
ANSWER_S = 5.0


def draw_policies(
    seed: str, groups: Sequence[str], lease_ms: int
) -> tuple[dict[str, GroupSettings], dict[str, tuple[float, float]]]:
    """For some groups a retry policy that gives up soon, and for some a time in which nothing can be handled."""
    rng = random.Random(f"{seed}/policies")
    policies: dict[str, GroupSettings] = {}
    outages: dict[str, tuple[float, float]] = {}
    for group in groups:
        settings = GroupSettings(
            lease_ms=lease_ms,
            attempts_max=rng.choice((2, 2, 3, 4)),
            retry_ms_min=rng.choice((0, 0, 0, 300)),
            backoff_ms=rng.choice(((20,), (50, 200), (100, 400, 1000))),
        )
        if rng.random() < 0.6:
            policies[group] = settings
        begins_s = rng.uniform(0.2, 2.0)
        if rng.random() < 0.4:
            outages[group] = (begins_s, begins_s + rng.uniform(0.5, 2.5))
    return policies, outages


def alive(name: str, group: str) -> str:
    """The subject of a delivery, be it of the subject itself or of its dead letters."""
    return dead_letters_of(name, group) or name


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter: ``subject`` is where it died, ``grave`` and ``sequence`` where it lies."""

    group: str
    subject: str
    source: int
    grave: str
    sequence: int
    body: bytes
    original: int
    """Its sequence in the subject, also when it died more than once."""

    @property
    def message(self) -> str:
        return self.body.partition(b"|")[0].decode(errors="replace")


def letters_in(batch: Batch) -> Iterator[Letter]:
    """The dead letters of a batch, none if it holds none."""
    if not batch.partition.startswith(DEAD_PREFIX):
        return
    for index, (body, row) in enumerate(zip(batch.bodies(), batch.properties() or (), strict=True)):
        known: dict[str, Any] = msgpack.unpackb(row)[DEAD_PROPERTY]
        sequence = batch.header.first_sequence + index
        source, original = known["sequence"], known["original"]
        yield Letter(known["group"], known["subject"], source, batch.partition, sequence, body, original)


class Graveyard:
    """What the broker buries in its lives, as its decisions show it, and whether they are as they should be."""

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems
        self._letters: dict[tuple[str, int], Letter] = {}
        self._state = State()
        self._attempts: dict[tuple[int, int], int] = {}
        self.purged: set[tuple[str, int]] = set()
        self.unread: set[tuple[str, str]] = set()
        """(group, place) of those that died while nobody could read them: their letters have no body."""
        self._originals: dict[tuple[str, int], int] = {}
        """Of each dead letter ever seen, the sequence in its subject."""
        self.fired: Counter[str] = Counter()

    def opened(self, disk: Disk, broker: Broker) -> None:
        """A life of the broker begins."""
        self._state = broker.state
        self._attempts.clear()
        self._letters = {(letter.grave, letter.sequence): letter for letter in self.dropped(self._state)} | {
            (letter.grave, letter.sequence): letter
            for batch in read_batches(disk, broker)
            for letter in letters_in(batch)
        }
        for letter in self._letters.values():
            self._look(letter)
        machine: Any = broker.intake
        place = broker.intake.place

        def place_and_note(batch: bytearray, partition: Partition, now_ms: int) -> None:
            place(batch, partition, now_ms)
            for letter in letters_in(Batch(batch)):
                self._letters[letter.grave, letter.sequence] = letter
                self._look(letter)
                self.fired["dead_letters"] += 1
                self.fired["died_again"] += letter.subject == letter.grave

        machine.place = place_and_note

    def _look(self, letter: Letter) -> None:
        """One without a body does not know what it was, when what it is a copy of was a dead letter that nobody could
        read either; whoever saw that one before does.
        """
        original = letter.original
        if not letter.body:
            original = self._originals.get((letter.subject, letter.source), original)
            self.unread.add((letter.group, place_of(alive(letter.subject, letter.group), original)))
        self._originals[letter.grave, letter.sequence] = original

    def dropped(self, state: State) -> list[Letter]:
        """Letters that retention has removed since they were seen."""
        return [letter for letter in self._letters.values() if is_dropped(letter, state)]

    def acts(self, action: Action, at_s: float) -> None:
        """The broker is about to apply an action."""
        match action:
            case FailedDeliveries():
                consumer = self._state.consumers[action.consumer]
                group = consumer.group
                for first, last in pairs(action.ranges):
                    for index in consumer.overlapping(first, last):
                        held = consumer.deliveries[index]
                        start, stop = max(first, held.pull), min(last + 1, held.pull + held.count)
                        for pull in range(start, stop):
                            key = group.identity, held.first + pull - held.pull
                            self._attempts[key] = held.attempts + (group.paused is None)
            case Sought(group=moved):
                self._attempts = {key: known for key, known in self._attempts.items() if key[0] != moved}
            case Pulled():
                self._grants(self._state.consumers[action.consumer].group, action, at_s)
            case Purged():
                grave = self._state.partitions[self._state.groups[action.group].partition].name
                self.purged |= {
                    (grave, number)
                    for first, last in pairs(action.ranges)
                    for number in range(first, last + 1)
                }
                self.fired["purges"] += 1
            case _:
                self.fired["pauses"] += type(action).__name__ == "GroupPaused"
                self.fired["resumes"] += type(action).__name__ == "GroupResumed"
                self.fired["redrives"] += type(action).__name__ == "Redriven"

    def _grants(self, group: Group, action: Pulled, at_s: float) -> None:
        if group.paused is not None and sum(run.messages for run in action.runs) != 1:
            self._problems.append(f"paused: {group.name} was given more than a probe at {at_s:.6f} s")
        for run in action.runs:
            for sequence in range(run.first, run.first + run.messages):
                known = self._attempts.get((group.identity, sequence), run.attempts)
                if known != run.attempts:
                    self._problems.append(
                        f"attempts: {sequence} of {group.name} has {run.attempts}, {known} counted, "
                        f"at {at_s:.6f} s"
                    )

    def waiting(self) -> set[tuple[str, str]]:
        """(group, message) of the dead letters that wait, or were purged, in the life that is."""
        return dead_of(list(self._letters.values()), self._state, self.purged)


def dead_of(letters: Sequence[Letter], state: State, purged: set[tuple[str, int]]) -> set[tuple[str, str]]:
    """(group, message) of the dead letters that nobody redrove."""
    return {
        (letter.group, letter.message)
        for letter in letters
        if waits(letter, state) or (letter.grave, letter.sequence) in purged
    }


def is_dropped(letter: Letter, state: State) -> bool:
    """Its segment is gone."""
    grave = state.by_name.get(letter.grave.encode())
    return grave is not None and letter.sequence < grave.first_kept


def waits(letter: Letter, state: State) -> bool:
    """It was neither redriven nor purged."""
    twin = state.group_of(letter.grave, letter.group)
    handled = pairs(twin.handled) if twin is not None else []
    return not any(first <= letter.sequence <= last for first, last in handled)


def grave_problems(
    letters: Sequence[Letter], state: State, history: History, terms: Terms, *, purges: bool
) -> list[str]:
    """What is wrong with the dead letters of a run that is over, as its disk has them."""
    problems: list[str] = []
    acked = {
        (ack.group, ack.message)
        for ack in history.acks
        if ack.outcome is Outcome.OK
        and (send := history.sends.get(ack.message)) is not None
        and not terms.may_be_lost(send.promise, ack)
    }
    counted: Counter[tuple[str, str]] = Counter()
    for letter in letters:
        if not letter.body:
            continue  # a flipped bit: nobody could read it, and its letter says so
        send = history.sends.get(letter.message)
        where = f"{letter.message} at {letter.grave}/{letter.sequence}"
        if send is None or send.body != letter.body or send.subject != alive(letter.subject, letter.group):
            problems.append(f"altered: {where}")
        if waits(letter, state):
            key = letter.group, letter.message
            counted[key] += 1
            if is_dropped(letter, state) and not terms.cuts:
                problems.append(f"dropped: {where}, which nobody redrove or purged")
            if counted[key] == 2:
                problems.append(f"buried twice: {where}")
            if key in acked:
                problems.append(f"acked and dead: {where}")
    filtered = [group for group, wanted in terms.wanted.items() if wanted.tags]
    problems += sums(
        letters,
        state,
        exact=not terms.cuts and not any(terms.floors.values()),
        purges=purges,
        filtered=filtered,
    )
    return problems


def sums(
    letters: Sequence[Letter],
    state: State,
    *,
    exact: bool,
    purges: bool,
    filtered: Collection[str] = (),
) -> Iterator[str]:
    """What a group was given is acked, dead, failed or held. A power cut leaves gaps, and copies nobody counts; what
    a filtered group passed over is counted nowhere.
    """
    copies = Counter(
        (lane_name(letter.subject, priority_of(letter.source)), letter.group) for letter in letters
    )
    for group in state.groups.values():
        name = state.partitions[group.partition].name
        is_twin = name.startswith(DEAD_PREFIX)
        begin = first_of_lane(priority_of(group.cursor))
        given = count_of(group.handled) if is_twin else group.cursor - begin
        ended = group.acked + group.buried + group.failed_count() + group.in_flight
        told = exact and not (is_twin and purges) and group.name not in filtered
        if ended > given or (told and ended != given):
            yield (
                f"sums: {group.name} of {name} was given {given}; {group.acked} acked, {group.buried} dead, "
                f"{group.failed_count()} failed, {group.in_flight} in flight"
            )
        there = copies[name, group.name]
        if group.buried > there or (exact and group.buried != there):
            yield f"sums: {group.name} of {name} has buried {group.buried}, there are {there}"


class Digging:
    """A node that redrives dead letters, and now and then purges some, until the world is quiet."""

    def __init__(self, cluster: Cluster | Inherited) -> None:
        self._cluster = cluster

    async def run(self, env: Env) -> None:
        rng = env.rng
        while not env.quiet.is_set():
            await asyncio.sleep(rng.expovariate(1.0 / DIG_S))
            group = rng.choice(tuple(self._cluster.groups))
            wish = self._cluster.groups[group]
            subject = rng.choice([subject for subject in self._cluster.promises if wish.has(subject)])
            first = rng.randrange(20)
            ranges = rng.choice(([], [first, first + rng.randrange(5)]))
            kind = Purge if ranges and rng.random() < 0.3 else Redrive
            try:
                async with asyncio.timeout(ANSWER_S):
                    await self._ask(env, kind(subject, group, ranges))
            except (OSError, TimeoutError, TidemillError):
                continue  # Whether it was done is seen by what comes.

    async def _ask(self, env: Env, command: Redrive | Purge) -> None:
        loop = asyncio.get_running_loop()
        [address] = await self._cluster.fetch()
        settings = ClientSettings(random=random.Random(1), now_ms=env.clock.now_ms)
        _, link = await loop.create_connection(lambda: Link(address, settings), address.host, address.port)
        try:
            await asyncio.shield(link.opened)
            answered: asyncio.Future[None] = loop.create_future()
            link.ask(command, lambda _answer: answered.done() or answered.set_result(None))
            await answered
        finally:
            link.close()
