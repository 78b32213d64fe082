"""The next safe step of a broker group whose pods are not as they should be. One at a time, and never a guess.

| state | how it is seen | what is done |
|---|---|---|
| complete | no pod is outdated, none is too many | the baton is given back when all are well |
| broken | an outdated pod serves nobody | it is replaced at once: the new template may be what mends it |
| waiting for the lock | a pod is outdated, and the group has no baton | nothing |
| waiting for sync | another broker of the group is not well, or a pod goes | nothing |
| rolling slaves | all others are well | an outdated slave is deleted; its StatefulSet makes it anew |
| switching over | only the master is outdated | meta is asked to hand over; then it is a slave like any |
| rolling the master | the group has one broker | it is deleted, and is back in seconds |

A broker *serves nobody* when its process does not run, or when neither Kubernetes nor meta have it. It is *well* when
both say so, and have for a while (``observed.py``): gates fail closed, what was not seen or not heard is not well.
A broker too many is taken away by the same rules.

The *baton* lets one group of a cluster roll at a time. A group writes a ticket into its own status when it wants it,
and the cluster's planner writes whose ticket is on (``clusters.py``); a group acts only while both say the same number,
and gives its ticket back only when it is well again. Each status has one writer, so there is nothing to be raced for,
and a crash at any point leaves a baton that is wanted, held, or given back, and never two. A status that got lost takes
nothing from who was in the middle of something: the baton leaves a group only when that says so, or goes.
A group that is stuck keeps it: what failed there is not tried on the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidemill_operator.desired.wanted import Group
from tidemill_operator.kinds import POD
from tidemill_operator.marks import moment, part, timestamp
from tidemill_operator.names import deletion_of
from tidemill_operator.observed import Broker, Observed, replicas_of
from tidemill_operator.steps import Ask, Event, Manifest, Step

DEADLINE_MS = 10 * 60_000
"""So long a rollout may wait for one and the same broker before somebody should look."""
LOOK_MS = 2_000
"""Meta tells nobody when it has changed its view: while something waits for it, it is asked so often."""

COMPLETE, STUCK = "RolloutComplete", "RolloutStuck"
WAITING, LOCK = "WaitingForSync", "WaitingForLock"
WAITS, ROLLING, ROLLED, TURN = "Waiting", "Rolling", "Rolled", "Turn"
"""The stages in a status, each with the number of a ticket: of a group that wants the baton, has it, or gave it back;
and of the cluster that says whose it is.
"""
SLAVES, SWITCHING, MASTER = "RollingSlaves", "SwitchingOver", "RollingMaster"


@dataclass(frozen=True, slots=True)
class Move:
    """What comes next."""

    reason: str
    """Of the condition ``Progressing``."""
    message: str
    step: Step | None = None
    removes: Broker | None = None
    """Or: this broker is one too many, and may go."""
    waits_for: str = ""
    """The broker because of which nothing is done."""
    again_ms: int | None = None
    needs_baton: bool = True
    events: tuple[Event, ...] = ()

    @property
    def acts(self) -> bool:
        return self.step is not None or self.removes is not None


@dataclass(frozen=True, slots=True)
class Baton:
    """A group's ticket, and whether it is on."""

    ticket: int
    wanted: bool
    held: bool
    holder: str = ""
    """Who has the baton, of all groups."""
    named: bool = False
    """Whether that is this one, whatever the number."""


