"""What meta allots to one consumer by key, or an exclusive one: a tenure for each of its subjects. Pure.

Where no meta answers there is none, and the consumer takes what the broker's lock gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.errors import Refused
from tidemill.tenure import Moment, Tenure
from tidemill_wire.fields import living_partition


class Allotment:
    """See the module. A partition is ``GROUP/NAME``; deliveries name it, a lane of it, or its dead letters."""

    def __init__(self, now: Callable[[], Moment]) -> None:
        self.now = now
        self.listeners: list[Callable[[], None]] = []
        """Called when something is ours, is not, or may be begun again."""
        self.error: Refused | None = None
        """Meta will never allot anything."""
        self._tenures: dict[str, Tenure] = {}

    def applied(self, subject: str) -> int:
        """For the next heartbeat."""
        tenure = self._tenures.get(subject)
        return 0 if tenure is None else tenure.applied

    def version(self, subject: str) -> int:
        """Of the allocation that was heard of last."""
        tenure = self._tenures.get(subject)
        return 0 if tenure is None else tenure.version

    def answered(self, sent: Moment, row: Mapping[str, Any]) -> None:
        """What a heartbeat that was sent then was answered of a subject."""
        match row:
            case {
                "subject": str(subject), "allocation": int(version), "partitions": [*partitions],
                "authorised_ms": int(left_ms),
            }:  # fmt: skip
                tenure = self._tenures.setdefault(subject, Tenure())
                tenure.answered(sent, version, map(str, partitions), left_ms / 1000)
                self.tell()
            case {"strategy": "shared", "subject": str(subject), "group": str(group)}:
                asked = f"group {group!r} of {subject!r} is shared, and this asks for it in order"
                self.error = Refused("wrong_consumption", asked)
                self.tell()
            case _:
                return

    def tell(self) -> None:
        """Something changed."""
        for listener in list(self.listeners):
            listener()

    @property
    def governs(self) -> bool:
        """Whether meta has ever allotted anything: from then on only what is ours is pulled from."""
        return bool(self._tenures)

    @property
    def awaited(self) -> bool:
        """Meta has heard of the consumer, and has not shared anything out yet."""
        return any(tenure.version == 0 for tenure in self._tenures.values())

    @property
    def authorised(self) -> bool:
        """Whether anything may be begun now."""
        now = self.now()
        return not self._tenures or any(tenure.authorised(now) for tenure in self._tenures.values())

    @property
    def lapses(self) -> int:
        """Those of all tenures."""
        return sum(tenure.lapses for tenure in self._tenures.values())

    def ours(self) -> dict[str, dict[str, int]]:
        """Broker group -> partition -> the version to name."""
        found: dict[str, dict[str, int]] = {}
        for tenure in self._tenures.values():
            for key, version in tenure.ours.items():
                group, _, name = key.partition("/")
                found.setdefault(group, {})[name] = version
        return found

    def is_ours(self, group: str, subject: str) -> bool:
        """Whether a delivery's messages are to be kept."""
        tenure = self._of(subject)
        return tenure is None or tenure.is_ours(f"{group}/{living_partition(subject)}")

    def may_begin(self, group: str, subject: str) -> bool:
        """Whether a delivery's messages may be begun now."""
        tenure = self._of(subject)
        return tenure is None or tenure.may_begin(f"{group}/{living_partition(subject)}", self.now())

    def leaving(self) -> list[tuple[str, str]]:
        """Broker group and partition of what is to be let go."""
        keys = [key for tenure in self._tenures.values() for key in tenure.leaving]
        return [(group, name) for group, _, name in (key.partition("/") for key in keys)]

    def drained(self, group: str, name: str) -> bool:
        """Nothing of it is at work: whether to say YIELD."""
        tenure = self._of(name)
        return tenure is not None and tenure.drained(f"{group}/{name}")

    def yielded(self, group: str, name: str) -> None:
        """It was answered, or its connection has ended."""
        tenure = self._of(name)
        if tenure is not None:
            tenure.yielded(f"{group}/{name}")
            self.tell()

    def _of(self, subject: str) -> Tenure | None:
        return self._tenures.get(living_partition(subject).partition("#")[0])


@dataclass(frozen=True, slots=True)
class Share:
    """What meta allots at this broker group, and how to ask it again."""

    group: str
    allotment: Allotment
    ask: Callable[[], None]

    def of(self, names: Sequence[str]) -> Mapping[str, int]:
        """Which of them may be pulled from, each with the version to name. Also that of its own subject's allocation:
        a version of another one, if it is greater, would shut out whom the partition belongs to.
        """
        if not self.allotment.governs:
            return dict.fromkeys(names, 0)
        ours = self.allotment.ours().get(self.group, {})
        return {name: ours[name] for name in names if name in ours}
