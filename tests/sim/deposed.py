"""An experiment with two masters: whatever a deposed one still says, and whenever it arrives, a slave has the log of
the master that it follows, and nothing else.

Every frame that the deposed master has on its way to the slave is delivered before every frame of the new one, on the
connection that the slave listens to: a proxy in between, or a process that is master again, can do that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from samples.replicas import Group
from tidemill_wire.commands import Command
from tidemill_wire.replication import Chunk

OLD, NEW, SLAVE = "a", "c", "b"
BEFORE, STRAY, AFTER = 2, 2, 3
"""Messages that all have, that the deposed master alone has, and that the new one is sent."""


@dataclass
class Frames:
    """What arrives at the slave, in place of the network."""

    strays: list[Chunk] = field(default_factory=list[Chunk])
    """Of the deposed master; caught."""
    seen: int = 0
    """Of the new master."""
    at: int = -1
    """Before which of those the stray one comes."""
    stray: int = 0
    cut: bool = False


def lead(group: Group, frames: Frames) -> None:
    """Two masterships; the first one's last frames do not arrive."""

    def passes(target: str, command: Command) -> bool:
        if not frames.cut:
            if target == SLAVE and isinstance(command, Chunk) and command.epoch == 2:
                frames.seen += 1
                if frames.seen - 1 == frames.at and SLAVE in group.links:
                    group[SLAVE].say(frames.strays[frames.stray], group.links[SLAVE][1])
            return True
        if target == SLAVE and isinstance(command, Chunk):
            frames.strays.append(command)
        return False

    group.passes = passes
    group.appoint(1, OLD, [OLD, SLAVE, NEW])
    for number in range(BEFORE):
        group[OLD].send(b"all", number=number)
        group.run()
    frames.cut = True
    for number in range(STRAY):
        group[OLD].send(b"stray", number=BEFORE + number)
        group.run()
    for slave in list(group.links):
        group.unlink(slave)
    group.cut = {OLD}
    frames.strays = list({(one.log, one.position): one for one in frames.strays if one.data}.values())
    frames.cut = False
    for name in (NEW, SLAVE):
        group.appoint(2, NEW, [NEW, SLAVE], to=name)
    for number in range(AFTER):
        group[NEW].send(b"new", number=number, producer=8)
        group.run()
    group.tick(1000)


def problem_of(at: int, stray: int) -> str:
    """What it breaks that a stray frame comes before a frame."""
    group, frames = Group(OLD, SLAVE, NEW), Frames(at=at, stray=stray)
    try:
        lead(group, frames)
    except AssertionError as error:
        return f"broken: {error or 'an invariant'}"
    for folder in ("message", "action"):
        if group[SLAVE].log(folder) != group[NEW].log(folder):
            return f"another log: the slave's {folder} log is not that of its master"
    return ""


def first_problem() -> str:
    """Of all places of all frames, the first that breaks a promise; empty when none does."""
    frames = Frames()
    lead(Group(OLD, SLAVE, NEW), frames)
    assert frames.strays
    assert frames.seen > AFTER
    for at in range(frames.seen):
        for stray in range(len(frames.strays)):
            problem = problem_of(at, stray)
            if problem:
                return f"Cut(stray frame {stray} before frame {at}): {problem}"
    return ""


if __name__ == "__main__":
    raise SystemExit(first_problem() or None)
