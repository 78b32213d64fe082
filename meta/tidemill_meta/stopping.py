"""Which broker may be stopped now, and its group goes on being written: for who rolls, moves or drains machines.

The answer is yes only when it is known that nothing needs the broker; what is not known is a no, with a reason. The
master is never one that may be stopped: who has to stop it hands over first, to whom the answer names, and it is a
slave then. So all that are answered yes at one moment may be stopped, and the master that is in sync leads on.

| broker | may be stopped when |
|---|---|
| the master | never; it can hand over when all in sync were heard lately, and one of them is not it |
| a slave | its master leads in the epoch that is stored, and all in sync besides it were heard lately, in that epoch |
| the only broker of its group | never; nobody else has what it has, so it is started again where it is |

While a master hands over it does not say that it leads, and after it those in sync say the new epoch one by one: until
then nobody may be stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill_meta.promotion import Member
from tidemill_meta.values import BrokerGroup


@dataclass(frozen=True, slots=True)
class Stopping:
    """What is answered of one broker. ``why_not`` is empty when it may be stopped."""

    why_not: str
    hand_over_to: str = ""
    """Of a master: who can take over now."""
    restarts_in_place: bool = False
    """It is alone: whoever has to stop it does so, and nothing can be written until it is back."""

    @property
    def safe(self) -> bool:
        return not self.why_not


def stopping(group: BrokerGroup, members: Mapping[str, Member], name: str, *, sure: bool) -> Stopping:
    """Whether a broker of the group may be stopped. ``sure``: this replica of meta knows what the others do."""
    if len(group.replicas) == 1:
        return Stopping(f"{name} is the only broker of {group.name}", restarts_in_place=True)
    doubt = _doubt(group, members, name) if sure else "this replica of meta does not know what the others do"
    if doubt or name != group.master:
        return Stopping(doubt)
    heirs = [members[one] for one, _ in group.in_sync if one != name]
    if not heirs:
        return Stopping(f"{name} alone is in sync: wait until a slave has caught up")
    heir = max(heirs, key=lambda one: (one.messages, one.actions, one.name))
    return Stopping(f"{name} leads {group.name}: hand over to {heir.name} first", heir.name)


def _doubt(group: BrokerGroup, members: Mapping[str, Member], name: str) -> str:
    """What is not as it has to be for anybody to be stopped; empty when all is."""
    spoken = max((member.epoch for member in members.values()), default=0)
    if spoken > group.epoch:
        return f"brokers of {group.name} know epoch {spoken}, meta {group.epoch}"
    master = members.get(group.master)
    if master is None or not group.seated:
        return f"nobody leads {group.name}"
    if not master.settled:
        return f"{group.name} was not heard lately from its master {master.name}"
    if not master.leads or master.epoch != group.epoch:
        return f"{master.name} does not lead {group.name} in epoch {group.epoch}: it hands over, or has not begun"
    for other, boot in group.in_sync:
        if other in {name, group.master}:
            continue
        member = members.get(other)
        if member is None or not member.settled or member.boot != boot or member.behind or member.fenced:
            return f"{other} is in sync as far as meta knows, and was not heard lately"
        if member.epoch != group.epoch:
            return f"{other} has not followed {master.name} into epoch {group.epoch} yet"
    return ""
