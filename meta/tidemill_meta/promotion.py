"""Who is master: one rule over a broker group and what is known of its brokers.

What is committed is on every in-sync replica, so each of them may become master and nothing is lost; whoever is not
in the set may lack something, and never becomes master by itself. A group is judged as it is stored, in the turn of
the replica that judges, so two replicas of meta cannot appoint two masters in one epoch.

| state | event | becomes |
|---|---|---|
| led | a slave in sync was silent, or is behind for too long | led, with fewer in sync |
| led | a slave in sync was started again or said goodbye, and the master was heard since | the same |
| led | its master asks for a slave that caught up | led, with more in sync |
| led | the master is dead, or was started again, and a sound replica in sync lives | led by that one, epoch + 1 |
| led | the same, and who lives was started again | led by that one, epoch + 1, when no sound one may come any more |
| led | the same, and none lives, or without its disk | no master, until one of the set is back, or a person elects |
| led | a planned hand-over | led by the one that was named, epoch + 1 |
| any | the store had gone back (``anew.py``), or a broker knows a later epoch | unsure: who leads goes on, untold |
| unsure | who leads in the latest epoch was heard, and all whom it takes for in sync | led by it, as is stored |
| unsure | the same, and another one, or in another epoch, than is stored | led by it, in an epoch far beyond |
| unsure | all were heard, and none leads | led by who has most of the latest epoch, in one far beyond |
| unsure | a person elects | led by that one, in an epoch far beyond |

*Sound* is who lost nothing since it was found in sync: its process goes on, or stopped on purpose and has all on its
disk. Who was started again in any other way may have lost its power, and with it what only page caches had. So it waits
for each sound one that may come: one that was not heard since the master was started again, until it is, or is dead;
and one that said goodbye, for as long as it may take to be back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidemill_meta.values import BrokerGroup

EPOCHS_LOST_MAX = 1_000
"""More than are ever given out in what gets lost of a store."""


@dataclass(frozen=True, slots=True)
class Member:
    """What is known of a broker of the group.

    ``alive``: not declared dead. ``reported``: has sent a heartbeat in this life, of late. ``fenced``: a former life
    may still hold a lease. ``behind``: was behind its master for too long. ``settled``: was heard within the last few
    beats, and every replica of meta that decides knows it. ``outlived``: its master was heard since this life of it
    began, or said goodbye. ``awake``: was heard since its master was started again. ``parted``: the life of it that was
    found in sync said goodbye. ``expected``: that was a short while ago, and it is not back. ``in_sync``: of a master,
    itself and whom it waits for or has asked for; empty when it does not say. ``again``: of an unsure group, was heard
    when every replica of meta knew that it is.
    """

    name: str
    boot: int
    alive: bool
    reported: bool
    epoch: int = 0
    messages: int = 0
    actions: int = 0
    leads: bool = False
    fenced: bool = False
    behind: bool = False
    settled: bool = False
    outlived: bool = False
    awake: bool = True
    parted: bool = False
    expected: bool = False
    in_sync: tuple[str, ...] = ()
    again: bool = False


def judge(group: BrokerGroup, members: Mapping[str, Member]) -> BrokerGroup:
    """The group as it has to be; the same one when all is well, or nothing can be done."""
    if group.unsure:
        return _sure(group, members)
    if max((member.epoch for member in members.values()), default=0) > group.epoch:
        return replace(group, unsure=True)
    master = members.get(group.master)
    if master is not None and master.alive and group.seated:
        return _shrunk(group, members)
    able = _candidates(group, members)
    sound = [one for one in able if is_sound(group, one)]
    if not able or (not sound and _awaited(group, members)):
        return group
    best = max(sound or able, key=lambda member: _fitness(member, group.master))
    return promoted(group, best.name, members)


def promoted(group: BrokerGroup, name: str, members: Mapping[str, Member]) -> BrokerGroup:
    """A new mastership, of a replica in sync. Those in sync that live follow it; they hold what is committed."""
    assert name in dict(group.in_sync)
    in_sync = tuple(
        (other, members[other].boot)
        for other, boot in group.in_sync
        if other == name or (other in members and members[other].alive and members[other].boot == boot)
    )
    return replace(group, epoch=group.epoch + 1, master=name, in_sync=in_sync)


def problem_of(group: BrokerGroup, members: Mapping[str, Member]) -> str:
    """Why a group has no master now, for people; empty when it has one."""
    if group.unsure:
        awaited = _unheard(group, members) or ["whoever leads"]
        return (
            f"meta's store was an older copy, and {', '.join(awaited)} has not said since how it stands: wait a "
            "moment, start it, or elect the replica that has most messages, which may lose some"
        )
    master = members.get(group.master)
    if master is not None and master.alive and group.seated:
        return ""
    if not group.in_sync:
        return "nobody has all messages: elect the replica that has most of them"
    awaited = _awaited(group, members)
    if awaited:
        return (
            f"whoever lives may lack what {', '.join(awaited)} has: wait a moment for it, start it again when it was "
            "stopped, or elect another, which may lose messages"
        )
    names = ", ".join(name for name, _ in group.in_sync)
    return (
        f"no replica in sync lives ({names}): start one of them again, with its disk, or elect another, which loses "
        "messages"
    )


def _candidates(group: BrokerGroup, members: Mapping[str, Member]) -> list[Member]:
    """Those in sync that can lead. One that was started again and has nothing has lost its disk, and what is committed
    with it; it leads only where all of the set are there and nobody says that it has anything.
    """
    there = [
        (members[name], boot) for name, boot in group.in_sync if name in members and _can_lead(members[name])
    ]
    kept = [one for one, boot in there if one.boot == boot or _has_any(one)]
    nobody_has = len(there) == len(group.in_sync) and not any(map(_has_any, members.values()))
    return [one for one, _ in there] if nobody_has else kept


def _has_any(member: Member) -> bool:
    return bool(member.messages or member.actions)


def _can_lead(member: Member) -> bool:
    return member.alive and member.reported and not member.fenced


def is_sound(group: BrokerGroup, member: Member) -> bool:
    """Whether one of the set has lost nothing since it was found there, and is there now."""
    return member.awake and (member.parted or dict(group.in_sync)[member.name] == member.boot)


def _awaited(group: BrokerGroup, members: Mapping[str, Member]) -> list[str]:
    """Those of the set that may turn out to be sound."""
    return [name for name, _ in group.in_sync if name in members and _may_come(members[name])]


def _may_come(member: Member) -> bool:
    return member.expected or (member.alive and not (member.reported and member.awake))


def _fitness(member: Member, master: str) -> tuple[int, int, bool, str]:
    """The longest log."""
    return member.messages, member.actions, member.name == master, member.name


def _shrunk(group: BrokerGroup, members: Mapping[str, Member]) -> BrokerGroup:
    """Without the slaves that are no longer in sync."""
    kept = tuple(
        (name, boot)
        for name, boot in group.in_sync
        if name == group.master or _stays(members.get(name), boot)
    )
    return group if kept == group.in_sync else replace(group, in_sync=kept)


def _stays(slave: Member | None, boot: int) -> bool:
    """One that is gone or was started again goes. But a master that was not heard since that one said goodbye, or came
    back, may be dead itself, and with it the only other copy of what is committed.
    """
    if slave is None or slave.behind:
        return False
    is_gone = not slave.alive or slave.boot != boot
    return not is_gone or not slave.outlived


def _sure(group: BrokerGroup, members: Mapping[str, Member]) -> BrokerGroup:
    """The group as it is known again. Only a master makes its set larger, so whoever leads after it was in what it
    takes for the set: when all of these were heard, and none leads in a later epoch, nobody does. Where none leads, who
    has most of the latest epoch has all that was committed, once all are heard that are stored.
    """
    if _unheard(group, members):
        return group
    leader = _leader(members)
    if leader is None:
        best = max(members.values(), key=lambda one: (one.epoch, *_fitness(one, group.master)))
        return led_after_loss(group, best, members) if _can_lead(best) else group
    found, boots = dict(group.in_sync), dict(group.replicas)
    in_sync = tuple((name, found.get(name, boots[name])) for name in leader.in_sync)
    same = (leader.name, leader.epoch) == (group.master, group.epoch) and (
        leader.name,
        leader.boot,
    ) in in_sync
    if same:
        return replace(group, in_sync=in_sync, unsure=False)
    return led_after_loss(group, leader, members) if _can_lead(leader) else group


def led_after_loss(group: BrokerGroup, leader: Member, members: Mapping[str, Member]) -> BrokerGroup:
    """A mastership in an epoch that was never given to anybody, also not by what is lost. Who else is in sync is not
    known.
    """
    epoch = max(group.epoch, *(one.epoch for one in members.values())) + EPOCHS_LOST_MAX
    in_sync = ((leader.name, leader.boot),)
    return replace(group, epoch=epoch, master=leader.name, in_sync=in_sync, unsure=False)


def _leader(members: Mapping[str, Member]) -> Member | None:
    """Who says that it leads in the latest epoch that is known."""
    spoken = max((one.epoch for one in members.values()), default=0)
    leaders = [one for one in members.values() if one.again and one.leads and one.epoch == spoken]
    return leaders[0] if len(leaders) == 1 else None


def _unheard(group: BrokerGroup, members: Mapping[str, Member]) -> list[str]:
    """Of an unsure group, who is to be heard before it is known who leads it. Where nothing was stored before, others
    may be missing, so somebody has to lead.
    """
    leader = _leader(members)
    if leader is None and not group.epoch and any(one.epoch for one in members.values()):
        return ["its master"]
    awaited = leader.in_sync if leader is not None and leader.in_sync else tuple(members)
    return [name for name in awaited if name not in members or not members[name].again]
