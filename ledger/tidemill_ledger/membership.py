"""Broker groups: who is what, which appointments count, and where two logs part.

A broker is one thing for as long as its machine lives (``Part``); what it is to become it tells its own process
(BEGIN), which makes another machine of what lies on the disk. Epochs only grow, and a log says which ones it has begun:
an appointment as the master of one of them is refused, for its master may have lost what its slaves have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from tidemill_wire.errors import Refused
from tidemill_wire.replication import Appoint, Begin, Ends, EpochStart


class Role(Enum):
    """What a broker is."""

    LONE = "lone"
    FENCED = "fenced"
    SLAVE = "slave"
    MASTER = "master"


@dataclass(frozen=True, slots=True)
class Part:
    """What a broker begins as."""

    role: Role
    appoint: Appoint | None = None
    cut: Ends | None = None
    """Where its logs are to be cut before."""
    anew: bool = False
    """Its logs are to be removed before."""

    @property
    def epoch(self) -> int:
        """The one it was appointed for; 1 for a lone broker."""
        return self.appoint.appointment.epoch if self.appoint is not None else 1

    @property
    def follows(self) -> bool:
        """Whether its log is another one's."""
        return self.role in (Role.FENCED, Role.SLAVE)

    @property
    def master_address(self) -> str:
        """Where the master listens, empty when nobody said."""
        if self.appoint is None:
            return ""
        return self.appoint.addresses.get(self.appoint.appointment.master, "")


LONE = Part(Role.LONE)
FENCED = Part(Role.FENCED)


def first_part(replicated: bool) -> Part:
    """What a process begins as: nobody remembers an appointment for it."""
    return FENCED if replicated else LONE


def part_of(name: str, begin: Begin) -> Part:
    """What a broker of that name is to begin as."""
    appointment = begin.appoint.appointment
    if appointment.master == name:
        return Part(Role.MASTER, begin.appoint)
    if name in appointment.replicas:
        return Part(Role.SLAVE, begin.appoint, begin.cut, begin.anew)
    return Part(Role.FENCED, begin.appoint)


def judge(name: str, part: Part, begun: int, appoint: Appoint) -> Begin | Part:
    """What an appointment makes of a broker: another machine, or the same one that knows more.

    ``begun`` is the newest epoch in its log. ``Refused``: the appointment is old, or cannot be.
    """
    new, known = appoint.appointment, part.appoint.appointment if part.appoint is not None else None
    if part.role is Role.LONE:
        raise Refused(
            "malformed_command", "a lone broker is in no group: start it with TIDEMILL_REPLICATED=true"
        )
    if known is not None and new.group != known.group:
        detail = f"this broker is of the group {known.group!r}, not of {new.group!r}"
        raise Refused("malformed_command", detail)
    if known is not None and (new.epoch, new.version) < (known.epoch, known.version):
        detail = f"version {new.version} of epoch {new.epoch} is older than {known.version} of {known.epoch}"
        raise Refused("malformed_command", f"an old appointment: {detail}")
    if known is not None and new.epoch == known.epoch:
        if new.master != known.master:
            raise Refused(
                "malformed_command", f"two masters of epoch {new.epoch}: {known.master}, {new.master}"
            )
        return replace(part, appoint=appoint)
    if new.master == name and new.epoch <= begun:
        detail = f"this broker has begun epoch {begun} before, and may have lost what others have of it"
        raise Refused("malformed_command", f"{detail}: appoint a master for a later one")
    return Begin(appoint)


def common_ends(
    master: Sequence[EpochStart], master_ends: Ends, slave: Sequence[EpochStart], slave_ends: Ends
) -> Ends | None:
    """Up to where two pairs of logs are equal: the end of the last epoch that both have begun, in the shorter one.

    ``None``: they have no epoch in common, and nothing is known of what they hold.
    """
    known = {start.epoch: start for start in master}
    shared = [start for start in slave if known.get(start.epoch) == start]
    if not shared:
        return None
    last = shared[-1].epoch
    one, two = _end_of(master, master_ends, last), _end_of(slave, slave_ends, last)
    return Ends(min(one.message, two.message), min(one.action, two.action))


def _end_of(history: Sequence[EpochStart], ends: Ends, epoch: int) -> Ends:
    """Where an epoch ended: where the next one began, or the logs end before."""
    following = [start for start in history if start.epoch > epoch]
    if not following:
        return ends
    return Ends(min(following[0].message, ends.message), min(following[0].action, ends.action))
