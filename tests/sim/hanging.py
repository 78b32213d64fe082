"""Handlers that hang, whose clients renew their leases all the while: what the limit of a lease is for.

In clusters (``Hanging``, ``LimitWatch``) some handlers of a group with a limit stand still for longer than it, and
nothing that the broker notes may concern a delivery that is older than its limit.

At crash points (``Renewed``) one consumer renews what it was given in every life, and the broker dies wherever it can:
each message is lost to it when the limit has passed, counted from when it was given out, and not before.
"""

from __future__ import annotations

import random
from dataclasses import replace

from sim.autopsy import NOW_MS, recovered_twice
from sim.crashpoints import first_problem
from sim.disk import Mount
from sim.sending import STORM
from sim.sending import TINY as SENDING
from sim.straight import Straight
from sim.world import Env, World
from tidemill.message import Message
from tidemill_broker.actions import Acked, Action, Extended, FailedDeliveries, Pulled, Reason
from tidemill_broker.group_settings import GroupSettings
from tidemill_broker.partitions import SubjectSettings
from tidemill_broker.state import State
from tidemill_wire.batch import Origin
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Done, Extend, Pull, SendBatches, Sent
from tidemill_wire.commands import Pulled as Given
from tidemill_wire.ranges import pairs

HANGS = 0.1
LIMITS = (1.5, 3.0)
"""In leases."""
SLACK_S = 0.01


def draw_limits(seed: str, policies: dict[str, GroupSettings]) -> dict[str, GroupSettings]:
    """Half of the groups that were declared have a limit."""
    rng = random.Random(f"{seed}/limits")
    drawn = {group: (rng.random() < 0.5, rng.uniform(*LIMITS)) for group in policies}
    return {
        group: replace(settings, lease_ms_max=int(settings.lease_ms * drawn[group][1]))
        if drawn[group][0]
        else settings
        for group, settings in policies.items()
    }


def hangs_s(env: Env, settings: GroupSettings | None, message: Message) -> float:
    """For how long the handler of a message hangs; 0: not at all. Chance is its own, so that old seeds stay as they
    were where nothing hangs. After the heal handlers work: else a group of one consumer takes minutes to drain.
    """
    if settings is None or not settings.lease_ms_max or settings.lease_ms_max > 60_000 or env.quiet.is_set():
        return 0.0
    chance = random.Random(f"{env.name}/{message.id}/{env.loop.now}").random()
    return 1.5 * settings.lease_ms_max / 1000 if chance < HANGS else 0.0


class LimitWatch:
    """Watches what the lives of a broker note."""

    def __init__(self, problems: list[str]) -> None:
        self.held_too_long = 0
        self._problems = problems
        self._until: dict[int, float] = {}
        self._last_s = 0.0
        self._state = State()

    def opened(self, state: State, world: World) -> None:
        """A life begins. Where the clock was set back meanwhile, the time between does not count; and nobody knows how
        much of it a power cut took besides, with the last actions.
        """
        self._state = state
        if world.probes["clock_back"] and world.cuts:
            self._until.clear()
        away_s = world.now_s - self._last_s
        self._until = {pull: until_s + away_s for pull, until_s in self._until.items()}

    def acts(self, action: Action, now_s: float) -> None:
        """The broker is about to apply an action."""
        self._last_s = now_s
        consumer = self._state.consumers.get(getattr(action, "consumer", 0)) if self._until else None
        match action:
            case Pulled(identity, _, runs):
                limit_ms = self._state.consumers[identity].group.settings.limit_ms(0)
                if limit_ms:
                    pulls = [pull for run in runs for pull in range(run.pull, run.pull + run.messages)]
                    self._until |= dict.fromkeys(pulls, now_s + limit_ms / 1000)
            case FailedDeliveries(reason=Reason.HELD_TOO_LONG):
                self.held_too_long += 1
            case Extended() | Acked() if consumer is not None:
                for first, last in pairs(action.ranges):
                    for index in consumer.overlapping(first, last):
                        self._look(consumer.deliveries[index].pull, type(action).__name__, now_s)
            case _:
                pass

    def _look(self, pull: int, what: str, now_s: float) -> None:
        until_s = self._until.get(pull)
        if until_s is not None and now_s > until_s + SLACK_S:
            self._problems.append(
                f"held: pull {pull} was {what} at {now_s:.6f} s, its limit was {until_s:.6f} s"
            )


