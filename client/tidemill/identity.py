"""A consumer's name: the one it was given, the one it had last time, or a random one.

A random one in a pod has the pod's uid in it (``TIDEMILL_POD``): when the pod vanishes, whoever sees it can say so, and
its leases end at once.

Names are remembered in ``<state_dir>/<group>.<number>.consumer``. The file is locked while its name is in use, so two
processes on one machine never share a name; a process that finds a name in use takes the next number.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from tidemill.errors import Refused
from tidemill.settings import ClientSettings
from tidemill.subscription import Subscription
from tidemill_wire.fields import parse_consumer
from tidemill_wire.limits import CONSUMER_NAME_MAX
from tidemill_wire.pods import mark_of, parse_pod

NAMES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Name:
    """A name, and the lock on it."""

    text: str
    descriptor: int = -1

    def give_back(self) -> None:
        """It is free for the next one."""
        if self.descriptor >= 0:
            os.close(self.descriptor)


async def borrow_name(subscription: Subscription, settings: ClientSettings) -> Name:
    """The name of a consumer that starts now."""
    if subscription.name is not None:
        return Name(subscription.name)
    mark = mark_of(parse_pod(settings.pod)) if settings.pod else "-"
    fresh = f"{settings.name}{mark}{settings.random.getrandbits(64):016x}"[-CONSUMER_NAME_MAX:]
    if settings.state_dir is None:
        return Name(parse_consumer(fresh))
    folder = Path(settings.state_dir)
    return await asyncio.get_running_loop().run_in_executor(
        None, _remembered, folder, subscription.group, fresh
    )


def _remembered(folder: Path, group: str, fresh: str) -> Name:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(NAMES_MAX):
        descriptor = os.open(
            folder / f"{group}.{number}.consumer", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        return Name(_read_or_write(descriptor, fresh), descriptor)
    raise Refused(
        "limit_exceeded", f"{NAMES_MAX} consumers of {group} run here, each with a name in {folder}"
    )


def _read_or_write(descriptor: int, fresh: str) -> str:
    try:
        return parse_consumer(os.pread(descriptor, 1024, 0).decode())
    except (Refused, UnicodeDecodeError):
        # New, or torn by a crash: a name nobody remembers is as good as none.
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, fresh.encode(), 0)
        return fresh
