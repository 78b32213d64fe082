"""A lake that is read and committed to: the fold of ``commits.py`` over the objects of a store.

A commit is tried under the number behind the last one that is known. When that is taken, what was said under it is
folded in, and the rest is tried behind it. A store that lost its answer is asked whose commit lies there.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from tidemill_spark import commits, layout
from tidemill_spark.commits import Commit, File, Partition, Piece, State
from tidemill_spark.errors import LakeDamaged, WrongRequest
from tidemill_spark.stores import Store, open_store

CHECKPOINT_EVERY = 32
CHECKPOINTS_KEPT = 3
GRACE_MS = 24 * 3600 * 1000
"""For so long nothing is deleted that is in no commit: whoever wrote it may be about to commit it, and whoever began
to read before it was taken out may still read it.
"""
COMMIT_WITHIN_MS = GRACE_MS // 2
"""What was written longer ago is not committed any more."""


class Lake:
    """See the module. ``state`` is as of the last look."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.state = State()
        self._looked = False

    @staticmethod
    def at(uri: str) -> Lake:
        """The lake of a URI, as it is now; an empty one when there is none."""
        lake = Lake(open_store(uri))
        lake.look()
        return lake

    def claim(self, kind: str) -> None:
        """This is a lake of that format; ``WrongRequest`` when it is one of another."""
        if self.store.create(layout.KIND, json.dumps({"format": kind}).encode()):
            return
        said = self._document(layout.KIND)
        if said != {"format": kind}:
            raise WrongRequest(f"{self.store.uri} is {said}: archive as {kind} to another folder")

    def kind(self) -> str:
        """What its first run claimed; nothing is archived without that."""
        return str(cast("dict[str, object]", self._document(layout.KIND))["format"])

    def look(self) -> State:
        """What is in the lake now."""
        if not self._looked:
            numbers = sorted(_numbers(self.store, layout.CHECKPOINTS))
            if numbers:
                self.state = commits.parse_state(self._document(layout.checkpoint_name(numbers[-1])))
            self._looked = True
        while True:
            try:
                document = self._document(layout.commit_name(self.state.number + 1))
            except FileNotFoundError:
                return self.state
            self.state = commits.after(self.state, commits.parse_commit(document))

    def commit(self, wanted: Commit) -> tuple[Commit | None, list[Piece]]:
        """Say it: what of it is in the lake, and the pieces that are not because others archived them first."""
        late: list[Piece] = []
        self.look()
        while True:
            said, dropped = commits.rebased(self.state, wanted)
            late += dropped
            if said is None:
                return None, late
            if self._say(said):
                return said, late
            wanted = said

    def _say(self, said: Commit) -> bool:
        number = self.state.number + 1
        state = commits.after(self.state, said)  # a commit that cannot follow is never written
        data = json.dumps(commits.commit_document(said), separators=(",", ":")).encode()
        name = layout.commit_name(number)
        if not self.store.create(name, data):
            found = commits.parse_commit(self._document(name))
            if found.identity != said.identity:
                self.look()
                return False
        self.state = state
        if number % CHECKPOINT_EVERY == 0:
            self._checkpoint()
        return True

    def _checkpoint(self) -> None:
        """Commits stay, for a checkpoint may be wrong; of checkpoints some do."""
        data = json.dumps(commits.state_document(self.state), separators=(",", ":")).encode()
        self.store.create(layout.checkpoint_name(self.state.number), data)
        old = sorted(_numbers(self.store, layout.CHECKPOINTS))[:-CHECKPOINTS_KEPT]
        self.store.delete(map(layout.checkpoint_name, old))

    def _document(self, name: str) -> object:
        data = self.store.read(name)
        try:
            return json.loads(data)
        except ValueError as error:
            raise LakeDamaged(f"{self.store.uri}/{name} is no JSON: {error}") from error

    # -- asking ------------------------------------------------------------------------------------------------

    def as_of(self, number: int) -> State:
        """The lake as it was after an earlier commit. Files that were taken out since may be deleted by now."""
        state = State()
        for one in self.commits(number):
            state = commits.after(state, one)
        return state

    def commits(self, until: int | None = None) -> Iterator[Commit]:
        """All, or those up to a number, the first one first."""
        last = self.state.number if until is None else until
        for number in range(1, last + 1):
            yield commits.parse_commit(self._document(layout.commit_name(number)))

    def files(
        self,
        subjects: Sequence[str] = (),
        stored_ms: tuple[int | None, int | None] = (None, None),
        wanted: Callable[[File], bool] | None = None,
    ) -> list[File]:
        """Files that may hold messages of these subjects (all), stored from a time to before another."""
        start, end = stored_ms
        found = [
            one
            for one in self.state.files.values()
            if (not subjects or one.subject in subjects)
            and (start is None or one.stored_ms[1] >= start)
            and (end is None or one.stored_ms[0] < end)
            and (wanted is None or wanted(one))
        ]
        return sorted(found, key=lambda one: (one.subject, one.date, one.hour, one.name))

    def archived(self, subjects: Sequence[str] = ()) -> dict[Partition, int]:
        """The watermark of each partition."""
        marks = self.state.watermarks
        return {place: mark for place, mark in marks.items() if not subjects or place.subject in subjects}

    # -- what is in no commit ----------------------------------------------------------------------------------

    def leftovers(self, now_ms: int) -> Iterator[str]:
        """Objects that no reader needs any more: those of runs that died, and of files that were taken out. The clock
        of the store says how old they are: who asks may have a wrong one, and others are writing.
        """
        now_ms = min(now_ms, self._now_ms())
        kept = {name for one in self.state.files for name in (one, layout.ids_name(one))}
        removed = dict(self.state.removed)
        removed |= {layout.ids_name(name): at for name, at in self.state.removed.items()}
        for one in self.store.list(""):
            ours = one.name.startswith(("subject=", f"{layout.IDS}/", f"{layout.OWN}/parts/"))
            last_ms = max(one.modified_ms, removed.get(one.name, 0))
            if ours and one.name not in kept and last_ms < now_ms - GRACE_MS:
                yield one.name

    def _now_ms(self) -> int:
        name = f"{layout.OWN}/parts/{secrets.token_hex(8)}"
        self.store.write(name, b"what time is it")
        found = [one.modified_ms for one in self.store.list(f"{layout.OWN}/parts") if one.name == name]
        self.store.delete([name])
        return max(found, default=0)  # who deleted it meanwhile sweeps, too

    def sweep(self, now_ms: int) -> int:
        """Delete them; how many there were. What others have committed meanwhile is looked at first."""
        self.look()
        found = list(self.leftovers(now_ms))
        self.store.delete(found)
        return len(found)


def _numbers(store: Store, folder: str) -> Iterator[int]:
    for one in store.list(folder):
        number = layout.number_of(one.name)
        if number is not None:
            yield number
