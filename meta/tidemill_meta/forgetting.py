"""What meta lets go of, so that it keeps what is, and not all that ever was.

Three things would grow for ever: entries that say that something is gone, removals, and bulletins of replicas that are
no more. Each is kept for as long as anybody may need it:

    entry of what is gone  --``GONE_MS`` later-------------------------------->  forgotten
    removal                --``removed_days`` later, when all brokers obeyed-->  an entry of what is gone
    bulletin               --not followed by another one for ``GONE_MS``----->  forgotten

A replica that was away for longer than that begins anew with all that is stored: the store tells it, for it remembers
up to where something was forgotten. It remembers, too, the largest version of what was forgotten: versions of a name
go on above it, so whoever else remembers one, as brokers do of allocations and fences, takes the next one for later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidemill_meta.registry import Draft, Registry, View
from tidemill_meta.senses import Senses
from tidemill_meta.values import BrokerGroup, Removal

SWEEP_MS = 60_000
GONE_MS = 600_000
DAY_MS = 86_400_000
REMOVALS_MAX = 100
"""In one turn."""


class Sweep(NamedTuple):
    """What the store is to forget."""

    until: int
    """Entries of what is gone, up to that revision."""
    silent: Mapping[str, int]
    """Bulletins: of each replica the number, unless it has put up another one since."""


class Forgetting:
    """When a replica knew what, by its own clock; asked every ``SWEEP_MS``."""

    def __init__(self) -> None:
        self._known: deque[tuple[int, int]] = deque(maxlen=2 * GONE_MS // SWEEP_MS)
        """Times, and the revision that was known then."""
        self._numbers: dict[str, tuple[int, int]] = {}
        """Of each bulletin, its number, and since when it is that one."""

    def sweep(self, registry: Registry, numbers: Mapping[str, int], now_ms: int) -> Sweep | None:
        """What is to be forgotten now, if anything; ``numbers`` are those of the other replicas' bulletins."""
        self._known.append((now_ms, registry.revision))
        self._numbers = {
            replica: known
            if (known := self._numbers.get(replica)) is not None and known[0] == number
            else (number, now_ms)
            for replica, number in numbers.items()
        }
        until = max((revision for at_ms, revision in self._known if now_ms - at_ms >= GONE_MS), default=0)
        silent = {
            replica: number
            for replica, (number, since_ms) in self._numbers.items()
            if now_ms - since_ms >= GONE_MS
        }
        return Sweep(until, silent) if silent or registry.has_gone(until) else None


def old_removals(view: View, senses: Senses, now_ms: int) -> Iterator[Removal]:
    """Those that are old, and done wherever something may lie. A broker group that nobody knows any more is nowhere."""
    kept_ms = senses.settings.removed_days * DAY_MS
    for removal in view.all(Removal):
        if now_ms - removal.number < kept_ms:
            continue
        groups = (view.get(BrokerGroup, name) for name in removal.groups)
        if all(group is None or group.retired or senses.told(group) >= removal.revision for group in groups):
            yield removal


def forget_removals(draft: Draft, senses: Senses, now_ms: int) -> None:
    """Let go of some."""
    for _, removal in zip(range(REMOVALS_MAX), list(old_removals(draft, senses, now_ms)), strict=False):
        draft.drop(Removal, removal.key)
