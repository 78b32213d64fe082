"""Which burials count when logs are replayed. A burial is two writes, a copy in the message log and a DEAD action
in the other, and a power cut may keep either one alone. Copies say what they are copies of, so they decide:

    copy and action   the message is buried
    copy alone        buried, and the action is written again; unless the message is not doomed, for the power cut
                      took its last failure, too: then it will be given out again, and nobody wants the copy
    action alone      not buried: the message is doomed as before, and will be copied again

A message may have been copied before, and that copy been purged or given out again: it speaks for no other burial than
its own. What a replay finds undone, the broker writes down, or later actions would not fit to the next replay.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import msgpack

from tidemill_broker.actions import NOWHERE, Action, Buried, Exhumed, FailureDetail, Purged, SubjectNamed
from tidemill_broker.dead_letters import naming_of_twin, settings_of_grave
from tidemill_broker.failures import Failure
from tidemill_broker.groups import Group
from tidemill_broker.ranges import covers
from tidemill_broker.state import State
from tidemill_wire.batch import Flags
from tidemill_wire.columns import Batch
from tidemill_wire.fields import DEAD_PREFIX, DEAD_PROPERTY
from tidemill_wire.lanes import lane_name, priority_of

PREFIX = DEAD_PREFIX.encode()


class Copied(NamedTuple):
    """A copy in the log: the burial it speaks of, and where it is."""

    buried: Buried
    grave: bytes
    first: int


class Burials:
    """Those of one replay."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._acted: list[tuple[Buried, Failure, FailureDetail | None]] = []
        self._over: set[int] = set()
        """Where copies lie of what a group had as failed before it went on elsewhere."""
        self._copies: dict[tuple[int, int], Copied] = {}
        """The last one of each message."""
        self._places: set[tuple[int, int, int]] = set()
        """Group, message and position of all copies."""

    def note(self, action: Buried) -> bool:
        """A DEAD action; whether it is to be applied. It comes twice where an earlier recovery undid the burial."""
        group = self._state.groups[action.group]
        failure = group.failed.get(action.first)
        if failure is None:
            self._acted = [_moved(one, action) for one in self._acted]
            return False
        detail = group.doomed.get(action.first)
        self._acted.append((action, failure._replace(messages=action.messages), detail))
        return True

    def exhumed(self, action: Exhumed) -> None:
        """A master has undone it: that is in the log, too."""
        key = (action.group, action.first)
        self._acted = [one for one in self._acted if (one[0].group, one[0].first) != key]

    def moved(self, identity: int) -> None:
        """A group goes on elsewhere, or is forgotten: what was buried before stays as it is, whatever fails again."""
        self._over.update(buried.position for buried, _, _ in self._acted if buried.group == identity)
        self._acted = [one for one in self._acted if one[0].group != identity]

    def found(self, name: bytes, position: int, data: bytes) -> None:
        """A copy in a dead-letter subject."""
        batch = Batch(data)
        if batch.flags & Flags.REPLAYED:
            return  # it died nowhere: it came for this group out of an archive
        properties = batch.properties()
        assert properties  # the broker itself has written it
        known = cast("dict[str, Any]", msgpack.unpackb(properties[0], strict_map_key=False))[DEAD_PROPERTY]
        if known.get("adopted"):
            return  # it is no copy of what lies here, and no burial speaks of it
        lane = lane_name(known["subject"], priority_of(known["sequence"]))
        source = self._state.group_of(lane, known["group"])
        if source is not None and position not in self._over:
            buried = Buried(source.identity, known["sequence"], batch.header.messages, position)
            self._places.add((source.identity, buried.first, position))
            self._copies[source.identity, buried.first] = Copied(buried, name, batch.header.first_sequence)

    def settle(self, kept_from: int) -> list[Action]:
        """Undo the burials whose copy is not there, though the log begins (``kept_from``) before it, and do what
        follows from copies whose action is not there: applied, and to be written.
        """
        state, missing = self._state, list[Action]()
        acted: set[tuple[int, int]] = set()
        for action, failure, detail in self._acted:
            acted.add((action.group, action.first))
            if action.position >= kept_from and not self._copied(action):
                undone = Exhumed(
                    action.group, failure.first, failure.messages, failure.attempts, failure.since_ms,
                    failure.fingerprint, detail,
                )  # fmt: skip
                missing.append(self._done(undone))
        for key, copy in self._copies.items():
            group = state.groups[copy.buried.group]
            if self._is_handled(group, copy):
                continue
            doomed = group.failed.get(copy.buried.first) if copy.buried.first in group.doomed else None
            if doomed is not None and copy.buried.messages <= doomed.messages:
                missing += self._bury(group, copy)
            elif key not in acted:
                missing += self._forget(group, copy)
        return missing

    def _copied(self, action: Buried) -> bool:
        return action.position == NOWHERE or (action.group, action.first, action.position) in self._places

    def _is_handled(self, group: Group, copy: Copied) -> bool:
        """Whether a copy was purged or redriven: it waits no more, whatever becomes of its message."""
        twin = self._state.by_name[copy.grave].groups.get(group.name)
        return twin is not None and covers(self._state.groups[twin].handled, copy.first)

    def _bury(self, group: Group, copy: Copied) -> list[Action]:
        return [*self._twin(group, copy), self._done(copy.buried)]

    def _forget(self, group: Group, copy: Copied) -> list[Action]:
        named = self._twin(group, copy)
        twin = self._state.by_name[copy.grave].groups[group.name]
        return [*named, self._done(Purged(twin, [copy.first, copy.first + copy.buried.messages - 1]))]

    def _twin(self, group: Group, copy: Copied) -> list[Action]:
        """The dead-letter subject and the group's twin in it, when the power cut took that they were made."""
        state, made = self._state, list[Action]()
        grave = state.by_name[copy.grave]
        if group.name in grave.groups:
            return made
        settings = settings_of_grave(group, state.partitions[group.partition])
        made.append(self._done(SubjectNamed(grave.identity, grave.name, settings.to_map())))
        named = naming_of_twin(state, group, grave)
        assert named is not None
        return [*made, self._done(named)]

    def _done(self, action: Action) -> Action:
        self._state.apply(action)
        return action


def _moved(
    noted: tuple[Buried, Failure, FailureDetail | None], action: Buried
) -> tuple[Buried, Failure, FailureDetail | None]:
    """The same, with its copy where a second DEAD action says."""
    before = noted[0]
    same = (before.group, before.first) == (action.group, action.first)
    return (action, *noted[1:]) if same else noted
