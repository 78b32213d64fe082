"""What a delay service is told when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill_wire import limits
from tidemill_wire.settings import SettingsError, read_fields

PREFIX = "TIDEMILL_DELAY_"
WHOLE_MAX = (1 << 63) - 1
HOURS_MS = (300_000, 3_600_000)
DURABILITIES = ("normal", "high")
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class DelaySettings:
    """Read from ``TIDEMILL_DELAY_…`` in the environment, in capitals."""

    name: str = "delay-0"
    """How the service is called; before the dash stands the group that it is of."""

    hour_ms: int = 3_600_000
    """How much time one file of the calendar has: 5 to 60 minutes."""

    tick_ms: int = 500
    """How often what is due is sent."""

    horizon_seconds: int = 731 * 24 * 3600
    """How far ahead a message may be due."""

    wheel_messages: int = 1024 * 1024
    """Messages that are in memory ahead of their time, 24 bytes each, and not twice that while they are sorted; of an
    hour with more, a part at a time."""

    kept_bytes: int = 32 * MIB
    """Of pieces whose messages are due at many ticks so much is in memory, that they need not be read at each of them;
    and one piece more. 0: nothing."""

    durability: str = "high"
    """``high``: a message is answered when it is on the disk; ``normal``: when it is in the page cache."""

    replicated: bool = False
    """Whether it is one of a group, a master and its slaves, and waits to be told which."""

    meta: str = ""
    """Where meta answers, as ``host:port``, several with commas between: it says who is what."""

    advertise: str = ""
    """The host by which clients and other replicas reach it; without it the one that it listens on."""

    say_goodbye: bool = True
    """Whether it hands over and tells meta before it stops."""

    catch_up_bytes: int = 256 * MIB
    """In a group so much of each log is kept at least, for slaves that come back: who needs more is sent a copy."""

    segment_bytes: int = 256 * MIB
    """A segment of the message log, which is removed when the calendar has all of it."""

    action_segment_bytes: int = 64 * MIB
    """A segment of the action log."""

    checkpoint_events: int = 20_000
    """So many batches and actions make a checkpoint."""

    checkpoint_pause_ms: int = limits.CHECKPOINT_PAUSE_MS
    """Two checkpoints are so far apart at least."""

    checkpoint_interval_ms: int = limits.CHECKPOINT_INTERVAL_MS
    """So often there is one, when anything happened."""

    free_space_min_percent: int = limits.FREE_SPACE_MIN_PERCENT
    """Less free disk than this refuses sends; deliveries go on."""

    sync_interval_ms: int = limits.SYNC_INTERVAL_MS
    """How long something may lie in the page cache that nobody waits for."""

    @property
    def stuck_messages(self) -> int:
        """What is due and cannot leave takes no place that others need until it is so much."""
        return 16 * self.wheel_messages

    @property
    def ahead_ms(self) -> int:
        """How long before it begins an hour is loaded."""
        return self.hour_ms // 2

    @property
    def synced(self) -> bool:
        """Whether answers wait for the disk."""
        return self.durability == "high"


def read_settings(environment: Mapping[str, str]) -> DelaySettings:
    """The settings that the environment names, as in TIDEMILL_DELAY_HOUR_MS; the defaults for the rest."""
    settings = DelaySettings(**read_fields(DelaySettings, PREFIX, WHOLE_MAX, environment))
    if not HOURS_MS[0] <= settings.hour_ms <= HOURS_MS[1]:
        least, most = HOURS_MS
        raise SettingsError(f"{PREFIX}HOUR_MS is {settings.hour_ms}: write {least} to {most}")
    if settings.hour_ms % settings.tick_ms:
        raise SettingsError(f"{PREFIX}TICK_MS is {settings.tick_ms}: write a part of {settings.hour_ms}")
    if settings.durability not in DURABILITIES:
        raise SettingsError(f"{PREFIX}DURABILITY is {settings.durability[:60]!r}: write normal or high")
    return settings
