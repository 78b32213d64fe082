"""A consumer's name: the one it was given, the one it had last time, or a random one.

A random one in a pod has the pod's uid in it (``TIDEMILL_POD``): when the pod vanishes, whoever sees it can say so, and
its leases end at once. That may be said again long after, so no consumer goes on under the name of another pod; but for
those that ask to be given messages in order, of which no lease ends for a pod: a broadcast goes on where it was.

Names are remembered in ``<state_dir>/<group>.<number>.consumer``. The file is locked while its name is in use, so two
processes on one machine never share a name; a process that finds a name in use takes the next number.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
from dataclasses import dataclass
from pathlib import Path

from tidemill.errors import Refused
from tidemill.settings import ClientSettings
from tidemill.subscription import Subscription
from tidemill_wire.fields import parse_consumer
from tidemill_wire.kinds import Mode
from tidemill_wire.limits import CONSUMER_NAME_MAX
from tidemill_wire.pods import POD, mark_of, parse_pod

NAMES_MAX = 10_000
MARK = re.compile(mark_of(POD.pattern))
"""What brokers look for in names when a pod is gone, whichever it is."""


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
    return await asyncio.get_running_loop().run_in_executor(None, _remembered, folder, subscription, fresh)


def _remembered(folder: Path, subscription: Subscription, fresh: str) -> Name:
    group = subscription.group
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
        return Name(_read_or_write(descriptor, fresh, subscription.mode), descriptor)
    raise Refused(
        "limit_exceeded", f"{NAMES_MAX} consumers of {group} run here, each with a name in {folder}"
    )


def _read_or_write(descriptor: int, fresh: str, mode: Mode) -> str:
    try:
        found = parse_consumer(os.pread(descriptor, 1024, 0).decode())
        if mode is not Mode.AS_DECLARED or set(MARK.findall(found)) <= set(MARK.findall(fresh)):
            return found
    except (Refused, UnicodeDecodeError):
        pass  # new, or torn by a crash: a name nobody remembers is as good as none
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, fresh.encode(), 0)
    return fresh