SUBJECT, GROUP = "high", "group"
RENEWING, OTHER = "renewing", "other"
ROUNDS = 2
LIMIT_MS = 1_000
STEP_MS = 100
LEASE_MS = 400
TINY = replace(SENDING, consumer_gone_ms=2 * LIMIT_MS, lease_ms=LEASE_MS)
POLICY = GroupSettings(lease_ms=LEASE_MS, lease_ms_max=LIMIT_MS, attempts_max=100, backoff_ms=(STEP_MS,))
PAUSE_MS = LEASE_MS // 2
"""Between two lives: so short that what was held is held still."""


class Renewed:
    """The experiment at crash points."""

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._held: dict[int, int] = {}
        """Pull sequences that the consumer was given, and when."""
        self._sure: set[int] = set()
        """Of these, those that no power cut can have taken from it."""
        self._host: Straight | None = None

    def live(self, life: int, disk: Mount) -> None:
        began_ms = NOW_MS if self._host is None else self._host.now_ms + PAUSE_MS
        self._host = host = Straight(disk, TINY, began_ms)
        powered = disk.disk.on_crash == disk.disk.kill
        self._sure = set(self._held) if powered else set()
        host.broker.intake.declare(SUBJECT, SubjectSettings("high", 1 << 30, 0, 1 << 20), host.now_ms)
        partition = host.broker.state.by_name[SUBJECT.encode()]
        host.broker.members.declare_group(partition, GROUP, (0, 0), POLICY, host.now_ms)
        host.turn()
        self._renew(host)
        for number in range(ROUNDS):
            identity = (life, number + 1, b"%08d%08d" % (life, number), host.now_ms)
            batch = build_batch(Origin(SUBJECT.encode(), *identity), Content([b"%d.%d" % (life, number)] * 2))
            assert isinstance(host.ask(SendBatches(bytearray(batch))), Sent)
            self._pull(host)
            for _ in range(LIMIT_MS // STEP_MS // 2):
                host.pass_time(STEP_MS)
                self._renew(host)
        for _ in range(LIMIT_MS // STEP_MS):
            host.pass_time(STEP_MS)
            self._renew(host)
        if self._held:
            self._problems.append(f"held: {len(self._held)} messages are renewed still")

    def _pull(self, host: Straight) -> None:
        answer = host.ask(Pull(GROUP, RENEWING, [SUBJECT], 8, 1 << 20, 0))
        assert isinstance(answer, Given), answer
        for grant in answer.grants:
            pulls = range(grant.pull_sequence, grant.pull_sequence + grant.count)
            self._held |= dict.fromkeys(pulls, host.now_ms)
            self._sure |= set(pulls)

    def _renew(self, host: Straight) -> None:
        """Each alone, so that each is judged alone."""
        now_ms = host.now_ms
        for pull, given_ms in list(self._held.items()):
            answer = host.ask(Extend(GROUP, RENEWING, SUBJECT, [pull, pull]))
            renewed = answer == Done([])
            if not renewed:
                del self._held[pull]
            early = now_ms < given_ms + LIMIT_MS
            if renewed != early and (renewed or pull in self._sure):
                what = "renewed" if renewed else "lost"
                self._problems.append(
                    f"limit: pull {pull} was {what} {now_ms - given_ms} ms after it was given"
                )

    def check(self, disk: Mount) -> list[str]:
        """What the last life has left."""
        broker = recovered_twice(disk, TINY, self._problems)
        group = broker.state.group_of(SUBJECT, GROUP)
        if group is None or group.in_flight:
            self._problems.append("held: something is in somebody's hands though all of it was lost")
        return self._problems


if __name__ == "__main__":
    raise SystemExit(first_problem(Renewed, STORM, draws=1) or None)