def next_move(observed: Observed, group: Group, now_ms: int) -> Move:
    """What may be done now, by what was seen; whether this group may do it now, ``with_baton`` says."""
    stale = [one for one in observed.wanted(group) if _needs_new(one, now_ms)]
    broken = [one for one in stale if not one.goes and not _serves(observed, one)]
    if broken:
        return _replaced(broken[0], SLAVES, "it serves nobody", needs_baton=False)
    run = replicas_of(observed.workload)
    extra = [one for one in observed.surplus(group) if one.is_there or one.ordinal < run]
    going = [one for one in observed.brokers if one.goes]
    unwell = [one for one in observed.wanted(group) if not one.is_well(now_ms)]
    if not stale and not extra:
        return _nothing_to_do(unwell, now_ms)
    if going:
        return _wait(going[0], f"{going[0].pod_name} goes", now_ms)
    one = _first(observed, stale, extra)
    why_not = _gate(observed, group, one, now_ms)
    if why_not is not None:
        return why_not
    if one.name == (observed.master.name if observed.master else "") and not _is_alone(observed, group):
        return _hand_over(observed, group, one, now_ms)
    if one in extra:
        return Move(SLAVES, f"{one.name} is one slave too many and goes", removes=one, again_ms=LOOK_MS)
    return _replaced(one, MASTER if _is_alone(observed, group) else SLAVES, "it has an old template")


def _needs_new(one: Broker, now_ms: int) -> bool:
    return one.is_there and (one.is_outdated or one.waits_for_resize(now_ms))


def _serves(observed: Observed, one: Broker) -> bool:
    """Whether anybody may miss it: its process runs, and either Kubernetes or meta has it, or meta was not heard."""
    if not one.runs:
        return False
    if one.ready_since_ms is not None or not observed.heard:
        return True
    return one.is_alive or one.is_in_sync


def _nothing_to_do(unwell: list[Broker], now_ms: int) -> Move:
    if unwell:
        waits = _wait(unwell[0], f"{unwell[0].name} is not ready and in sync yet", now_ms)
        return Move(
            COMPLETE,
            "all brokers have the wanted template",
            waits_for=waits.waits_for,
            again_ms=waits.again_ms,
        )
    return Move(COMPLETE, "all brokers have the wanted template")


def _first(observed: Observed, stale: list[Broker], extra: list[Broker]) -> Broker:
    """Who is next: one that is not ready, then the last of those too many, then slaves from the last on, the master
    at the end, as the last one that may be taken from its clients.
    """
    unready = [one for one in stale if one.ready_since_ms is None]
    if unready:
        return unready[0]
    if extra:
        return extra[-1]
    slaves = [one for one in stale if observed.master is None or one.name != observed.master.name]
    return slaves[-1] if slaves else stale[0]


def _is_alone(observed: Observed, group: Group) -> bool:
    """Whether there is nobody to hand over to, and is not meant to be."""
    run = replicas_of(observed.workload)
    others = [one for one in observed.brokers[1:] if one.is_there or one.is_alive or one.ordinal < run]
    return group.replicas == 1 and not others


def _gate(observed: Observed, group: Group, one: Broker, now_ms: int) -> Move | None:
    """Why a broker that serves is not taken away now; None: it may be."""
    if not observed.heard or observed.row is None:
        return _wait(one, "meta was not heard, or does not know the group", now_ms)
    if _is_alone(observed, group):
        return None
    if not observed.is_led:
        return _wait(one, f"nobody leads {group.group}", now_ms)
    if one.is_in_sync or one.ready_since_ms is not None:
        for other in observed.wanted(group):
            if other.name != one.name and not other.is_well(now_ms):
                return _wait(other, f"{other.name} is not ready and in sync yet", now_ms)
    leads = observed.master is not None and observed.master.name == one.name
    if not leads and one.row is not None and one.row.get("safe_to_stop", True) is not True:
        return _wait(one, str(one.row.get("why_not") or f"meta does not let {one.name} stop"), now_ms)
    return None


def _hand_over(observed: Observed, group: Group, one: Broker, now_ms: int) -> Move:
    able = [
        other
        for other in observed.wanted(group)
        if other.name != one.name and other.is_well(now_ms) and not other.goes
    ]
    if not able:
        return _wait(one, f"nobody can take over from {one.name}", now_ms)
    named = (one.row or {}).get("hand_over_to")
    # Who has the wanted template, so that it need not hand over again; then who has most.
    to = max(
        able, key=lambda other: (not other.is_outdated, other.name == named, other.messages, -other.ordinal)
    )
    ask = Ask("POST", f"/v1/groups/{group.group}/handover", {"to": to.name, "version": observed.version})
    said = f"{one.name} hands over to {to.name}"
    event = Event("SwitchoverStarted", f"{said}, because its pod is to be replaced")
    return Move(SWITCHING, said, ask, again_ms=LOOK_MS, events=(event,))


