"""What an operator may set. Read once in ``__main__``, printed at start, passed down."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill_wire import limits


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """One broker."""

    name: str = "g0-0"
    """The broker's name in answers, logs and metrics."""

    durability: str = "high"
    """Class of subjects that declare none: high (fsync before the answer), normal, or low."""

    create_subjects: bool = True
    """Whether a subject that nobody declared is made by the first send or pull."""

    retention_seconds: int = limits.RETENTION_SECONDS_DEFAULT
    """How long messages of subjects that declare nothing are kept."""

    segment_bytes: int = limits.MESSAGE_SEGMENT_BYTES
    """Size of a message log segment; retention removes whole segments."""

    segment_batches: int = limits.MESSAGE_SEGMENT_BATCHES
    """Batches in a message log segment; bounds the memory of the open one."""

    action_segment_bytes: int = limits.ACTION_SEGMENT_BYTES
    """Size of an action log segment."""

    checkpoint_events: int = limits.CHECKPOINT_EVENTS
    """A checkpoint is made after so many events, at least `checkpoint_pause_ms` after the last one."""

    checkpoint_interval_ms: int = limits.CHECKPOINT_INTERVAL_MS
    """A checkpoint is made after this time when there was any event."""

    checkpoint_pause_ms: int = limits.CHECKPOINT_PAUSE_MS
    """The least time between two checkpoints."""

    sync_interval_ms: int = limits.SYNC_INTERVAL_MS
    """What nobody waits for is on the disk this much later at the latest."""

    lease_ms: int = limits.LEASE_MS_DEFAULT
    """Lease of groups that declare none."""

    consumer_gone_ms: int = limits.CONSUMER_GONE_MS
    """A consumer without a connection for this long loses its deliveries."""

    free_space_min_percent: int = limits.FREE_SPACE_MIN_PERCENT
    """Less free disk than this refuses sends; reads go on."""

    subjects_max: int = limits.SUBJECTS_MAX
    """Subjects on one broker."""
