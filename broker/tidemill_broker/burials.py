"""Which burials count when logs are replayed. A burial is two writes, a copy in the message log and a DEAD action
in the other, and a power cut may keep either one alone. Copies say what they are copies of, so they decide:

    copy and action   the message is buried
    copy alone        buried: the action is written again
    action alone      not buried: the message is doomed as before, and will be copied again
"""

from __future__ import annotations

from typing import Any, cast

import msgpack

from tidemill_broker.actions import NOWHERE, Buried
from tidemill_broker.dead_letters import PROPERTY
from tidemill_broker.failures import Failure
from tidemill_broker.state import State
from tidemill_wire.columns import Batch
from tidemill_wire.fields import DEAD_PREFIX, dead_letters_of

PREFIX = DEAD_PREFIX.encode()


class Burials:
    """Those of one replay."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._acted: list[tuple[Buried, Failure]] = []
        self._copies: dict[tuple[int, int], Buried] = {}

    def note(self, action: Buried) -> bool:
        """A DEAD action; whether it is to be applied. It comes twice where an earlier recovery undid the burial."""
        failure = self._state.groups[action.group].failed.get(action.first)
        if failure is None:
            return False
        self._acted.append((action, failure._replace(messages=action.messages)))
        return True

    def found(self, name: bytes, position: int, data: bytes) -> None:
        """A copy in a dead-letter subject."""
        batch = Batch(data)
        properties = batch.properties()
        assert properties  # the broker itself has written it
        known = cast("dict[str, Any]", msgpack.unpackb(properties[0], strict_map_key=False))[PROPERTY]
        subject = dead_letters_of(name.decode(), known["group"])
        source = self._state.group_of(subject or "", known["group"])
        if source is None:  # dead letters that died again lie beside themselves
            source = self._state.group_of(name.decode(), known["group"])
        if source is not None:
            buried = Buried(source.identity, known["sequence"], batch.header.messages, position)
            self._copies[source.identity, buried.first] = buried

    def settle(self) -> list[Buried]:
        """Undo the burials whose copy is not there; those whose action is not there, applied and to be written."""
        state = self._state
        for action, failure in self._acted:
            if action.position != NOWHERE and (action.group, action.first) not in self._copies:
                group = state.groups[action.group]
                group.buried -= action.messages
                group.fail(failure)
                state.doomed.add(group.identity)
        missing: list[Buried] = []
        for buried in self._copies.values():
            group = state.groups[buried.group]
            if buried.first in group.doomed and buried.messages <= group.failed[buried.first].messages:
                state.apply(buried)
                missing.append(buried)
        return missing
