"""What archives have of subjects that declare ``archive: Required``: their segments stay until it is all of them.

    SUBJECT, required      nothing may go
    told of an archive     what is below its watermark may go: SUBJECT again, with it
    told that all ended    everything may go, as of any other subject
    told of another one    what is from its watermark on stays, of what is still there

What archives have is part of a subject's settings: in the log, in checkpoints, on slaves, which drop segments by
themselves. A broker that was told nothing yet knows what its log knows, and drops no more than that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from tidemill_broker.actions import SubjectNamed
from tidemill_broker.desk import Desk
from tidemill_broker.further import Further
from tidemill_broker.lanes import Lane
from tidemill_broker.partitions import Archived, Partition
from tidemill_broker.state import State
from tidemill_wire.lanes import split_lane
from tidemill_wire.limits import PRIORITY_MAX

EVERYTHING: Archived = tuple((priority, 1 << 62) for priority in range(PRIORITY_MAX + 1))


class Archiving:
    """See the module."""

    def __init__(self, desk: Desk, further: Further) -> None:
        self._desk = desk
        self._state = desk.state
        self._further = further

    def obey(self, archived: Iterable[tuple[str, int]], released: Collection[str], now_ms: int) -> None:
        """Note what is new."""
        wanted: dict[bytes, dict[int, int]] = {}
        for name, sequence in archived:
            base, priority = split_lane(name)
            wanted.setdefault(base.encode(), {})[priority] = sequence
        for raw_name, lanes in wanted.items():
            partition = self._state.by_name.get(raw_name)
            if partition is not None:
                self._note(partition, tuple(sorted(lanes.items())), now_ms)
        for subject in released:
            for one in self._further.whole(subject):
                self._note(one, EVERYTHING, now_ms)

    def _note(self, partition: Partition, archived: Archived, now_ms: int) -> None:
        settings = partition.settings
        if settings.archived is None or settings.archived == archived:
            return
        said = replace(settings, archived=archived).to_map()
        self._desk.act(SubjectNamed(partition.identity, partition.name, said), now_ms)


def unarchived(partition: Partition) -> int:
    """Messages of a partition or lane that is kept for archives, and that none has."""
    archived = partition.settings.archived
    if archived is None:
        return 0
    return max(0, partition.visible - _begin(partition, archived))


def lag_of(state: State) -> Iterator[tuple[int, int]]:
    """Of each partition and lane that is kept for archives: messages that none has, and since when the oldest of these
    has been here, as far as its segment says.
    """
    for partition in state.by_name.values():
        count, archived = unarchived(partition), partition.settings.archived
        if archived is None or not count:
            continue
        begin = _begin(partition, archived)
        stored = partition.run_for(begin)
        recent = partition.recent
        if stored is not None:
            since_ms = stored.run.last_stored_at_ms
        else:
            since_ms = recent.stamps[min(recent.find(begin), len(recent) - 1)]
        yield count, since_ms


def _begin(partition: Partition, archived: Archived) -> int:
    """The first message that is kept, and that no archive has."""
    priority = partition.priority if isinstance(partition, Lane) else 0
    return max(partition.first_kept, dict(archived).get(priority, 0))