def _replaced(one: Broker, reason: str, why: str, *, needs_baton: bool = True) -> Move:
    assert one.pod is not None
    event = Event("RollingPod", f"{one.pod_name} is replaced: {why}")
    said = f"{one.name} is replaced: {why}"
    return Move(
        reason, said, deletion_of(POD, one.pod), again_ms=LOOK_MS, needs_baton=needs_baton, events=(event,)
    )


def _wait(one: Broker, why: str, now_ms: int) -> Move:
    left = one.settles_in_ms(now_ms)
    return Move(WAITING, why, waits_for=one.name, again_ms=max(LOOK_MS, left or 0))


# -- the baton ---------------------------------------------------------------------------------------------------


def baton_of(resource: Manifest, cluster: Manifest | None) -> Baton:
    """As the two statuses say."""
    wanted, ticket = ticket_of(resource)
    lock = rollout_of(cluster)
    holder, turn = str(lock.get("group", "")), _number(lock, {TURN})
    if holder != resource["metadata"]["name"]:
        return Baton(ticket, wanted, held=False, holder=holder)
    # Who lost its status, and is named there, may be in the middle of something: its numbers go on from there.
    return Baton(max(ticket, turn), wanted, held=wanted and ticket == turn, holder=holder, named=True)


def ticket_of(resource: Manifest) -> tuple[bool, int]:
    """Whether a group wants the baton, or has it, and the number of its last ticket; 0: it says nothing."""
    stage = str(rollout_of(resource).get("stage", "")).partition(" ")[0]
    return stage in {WAITS, ROLLING}, _number(rollout_of(resource), {WAITS, ROLLING, ROLLED})


def _number(rollout: Mapping[str, Any], stages: set[str]) -> int:
    stage, _, ticket = str(rollout.get("stage", "")).partition(" ")
    return int(ticket) if stage in stages and ticket.isdigit() else 0


def rollout_of(resource: Manifest | None) -> Mapping[str, Any]:
    """The status' ``rollout``; empty when there is none."""
    return part(resource, "status", "rollout")


def with_baton(move: Move, baton: Baton) -> Move:
    """What this group may do of it now."""
    if move.reason == COMPLETE and move.waits_for and baton.wanted:
        return replace(move, reason=WAITING, message=f"{move.waits_for} is not ready and in sync yet")
    if not move.acts or not move.needs_baton or baton.held:
        return move
    until = (
        f"until {baton.holder} has rolled" if baton.holder else "until the QueueCluster says whose turn it is"
    )
    return Move(LOCK, f"waits {until}; then: {move.message}", again_ms=LOOK_MS)


def next_rollout(resource: Manifest, move: Move, baton: Baton, now_ms: int) -> tuple[dict[str, Any], bool]:
    """The status' ``rollout``, and whether it waits for longer than it should. ``move`` is what is to be done, whoever
    has the baton.
    """
    idle = move.reason == COMPLETE
    mine = baton.wanted or baton.named
    wanted = bool(move.waits_for) and mine if idle else move.needs_baton or mine
    ticket = baton.ticket + (wanted and not baton.wanted)
    if not wanted:
        return {"stage": f"{ROLLED} {ticket}"} if ticket else {}, False
    former = rollout_of(resource)
    since = moment(former.get("since")) if former.get("broker", "") == move.waits_for else None
    since = now_ms if since is None or not baton.wanted else since
    found = {"stage": f"{ROLLING if baton.held else WAITS} {ticket}", "since": timestamp(since)}
    found |= {"broker": move.waits_for} if move.waits_for else {}
    return found, bool(move.waits_for) and now_ms - since > DEADLINE_MS
