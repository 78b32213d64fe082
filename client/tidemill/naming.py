"""What a client names: the subjects that it sends to, and its consumers. Pure: what meta is told of them, and to whom
its answers go.

What meta allots to a consumer by key, or an exclusive one, comes with the answer to a heartbeat. A watch stream says
only that there is another version of an allocation: who is behind asks at once, and again soon as long as the replica
that answers does not know of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from tidemill.allotment import Allotment
from tidemill.tenure import Moment
from tidemill_wire.filters import is_pattern
from tidemill_wire.kinds import Mode

TOLD_MAX = 1000
"""Subjects in a heartbeat or a watch stream. Who names more watches all there are."""

Named: TypeAlias = tuple[str, str, str]
"""Subject, group, consumer."""


class Member(NamedTuple):
    """A consumer as meta is told of it."""

    subjects: tuple[str, ...]
    group: str
    consumer: str
    mode: Mode
    allotment: Allotment | None = None
    """Of a consumer by key, and of an exclusive one: what meta allots to it."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat on its way."""

    body: Mapping[str, Any]
    _allotted: Mapping[Named, tuple[Allotment, Moment]] = field(default_factory=dict[Named, Any])

    def answered(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """What it says of each consumer. Names of consumers are people's: two of a process may be alike."""
        for row in rows:
            subject, group, consumer = (str(row.get(what)) for what in ("subject", "group", "consumer"))
            found = self._allotted.get((subject, group, consumer))
            if found is not None:
                allotment, sent = found
                allotment.answered(sent, row)


class Naming:
    """See the module."""

    def __init__(self) -> None:
        self.produced: dict[str, None] = {}
        self.members: dict[object, Member] = {}
        self._versions: dict[str, int] = {}
        """By subject and group, the version of the allocation that a watch stream has told."""

    def __bool__(self) -> bool:
        return bool(self.produced or self.members)

    def names(self) -> list[str]:
        """Every subject, each once."""
        consumed = (name for one in self.members.values() for name in one.subjects if not is_pattern(name))
        return list(dict.fromkeys((*consumed, *self.produced)))

    def _allotted_ones(self) -> Iterable[tuple[str, Member, Allotment]]:
        for one in self.members.values():
            if one.allotment is not None:
                for name in one.subjects:
                    if not is_pattern(name):
                        yield name, one, one.allotment

    # -- told ----------------------------------------------------------------------------------------------------

    def interest(self, names: list[str]) -> dict[str, Any]:
        """What a watch stream is to be about; ``names`` in their order, if they are too many for one."""
        patterns = [name for one in self.members.values() for name in one.subjects if is_pattern(name)]
        groups = dict.fromkeys((name, one.group) for name, one, _ in self._allotted_ones())
        return {
            "subjects": names[:TOLD_MAX], "patterns": patterns if len(names) <= TOLD_MAX else ["*"], "known": 0,
            "groups": [{"subject": subject, "group": group} for subject, group in groups][:TOLD_MAX],
        }  # fmt: skip

    def beat(self, client: str, revision: int, names: list[str]) -> Beat:
        """What is produced and consumed."""
        consumes = [
            {
                "subject": name,
                "group": one.group,
                "consumer": one.consumer,
                "consumption": _consumption(one),
            }
            | ({} if one.allotment is None else {"allocation": one.allotment.applied(name)})
            for one in self.members.values()
            for name in one.subjects
            if not is_pattern(name)
        ]
        produces = [name for name in names if name in self.produced][:TOLD_MAX]
        body = {"client": client, "produces": produces, "consumes": consumes, "known": revision}
        allotted = {
            (name, one.group, one.consumer): (allotment, allotment.now())
            for name, one, allotment in self._allotted_ones()
        }
        return Beat(body, allotted)

    # -- heard ---------------------------------------------------------------------------------------------------

    def hear(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Allocations as a watch stream tells them."""
        for row in rows:
            match row:
                case {"key": str(key), "version": int(version)}:
                    self._versions[key] = version
                case _:
                    continue

    @property
    def behind(self) -> bool:
        """Meta has shared out anew, and has not said what is whose."""
        return any(
            allotment.version(name) < self._versions.get(f"{name}/{one.group}", 0)
            for name, one, allotment in self._allotted_ones()
        )

    @property
    def waits(self) -> bool:
        """Some consumer is to ask again soon."""
        return any(allotment.awaited for _, _, allotment in self._allotted_ones()) or self.behind


def _consumption(member: Member) -> str:
    if member.mode is Mode.EXCLUSIVE:  # of patterns meta allots nothing
        return "exclusive" if member.allotment is not None else "shared"
    return {Mode.BROADCAST: "broadcast", Mode.KEYED: "ordered"}.get(member.mode, "shared")
