"""A store that has gone back: what is stored begins anew, above all that anybody knows.

| state | event | becomes |
|---|---|---|
| as known | a replica or a broker knows a revision that is lost | anew: all is stored once more, as this says |
| anew | a replica knows an earlier revision | it is told all, and forgets what else it knew |
| anew | a broker or a client knows an earlier one | all that it is told is later |

What commits that are lost had told somebody is not known any more, and may be believed yet. So with the beginning:

- Every entry has its revision as a version, and what comes goes on above it: no version that was told is told again for
  something else. One commit may change an entry several times; a version is never ``STEP`` above the revision.
- A broker group is *unsure*: nobody is told who leads it before it is known who did (``promotion.py``).
- Each partition of a group in order may be handled by a consumer that is not known. It is granted to nobody until
  whatever anybody was authorised for is over (``consumers.py``).

What a crash leaves: it is one commit.
"""

from __future__ import annotations

from dataclasses import replace

from tidemill_meta.allocation import doubted
from tidemill_meta.registry import Registry
from tidemill_meta.storing import STEP, Anew, Entry
from tidemill_meta.values import Allocation, BrokerGroup, Route


def begun_anew(registry: Registry, known: int, now_ms: int) -> Anew:
    """All that is registered, when somebody knows that revision. By the clock, so that it is above what nobody has told
    yet, and above another beginning from the same copy.
    """
    revision = max(max(known, registry.revision) + STEP, now_ms)
    values: list[BrokerGroup | Allocation] = [
        *(replace(group, unsure=True) for group in registry.all(BrokerGroup)),
        *(_doubted(registry, allocation, revision) for allocation in registry.all(Allocation)),
    ]
    entries = (Entry(value.KIND, value.key, revision, value.to_map()) for value in values)
    return Anew(revision, tuple(entries))


def _doubted(registry: Registry, allocation: Allocation, revision: int) -> Allocation:
    route = registry.get(Route, allocation.subject)
    partitions = [] if route is None else [one.key for one in route.current.partitions]
    return doubted(allocation, [*(partition for partition, _ in allocation.owners), *partitions], revision)
