"""The spool files of a client: one for each lane.

``<spool>`` is for what has no route: where a broker lists itself that is everything. ``<spool>.to.GROUP`` is for what
may be sent to that broker group only, because it may have stored it, or because its order keys lie there; and
``<spool>.to.%later`` for what the delay service is to keep. What an earlier process left is sent as well.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tidemill.lane import Lane
from tidemill.later import LANE
from tidemill.producer import Producer
from tidemill.settings import ClientSettings
from tidemill.spool import ASIDE
from tidemill.spooler import Sender, Spooler
from tidemill.tasks import Tasks

BOUND = ".to."
"""Between the name of a spool and the broker group that it is for."""


class Spools:
    """See the module."""

    def __init__(self, path: Path, settings: ClientSettings, tasks: Tasks) -> None:
        self.opened = False
        self._path = path
        self._settings = settings
        self._tasks = tasks
        self._spoolers: dict[str, Spooler] = {}
        self._brought: set[bytes] = set()
        """Pieces that lie in their spool, of batches of which another piece found no room in its own."""

    def add(self, lane: Lane, sender: Sender) -> None:
        """A lane begins: what it cannot send has a place."""
        group = lane.group
        path = self._path.with_name(f"{self._path.name}{BOUND}{group}") if group else self._path
        spooler = Spooler(
            path,
            self._settings,
            lane,
            lambda subject, bound: sender.carrier(subject, bound or group),
            partial(self._move, sender),
        )
        self._spoolers[group] = spooler
        self._tasks.start(spooler.run(), f"tidemill spool {group}".rstrip())

    async def _move(self, sender: Sender, batch: bytes, lane: Lane) -> bool:
        """A batch that is refused for its route goes to the spools of those who have its order keys now."""
        pieces = sender.pieces_of(batch, lane)
        for group in dict.fromkeys(group for group, _ in pieces):
            sender.lane(group)
            mine = [piece for home, piece in pieces if home == group and piece not in self._brought]
            if mine and not await self._spoolers[group].keep(mine):
                return False
            self._brought.update(mine)
        self._brought.difference_update(piece for _, piece in pieces)
        return bool(pieces)

    async def open(self, producer: Producer) -> None:
        """Until the file of what has no route is open, and those that an earlier process left."""
        await self._spoolers[producer.anywhere.group].opened()
        for group in self._left():
            (producer.later if group == LANE else producer).lane(group)
            await self._spoolers[group].opened()
        self.opened = True

    def _left(self) -> list[str]:
        found = self._settings.shelf.names(self._path, BOUND)
        return [group for group in found if not group.endswith(ASIDE)]

    async def close(self) -> None:
        """After the tasks have ended."""
        for spooler in self._spoolers.values():
            await spooler.close()
