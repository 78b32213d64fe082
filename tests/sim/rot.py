"""Rot: which bytes may rot in a simulated broker, and what it may do about it.

A single copy cannot survive rot, but it must notice: a start refuses with the file's name, or the consumer's checksum
finds it, and nothing bad is delivered as good. Only sealed segments rot, and only below what a start would know to be
synced: above it nobody can tell rot from a torn tail. What rotted is put right, as from a backup, when a start was
refused because of it, or at the heal; from then on nothing may be missing.

A place of the message log may also go bad: then the disk says that it cannot read it, until it is put right in the same
way. What could not be read meanwhile died, and its letter says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sim.autopsy import durable_image_of
from sim.disk import SimDisk
from sim.platter import Inode
from tidemill_broker.doors.service import FOLDERS, Service
from tidemill_broker.recovery import Recovery
from tidemill_broker.settings import BrokerSettings
from tidemill_host.storage import Storage
from tidemill_journal.errors import CorruptLog, JournalError

LOGS = ("message", "action")
MESSAGE_SHARE = 4  # a rotten action shows at a start only, a rotten message may reach a consumer
KEPT_S_MIN = 3600
NOW_MS = 1_800_000_000_000


def may_rot(disk: SimDisk, settings: BrokerSettings) -> list[Inode]:
    """Sealed segments that a start after a power cut in this moment would take to be synced."""
    synced = _known_synced(disk, settings)
    found: list[Inode] = []
    for folder in LOGS:
        files = sorted(name for name in disk.names.cached if name.startswith(f"{folder}/"))
        for name in files[:-1]:  # the last one is open
            inode = disk.names.cached[name]
            base = int(name.removeprefix(f"{folder}/").partition(".")[0])
            whole = bool(inode.durable) and not inode.dirty and inode.durable == inode.cached
            if (
                whole
                and disk.names.durable.get(name) is inode
                and base + len(inode.durable) <= synced[folder]
            ):
                found += [inode] * (MESSAGE_SHARE if folder == "message" else 1)
    return found


def _known_synced(disk: SimDisk, settings: BrokerSettings) -> dict[str, int]:
    recovery = Recovery(Storage(durable_image_of(disk).mount(), FOLDERS), settings)
    try:
        recovery.run(NOW_MS)
    except JournalError:
        return dict.fromkeys(LOGS, 0)  # it has rotted before
    return {"message": recovery._message_synced, "action": recovery._action_synced}


def judge_refusal(disk: SimDisk, error: JournalError, probes: Counter[str]) -> str:
    """A start was refused: what is wrong with that; nothing when it names a file that rotted, which is mended."""
    rotten = {
        name for name, inode in disk.names.cached.items() if any(one is inode for one, *_ in disk.rotten)
    }
    if not isinstance(error, CorruptLog) or error.file not in rotten:
        return f"refused start: {error}, of {sorted(rotten)} that rotted"
    probes["rot_refused"] += 1
    disk.mend_rot()
    return ""


def message_log(disk: SimDisk) -> list[Inode]:
    """Where a place may go bad: what is in the action log is read by starts only, which refuse."""
    return [inode for name, inode in sorted(disk.names.cached.items()) if name.startswith("message/")]


def mended(disk: SimDisk) -> bool:
    """A start was refused by the disk: whether there were bad places, which are put right."""
    was_bad = bool(disk.refused)
    disk.refused.clear()
    return was_bad


def unanswered(lives: Sequence[Service], settings: BrokerSettings) -> list[str]:
    """Consumers that were sent away for what the disk refused: they come again, for the same, and for ever. A file that
    retention takes on the way is a reason; so is one that is set aside, for a sync of it failed and the process ends.
    """
    if settings.retention_seconds < KEPT_S_MIN:
        return []
    count = sum(life.server.statistics.refused["read_failed"] for life in lives if not life.failed.done())
    return [f"unread: {count} answers ended their connection"] if count else []
