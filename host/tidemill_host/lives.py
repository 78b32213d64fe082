"""Which life of which data folder a process is: by that meta tells a later life from an earlier one.

The folder remembers what it is called and the number of its last life; the next number is on the disk before anybody
hears of it. A clock alone cannot give it: when it was set back, the later life would look like one of before, whose
word counts for nothing, or like a stranger's who has lost everything.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from tidemill_host.disk import Disk
from tidemill_host.files import Files
from tidemill_host.machine import Replace
from tidemill_wire.errors import TidemillError
from tidemill_wire.fields import NAME

FILE = "life/last"
BYTES_MAX = 1_000


class LifeDamaged(TidemillError):
    """The file does not say what it has to."""


@dataclass(frozen=True, slots=True)
class Life:
    """``boot`` grows with each life of the folder."""

    folder: str
    boot: int


NOBODY = Life("", 0)
"""Of a broker that nobody asks for its life."""


def next_life(disk: Disk, now_ms: int, new_name: Callable[[], str]) -> Life:
    """The life that begins now. ``new_name`` names a folder that had none."""
    last = _last(disk)
    # Not counted from 1: folders of before this file have told meta the time.
    life = Life(new_name(), now_ms) if last is None else Life(last.folder, max(last.boot + 1, now_ms))
    Files(disk).write(Replace(FILE, json.dumps(asdict(life)).encode()))
    return life


def _last(disk: Disk) -> Life | None:
    try:
        file = disk.open(FILE)
    except FileNotFoundError:
        return None
    try:
        data = b""
        while len(data) < BYTES_MAX and (part := file.read(len(data), BYTES_MAX)):
            data += part
    finally:
        file.close()
    try:
        said = json.loads(data)
        folder, boot = said["folder"], said["boot"]
    except (ValueError, TypeError, KeyError):
        folder, boot = "", 0
    if type(folder) is not str or type(boot) is not int or not NAME.fullmatch(folder):
        detail = f"{FILE} in the data folder does not say which life of it was the last"
        raise LifeDamaged(f"{detail}: remove the file; meta then takes this broker for one that has nothing")
    return Life(folder, boot)
