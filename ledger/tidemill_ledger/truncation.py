"""What a slave's folder holds beyond what its group has is taken away, before it is recovered.

Checkpoints that know too much go first: one that knows more than the logs hold would refuse the start. Logs are cut
from their end, each on its own, and what is cut is copied to ``aside/``; after a crash in the middle the master says
again where to cut. What is behind, and half of a copy (``remove_all``), is not copied: others of the group have it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tidemill_host.machine import Remove
from tidemill_journal.checkpoint import FOLDER as CHECKPOINTS
from tidemill_journal.checkpoint import checkpoint_number, unwrap
from tidemill_journal.errors import CorruptRecord
from tidemill_journal.segments import base_of
from tidemill_ledger.membership import Part
from tidemill_ledger.storage import Storage
from tidemill_wire.replication import Ends

LOGS = ("message", "action")
COPYING = f"{CHECKPOINTS}/copying"
"""Lies there from before the first byte of a copy until its checkpoint is there."""
Known: TypeAlias = Callable[[bytes], Ends]
"""Up to where a checkpoint knows the logs, or ``CorruptRecord``."""


def prepare(storage: Storage, part: Part, known: Known) -> dict[str, int]:
    """What a part says of the logs; how many bytes were set aside. Of a slave's that begin late nothing can be made
    without a checkpoint. A copy that did not come to its end is like that; else somebody has lost the checkpoints, and
    may find them again.
    """
    cut = cut_logs(storage, part.cut, known) if part.cut is not None else {}
    if part.follows:
        remove_empty(storage)
        copying = storage.size(COPYING) is not None
        has_none = not _checkpoints(storage)
        if part.anew or (copying and has_none):
            remove_all(storage)
        elif has_none and _begins_late(storage):
            cut = cut_logs(storage, Ends(0, 0), known)
        if copying:
            storage.write_now([Remove(COPYING)])
    return {folder: size for folder, size in cut.items() if size}


def cut_logs(storage: Storage, ends: Ends, known: Known) -> dict[str, int]:
    """Cut both logs; how many bytes of each."""
    for file in _checkpoints(storage):
        if _knows_more(storage, file, ends, known):
            storage.write_now([Remove(file)])
    return {folder: _cut(storage, folder, end) for folder, end in zip(LOGS, ends, strict=True)}


def remove_all(storage: Storage) -> None:
    """Begin with nothing. Of runs and indexes recovery removes what has no segment."""
    for file in _checkpoints(storage):
        storage.write_now([Remove(file)])
    for folder in LOGS:
        for base in reversed(_bases(storage, folder)):
            storage.write_now([Remove(_file(folder, base))])


def remove_empty(storage: Storage) -> None:
    """A segment that was begun with nothing in it: the master may go on in the one before."""
    for folder in LOGS:
        for base in reversed(_bases(storage, folder)):
            if storage.size(_file(folder, base)):
                break
            storage.write_now([Remove(_file(folder, base))])


def _begins_late(storage: Storage) -> bool:
    """Whether a log has lost its beginning, so that nothing can be made of it without a checkpoint."""
    return any(_bases(storage, folder)[:1] > [0] for folder in LOGS)


def _cut(storage: Storage, folder: str, end: int) -> int:
    cut = 0
    for base in reversed(_bases(storage, folder)):  # the last one first: a crash in between leaves no gap
        file = _file(folder, base)
        size = storage.size(file) or 0
        if size and base + size <= end:
            break
        keep = max(0, end - base)
        cut += size - keep
        storage.set_aside(file, keep)
    return cut


def _knows_more(storage: Storage, file: str, ends: Ends, known: Known) -> bool:
    try:
        message, action = known(unwrap(storage.reader(file)(0, storage.size(file) or 0)))
    except CorruptRecord:
        return True  # nobody would read it
    return message > ends.message or action > ends.action


def _checkpoints(storage: Storage) -> list[str]:
    names = storage.names(CHECKPOINTS)
    return [f"{CHECKPOINTS}/{name}" for name in names if checkpoint_number(name) is not None]


def _bases(storage: Storage, folder: str) -> list[int]:
    return sorted(base for base in map(base_of, storage.names(folder)) if base is not None)


def _file(folder: str, base: int) -> str:
    return f"{folder}/{base:020}.log"
